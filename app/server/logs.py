"""Structured logs: one JSON object a line, on standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sys
from collections import deque
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

MOST_WAITING = 100_000  # lines; when nobody reads them, memory is worth more
_OWN_FIELDS = set(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "color_message"}
_KEY = re.compile(r"fc_([0-9A-Za-z]+)_[\w-]+")


def without_keys(text: str) -> str:
    """Take the secret out of any key in a text, such as a path somebody pasted one into."""
    return _KEY.sub(r"fc_\1_…", text) if "fc_" in text else text


class JsonFormatter(logging.Formatter):
    """Formats what Python's logging is told, extras included."""

    def format(self, record: logging.LogRecord) -> str:
        """Give one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_keys(record.getMessage()),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if record.exc_info:
            line["traceback"] = without_keys(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def logging_config(level: str) -> dict[str, Any]:
    """Say to Python's logging, uvicorn's included, where and how to write."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "app.server.logs.JsonFormatter"}},
        "handlers": {"stdout": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stdout"}},
        "loggers": {"uvicorn": {"level": level.upper()}, "flowcast": {"level": level.upper()}},
        "root": {"handlers": ["stdout"], "level": "WARNING"},
    }


class RequestLog:
    """Collects the requests' lines until they are written together, so that no request waits for a write."""

    def __init__(self, level: str) -> None:
        self._info = level in ("debug", "info")
        self._lines: deque[str] = deque(maxlen=MOST_WAITING)

    def add(
        self,
        *,
        request_id: str,
        method: str,
        path: str,
        route: str,
        status: int,
        seconds: float,
        sent: int,
        key_id: str | None,
        client: str,
    ) -> None:
        """Take note of one request."""
        failed = status >= 500
        if not (self._info or failed):
            return
        self._lines.append(
            f'{{"time": "{datetime.now(UTC).isoformat(timespec="milliseconds")}", '
            f'"level": "{"error" if failed else "info"}", "request_id": "{request_id}", "method": {quoted(method)}, '
            f'"path": {quoted(without_keys(path))}, "route": {quoted(route)}, "status": {status}, '
            f'"duration_ms": {seconds * 1000:.3f}, "bytes": {sent}, '
            f'"key_id": {"null" if key_id is None else quoted(key_id)}, "client": {quoted(client)}}}\n'
        )

    def flush(self) -> None:
        """Write what is waiting."""
        lines = []
        with contextlib.suppress(IndexError):  # the end; another thread may be writing too
            while True:
                lines.append(self._lines.popleft())
        if lines and not sys.stdout.closed:
            with contextlib.suppress(OSError):  # nobody listens any more
                sys.stdout.write("".join(lines))
                sys.stdout.flush()

    def start_writing(self) -> None:
        """Write what is waiting in a thread: a pipe that is full would stop every request."""
        if self._lines:
            asyncio.get_running_loop().run_in_executor(None, self.flush)
