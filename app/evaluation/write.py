"""Write a report's files: each is whole or absent, and they take their places together."""

from __future__ import annotations

import tempfile
from pathlib import Path

from app.evaluation.pages import page
from app.evaluation.report import Report
from app.evaluation.tables import tables_csv


def require_folder(output: Path) -> None:
    """Make a report's folder; refuse one that cannot be written to before the work begins, not after it."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=output):
        pass


def write_report(output: Path, report: Report, pictures: dict[str, bytes]) -> list[Path]:
    """Write report.html, report.json, tables.csv and a picture a link; remove an older report's pictures.

    Everything is written beside its place first, so that whoever interrupts leaves no half report.
    """
    contents = dict(pictures)
    contents["tables.csv"] = tables_csv(report).encode()
    contents["report.json"] = report.to_text().encode()
    contents["report.html"] = page(report).encode()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=output) as beside:
        for name, content in contents.items():
            (Path(beside) / name).write_bytes(content)
        for name in contents:
            (Path(beside) / name).replace(output / name)
    for old in output.glob("figure4-*.png"):
        if old.name not in contents:
            old.unlink()
    return [output / name for name in contents]
