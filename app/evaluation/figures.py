"""Figure 4 as a picture: counts as a line, forecasts as stars, a panel for each method."""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from typing import Any

import numpy as np

from app.evaluation.report import LinkResult

MOST_DAY_LABELS = 5
COLUMNS = 4


def draw_figure4(link: LinkResult) -> bytes:
    """Draw a link's test days as a PNG."""
    # Not at the top: matplotlib comes with the reports extra, and takes half a second to load.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(link.methods) // COLUMNS)
    figure = Figure(figsize=(24, 5.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True).ravel()
    for unused in panels[len(link.methods) :]:
        unused.set_visible(False)
    slots, midnights = np.arange(len(link.test_slots.counts)), _midnights(link.test_slots.local_starts)
    counts = _as_array(link.test_slots.counts)
    for axes, method in zip(panels, link.methods, strict=False):
        lower, upper = _as_array(method.forecasts.lower), _as_array(method.forecasts.upper)
        axes.fill_between(slots, lower, upper, color="tab:red", alpha=0.15, linewidth=0, label="interval")
        axes.plot(slots, counts, color="tab:blue", linewidth=1.1, label="count")
        expected = _as_array(method.forecasts.expected)
        axes.plot(slots, expected, "*", color="tab:red", markersize=4.5, markeredgewidth=0, label="forecast")
        error = "-" if method.test.rmse is None else f"{method.test.rmse:.2f}"
        axes.set_title(f"{method.method}: test RMSE {error}")
        axes.set_xticks([at for at, _ in midnights], [day for _, day in midnights])
        axes.set_xlim(0, max(len(slots) - 1, 1))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("vehicles a slot")
    panels[0].legend(loc="upper left", fontsize="small")
    figure.suptitle(f"Link {link.link_id}: test days, one slot ahead, local time ({link.zone})", parse_math=False)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=100)
    return out.getvalue()


def _as_array(values: list[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _midnights(local_starts: list[str]) -> list[tuple[int, str]]:
    """Return where local days begin, and their names; of many days only every few."""
    days: dict[str, int] = {}
    for at, start in enumerate(local_starts):
        days.setdefault(start[:10], at)
    every = -(-len(days) // MOST_DAY_LABELS)
    named = [(at, datetime.fromisoformat(day).strftime("%a %d %b")) for day, at in days.items()]
    return named[::every]
