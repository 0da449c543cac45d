"""Draw docs/pictures/forecast.svg: a day of one link of the sample city, forecast one slot ahead.

The model is trained on the days before, as by ``flowcast train``. The same arguments give the same
picture. Greys and colours are legible on white and on black.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import City, sample_city
from app.evaluation.days import DaySplit
from model.error_measures import coverage
from model.link_model.trained_model import Forecasts
from model.link_model.training import train
from model.link_model.training_plan import TrainingPlan
from tests.support.data import MissingData

INK, COUNT, FORECAST = "#808892", "#3b82c4", "#d9622b"
STYLE: Any = {
    "svg.fonttype": "none",  # text instead of outlines, which is smaller
    "svg.hashsalt": "flowcast",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def forecast_day(city: City, link_id: str, day: int) -> tuple[Any, Forecasts]:
    """Train a link on the days before ``day``, and forecast that day slot by slot from the true past."""
    if link_id not in city.counts:
        raise MissingData(f"no link {link_id}; there are {', '.join(sorted(city.counts))}")
    counts = city.counts[link_id]
    per_day = city.grid.slots_per_day
    series = LinkSeries(
        link_id, city.grid, zone_named(city.zone), city.first_slot, counts, np.zeros(len(counts), dtype=np.bool_)
    )
    plan = TrainingPlan()
    span = DaySplit(series, day * per_day, plan.lags if isinstance(plan.lags, int) else max(plan.lags))
    model = train(span.training, plan, suspect=span.training_link.suspect).model
    slots = np.arange(day * per_day, (day + 1) * per_day)
    return counts[slots], model.forecast(span.windows(slots))


def draw(city: City, link_id: str, day: int, output: Path) -> float:
    """Draw the day into an SVG file; return the share of counts inside the interval."""
    import matplotlib
    from matplotlib.figure import Figure

    counts, forecasts = forecast_day(city, link_id, day)
    hours = np.arange(len(counts)) * city.grid.slot_minutes / 60
    date = city.grid.start(city.first_slot + day * city.grid.slots_per_day).astimezone(zone_named(city.zone))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.fill_between(
            hours,
            forecasts.lower[:, 0],
            forecasts.upper[:, 0],
            color=FORECAST,
            alpha=0.22,
            linewidth=0,
            label="90 % interval",
        )
        axes.plot(hours, forecasts.expected[:, 0], color=FORECAST, linewidth=1.8, label="expected, 15 minutes before")
        axes.plot(hours, counts, ".", color=COUNT, markersize=6, label="observed count")
        axes.set(xlim=(0, 24), ylabel="vehicles in 15 minutes", xticks=range(0, 25, 3))
        axes.set_xticklabels([f"{hour}:00" for hour in range(0, 25, 3)])
        axes.set_ylim(bottom=0)
        axes.grid(color=INK, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.56, 1.02), fontsize=10)
        axes.set_title(f"Link {link_id} of the sample city, {date + timedelta(hours=2):%A %d %B %Y}", loc="left")
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, format="svg", transparent=True, metadata={"Date": None, "Creator": "Flowcast"})
    # matplotlib writes trailing spaces.
    output.write_text("\n".join(line.rstrip() for line in output.read_text().splitlines()) + "\n")
    return float(coverage(counts, forecasts.lower[:, 0], forecasts.upper[:, 0]).value or 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw a day of the sample city with its forecasts.")
    parser.add_argument("--output", type=Path, default=Path("docs/pictures/forecast.svg"))
    parser.add_argument("--link", default="Ba", help="link of the sample city (Ba)")
    parser.add_argument(
        "--day", type=int, default=23, help="day to draw, counted from 0; the model is trained on those before (23)"
    )
    options = parser.parse_args()
    covered = draw(sample_city(days=options.day + 1), options.link, options.day, options.output)
    size = options.output.stat().st_size / 1000
    print(f"{options.output}: {size:.0f} KB; {covered:.0%} of the day's counts lie in the interval")


if __name__ == "__main__":
    main()
