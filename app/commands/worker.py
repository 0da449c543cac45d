"""``flowcast worker``."""

from __future__ import annotations

import logging.config
import signal
import socket
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from app.commands.database import current_database, read_settings
from app.core.parent_process import end_with
from app.server.logs import logging_config
from app.worker.worker import Worker


def worker_command(
    parent: Annotated[int | None, typer.Option(hidden=True, help="Process to end with.")] = None,
) -> None:
    """Execute retrain runs; SIGTERM releases the run under way, and another worker continues it.

    Example:

        flowcast worker
    """
    settings = read_settings("worker")
    logging.config.dictConfig(logging_config(settings.log_level))
    with current_database("worker", settings) as engine:
        worker = Worker(engine, settings)
        on_signals(worker.stop)
        if parent is not None:
            end_with(parent, worker.stop)
        worker.work()


def on_signals(act: Callable[[], None]) -> None:
    """Call a function in a thread of its own whenever this process is signalled to end.

    A handler interrupts whatever the main thread does, which may hold the lock that the handler
    would wait for, or be in a handler already.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def act_on_each() -> None:
        with receiver, sender:
            while receiver.recv(1):
                act()

    threading.Thread(target=act_on_each, name="signals", daemon=True).start()
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # without a handler nothing is written to the descriptor
