"""Cells of CSV files that a spreadsheet would take for a formula, and run: written as text, and read back as they were.

An apostrophe before such a text makes it one for every spreadsheet. No link id begins with an apostrophe, so taking it
away again is safe. Numbers need none: a figure below zero is no formula.
"""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARK = "'"


def as_cell(text: str) -> str:
    """Return a text for a cell, marked as text where it could be taken for a formula."""
    return MARK + text if text.startswith(FORMULA) else text


def from_cell(cell: str) -> str:
    """Return the text of a cell without the mark."""
    return cell[1:] if cell.startswith(MARK) and cell[1:].startswith(FORMULA) else cell
