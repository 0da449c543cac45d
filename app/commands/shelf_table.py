"""The shelf as a table."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from app.commands.console import out
from app.registry.schemas import Shelf

COLUMNS = ("link", "version", "state", "algorithm", "rank", "trained on", "RMSE", "profile's", "MB", "damaged")


def print_shelves(shelves: list[Shelf]) -> None:
    """Print one line a trained model, and how many there are."""
    table = Table(*COLUMNS)
    size = 0
    for shelf in shelves:
        for model in shelf.models:
            errors = [model.held_out.get(method, {}).get("rmse") for method in ("candidate", "profile")]
            size += model.size_bytes
            table.add_row(
                escape(shelf.link_id),
                f"{model.version}",
                f"[bold]{model.state}[/]" if model.state == "active" else model.state,
                model.algorithm,
                f"{model.rank}",
                f"{model.trained_from:%Y-%m-%d} to {model.trained_to:%Y-%m-%d}",
                *("-" if error is None else f"{error:.1f}" for error in errors),
                megabytes(model.size_bytes),
                escape(model.damaged or ""),
            )
    if not table.row_count:
        out.print("the shelf is empty")
        return
    out.print(table)
    out.print(f"versions: {table.row_count}, on disk: {megabytes(size)} MB")


def megabytes(size: int) -> str:
    """Write bytes as megabytes."""
    return f"{size / 1e6:.2f}"
