"""Structured logs: one JSON object per line, on standard output."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any, TextIO

MOST_WAITING = 100_000  # lines of requests that wait to be written; more are dropped
_OWN_FIELDS = set(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "color_message"}
_OWN_FIELDS.add("taskName")  # from Python 3.12 on
_ENCODER = json.JSONEncoder(default=str)
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
        return _KEY.sub(r"fc_\1_\\u2026", _ENCODER.encode(line))


class UpgradeFilter(logging.Filter):
    """Drops uvicorn's warnings on requests for an upgrade, because any client could fill the log with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is something else."""
        return not record.getMessage().startswith(("Unsupported upgrade", "No supported WebSocket"))


def logging_config(level: str) -> dict[str, Any]:
    """Return the configuration of Python's logging, uvicorn's loggers included."""
    stdout = {"formatter": "json", "stream": "ext://sys.stdout"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "app.server.logs.JsonFormatter"}},
        "filters": {"upgrades": {"()": "app.server.logs.UpgradeFilter"}},
        "handlers": {
            "stdout": {"class": "logging.StreamHandler", **stdout},
            "requests": {"class": "app.server.logs.RequestLogHandler", **stdout},
        },
        "loggers": {
            "uvicorn": {"level": level.upper()},
            "uvicorn.error": {"filters": ["upgrades"]},
            "flowcast": {"level": level.upper()},
            request_log.name: {"handlers": ["requests"], "propagate": False},
        },
        "root": {"handlers": ["stdout"], "level": "WARNING"},
    }


class RequestLogHandler(QueueHandler):
    """Writes lines in a thread: while a pipe is full, the event loop would wait for its reader."""

    def __init__(self, stream: TextIO) -> None:
        self._lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
        super().__init__(self._lines)
        self._listener = QueueListener(self._lines, logging.StreamHandler(stream))
        self._listener.start()
        self._ended = False

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line; drop it while many wait, so that memory stays bounded if nothing reads them."""
        if self._lines.qsize() < MOST_WAITING:
            self._lines.put(record)

    def close(self) -> None:
        """Write the lines that wait, and end the thread."""
        if not self._ended:
            self._ended = True
            self._listener.stop()
        super().close()


def close_request_log() -> None:
    """Write the lines of requests that wait: uvicorn ends its process by a signal, after which nothing is written."""
    for handler in request_log.handlers:
        handler.close()
