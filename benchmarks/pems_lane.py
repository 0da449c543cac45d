"""KR_SML on one freeway lane at 5 minutes, beside networks that were published for it.

Published figures: SAE, LSTM and GRU on 12 lags (github.com/xiaochus/TrafficFlowPrediction). As there, windows
run across missing days as if the days were consecutive. KR_SML has 24 lags; it is trained and chosen on
the training days alone, and every test count is scored.
"""

from __future__ import annotations

import csv
import gzip
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ensemble_report import Limit, print_limits
from model.error_measures import mae, rmse
from model.link_model.series import CountSeries
from model.link_model.training import train
from model.link_model.training_plan import TrainingPlan

FILE = "pems_lane_2016.csv.gz"
SLOT_MINUTES, LAGS = 5, 24
PUBLISHED = {"SAE": (9.60, 7.06), "LSTM": (9.90, 7.21), "GRU": (9.97, 7.20)}  # RMSE, MAE


def read_lane(file: Path) -> tuple[CountSeries, int]:
    """Return the lane's counts without the missing days, and how many of them are for training."""
    with gzip.open(file, "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    starts = [datetime.fromisoformat(row["local_start"]) for row in rows]
    series = CountSeries(
        np.array([float(row["count"]) for row in rows]),
        np.array([start.weekday() for start in starts]),
        np.array([(start.hour * 60 + start.minute) // SLOT_MINUTES for start in starts]),
        1440 // SLOT_MINUTES,
    )
    return series, sum(row["part"] == "train" for row in rows)


def measure(file: Path) -> dict[str, Any]:
    """Train KR_SML on the training days and forecast every slot of the test days, one ahead."""
    series, n_training = read_lane(file)
    trained = train(series.head(n_training), TrainingPlan(lags=LAGS))
    rows = trained.model.window.training_set(series.counts)
    test = rows.positions >= n_training
    expected = trained.model.expected_counts(rows.X[test])[:, 0]
    errors = float(rmse(rows.y[test], expected).value or 0.0), float(mae(rows.y[test], expected).value or 0.0)
    return {
        "methods": {"KR_SML": errors, **PUBLISHED},
        "n_scored": int(test.sum()),
        "limits": [
            Limit("one freeway lane, RMSE", errors[0], most=9.45),
            Limit("one freeway lane, MAE", errors[1], most=6.95),
        ],
    }


def print_lane(console: Console, report: dict[str, Any]) -> None:
    """Print KR_SML beside the published networks."""
    table = Table("method", title=f"one freeway lane, {report['n_scored']:,} test slots of 5 minutes, one ahead")
    for heading in ("RMSE", "MAE"):
        table.add_column(heading, justify="right")
    for name, errors in report["methods"].items():
        label = f"{name} on {LAGS} lags" if name == "KR_SML" else f"{name} on 12 lags, published"
        table.add_row(label, *(f"{error:.2f}" for error in errors))
    console.print(table)
    print_limits(console, report["limits"])
