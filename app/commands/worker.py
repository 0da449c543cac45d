"""``flowcast worker``."""

from __future__ import annotations

import logging.config
import signal
from types import FrameType
from typing import Annotated

import typer

from app.commands.console import refuse
from app.commands.service import service_database, settings_or_refuse
from app.maintenance.upkeep import Upkeeper
from app.parent_process import end_with
from app.retrain.worker import Worker
from app.schema import newest_step, schema_step
from app.web.logs import logging_config


def worker_command(
    parent: Annotated[int | None, typer.Option(hidden=True, help="Process to end with.")] = None,
) -> None:
    """Carry out retrain runs; SIGTERM puts down what is under way, to be taken up again."""
    settings = settings_or_refuse("worker")
    logging.config.dictConfig(logging_config(settings.log_level))
    with service_database("worker", settings) as engine:
        if (step := schema_step(engine) or "none") != (newest := newest_step()):
            refuse("worker", f"the schema is at step {step}, this version needs {newest}: flowcast db upgrade")
        worker = Worker(engine, settings)

        def stop(_signal: int, _frame: FrameType | None) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        if parent is not None:
            end_with(parent, worker.stop)
        with Upkeeper(engine, settings, worker.name).beside():
            worker.work()
