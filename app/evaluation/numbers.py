"""Numbers in the page: each is looked up in the report by a path that the page carries along."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from app.evaluation.tables import shown


class Numbers:
    """A report as JSON, from which the page takes every number it shows.

    A number is written as an element with ``data-path``, where it is in ``report.json``, and
    ``data-value``, what it is there at full precision; the eye sees it rounded.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    def at(self, *path: str | int) -> Any:
        """Return what is at a path."""
        value: Any = self.report
        for key in path:
            value = value[key]
        return value

    def attributes(self, *path: str | int) -> str:
        """Return the attributes that say where a number is from."""
        where = ".".join(map(str, path))
        return f'data-path="{escape(where)}" data-value="{escape(json.dumps(self.at(*path)))}"'

    def span(self, style: str, *path: str | int) -> str:
        """Return a number within a sentence."""
        return f"<span {self.attributes(*path)}>{escape(shown(self.at(*path), style))}</span>"

    def cell(self, style: str, *path: str | int, best: bool = False) -> str:
        """Return a number in a table; the best of its row in bold, and marked for screen readers."""
        text = escape(shown(self.at(*path), style))
        if best:
            note = '<span class="visually-hidden"> best</span>'
            return f'<td class="best" {self.attributes(*path)}><strong>{text}</strong>{note}</td>'
        return f"<td {self.attributes(*path)}>{text}</td>"
