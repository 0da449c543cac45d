"""Structured logs: one JSON object a line, on standard output."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any, cast

MOST_WAITING = 100_000  # lines of requests that wait to be written; more are dropped
_OWN_FIELDS = set(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "color_message"}
_OWN_FIELDS.add("taskName")  # from Python 3.12 on
_KEY = re.compile(r"fc_([0-9A-Za-z]+)_[\w-]+")

request_log = logging.getLogger("flowcast.requests")


class JsonFormatter(logging.Formatter):
    """Formats a record and its extra fields as JSON, without the secrets of API keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _KEY.sub(r"fc_\1_\\u2026", json.dumps(line, default=str))


def logging_config(level: str) -> dict[str, Any]:
    """Return the configuration of Python's logging, uvicorn's loggers included."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "app.server.logs.JsonFormatter"}},
        "handlers": {"stdout": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stdout"}},
        "loggers": {"uvicorn": {"level": level.upper()}, "flowcast": {"level": level.upper()}},
        "root": {"handlers": ["stdout"], "level": "WARNING"},
    }


class _DroppingQueueHandler(QueueHandler):
    """Drops records while many wait: without a reader of the log, memory must stay bounded."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a record as it is: it stays in this process, so that the thread that writes can format it."""
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Store a record for the thread that writes."""
        if cast("SimpleQueue[Any]", self.queue).qsize() < MOST_WAITING:
            super().enqueue(record)


@contextlib.contextmanager
def requests_logged_in_thread() -> Iterator[None]:
    """Write the lines of requests in a thread: while a pipe is full, the event loop would wait for its reader."""
    waiting: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = _DroppingQueueHandler(waiting)
    listener = QueueListener(waiting, *logging.getLogger().handlers)
    request_log.addHandler(handler)
    request_log.propagate = False
    listener.start()
    try:
        yield
    finally:
        request_log.propagate = True
        request_log.removeHandler(handler)
        listener.stop()
