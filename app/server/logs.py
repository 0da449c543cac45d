"""Structured logs: one JSON object per line, on standard output."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, TextIO

MOST_WAITING = 100_000  # lines of requests that wait to be written; more are dropped
WRITE_SECONDS = 0.1
_OWN_FIELDS = set(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "color_message"}
_OWN_FIELDS.add("taskName")  # from Python 3.12 on
_ENCODER = json.JSONEncoder(default=str)
_KEY = re.compile(r"fc_([0-9A-Za-z]+)_[\w-]+")

request_log = logging.getLogger("flowcast.requests")


class JsonFormatter(logging.Formatter):
    """Formats a record and its extra fields as JSON, without the secrets of API keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        facts = {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return _line(record.created, record.levelno, record.name, record.getMessage(), facts)


def _line(created: float, level: int, logger: str, message: str, facts: Mapping[str, Any]) -> str:
    """Return a line as JSON, without the secrets of API keys."""
    line = {
        "time": datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds"),
        "level": logging.getLevelName(level).lower(),
        "logger": logger,
        "message": message,
        **facts,
    }
    return _KEY.sub(r"fc_\1_\\u2026", _ENCODER.encode(line))


def logging_config(level: str) -> dict[str, Any]:
    """Return the configuration of Python's logging, uvicorn's loggers included."""
    stdout = {"formatter": "json", "stream": "ext://sys.stdout"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "app.server.logs.JsonFormatter"}},
        "handlers": {
            "stdout": {"class": "logging.StreamHandler", **stdout},
            "requests": {"class": "app.server.logs.BackgroundHandler", **stdout},
        },
        "loggers": {
            "uvicorn": {"level": level.upper()},
            "flowcast": {"level": level.upper()},
            request_log.name: {"handlers": ["requests"], "propagate": False},
        },
        "root": {"handlers": ["stdout"], "level": "WARNING"},
    }


class BackgroundHandler(logging.Handler):
    """Writes lines in a thread, some times a second: while a pipe is full, the event loop would wait for its reader.

    Lines are formatted where they are logged. A thread that formats them, or wakes up for each, competes with the event
    loop for the interpreter, which takes several times as long.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._writing = stream, threading.Lock()
        self._lines: deque[str] = deque()
        self._ended = threading.Event()
        threading.Thread(target=self._write_until_ended, name="request-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record."""
        self.write(self.format(record))

    def write(self, line: str) -> None:
        """Queue a line for the thread; drop it while many wait, so that memory stays bounded if nothing reads them."""
        if len(self._lines) < MOST_WAITING:
            self._lines.append(line + "\n")

    def flush(self) -> None:
        """Write the lines that wait; those that cannot be written are lost, and later ones are tried again."""
        with self._writing, contextlib.suppress(OSError, ValueError):  # a full disk, or a stream that was closed
            lines = "".join(self._lines.popleft() for _ in range(len(self._lines)))
            if lines:
                self._stream.write(lines)
                self._stream.flush()

    def close(self) -> None:
        """Write the lines that wait, and end the thread."""
        self._ended.set()
        self.flush()
        super().close()

    def _write_until_ended(self) -> None:
        while not self._ended.wait(WRITE_SECONDS):
            self.flush()


def log_request(level: int, facts: Mapping[str, Any]) -> None:
    """Log a request, without a record of ``logging``: to make and format one takes three times as long."""
    if request_log.isEnabledFor(level):
        line = _line(time(), level, request_log.name, "request", facts)
        for handler in request_log.handlers:
            if isinstance(handler, BackgroundHandler):
                handler.write(line)


def flush_request_log() -> None:
    """Write the lines of requests that wait: uvicorn ends its process by a signal, after which nothing is written."""
    for handler in request_log.handlers:
        handler.flush()
