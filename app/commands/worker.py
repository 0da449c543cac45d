"""``flowcast worker``."""

from __future__ import annotations

import logging.config
import signal
import socket
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from app.commands.console import refuse
from app.commands.service import service_database, settings_or_refuse
from app.core.parent_process import end_with
from app.core.schema import NEWEST_STEP, schema_step
from app.server.logs import logging_config
from app.worker.worker import Worker


def worker_command(
    parent: Annotated[int | None, typer.Option(hidden=True, help="Process to end with.")] = None,
) -> None:
    """Carry out retrain runs; SIGTERM puts down what is under way, to be taken up again."""
    settings = settings_or_refuse("worker")
    logging.config.dictConfig(logging_config(settings.log_level))
    with service_database("worker", settings) as engine:
        if (step := schema_step(engine) or "none") != NEWEST_STEP:
            refuse("worker", f"the schema is at step {step}, this version needs {NEWEST_STEP}: flowcast db upgrade")
        worker = Worker(engine, settings)
        on_signals(worker.stop)
        if parent is not None:
            end_with(parent, worker.stop)
        worker.work()


def on_signals(act: Callable[[], None]) -> None:
    """Do something, as often as this process is asked to end, in a thread of its own.

    A handler runs in the midst of whatever the main thread does, which may hold the very lock that the handler
    would wait for, or be in a handler already.
    """
    told, heard = socket.socketpair()
    heard.setblocking(False)

    def listen() -> None:
        with told, heard:
            while told.recv(1):
                act()

    threading.Thread(target=listen, name="signals", daemon=True).start()
    signal.set_wakeup_fd(heard.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # one must be there for the descriptor to be told
