"""The tables of the report: what is in them, and ``tables.csv``."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

from app.evaluation.plan import COMPARED
from app.evaluation.report import Report
from app.evaluation.summary import Part, best_of, figures
from app.http.csv import as_cell
from model.error_measures import GEH_LIMIT

COUNT, VEHICLES, SHARE, RATIO, LEVEL = "count", "vehicles", "share", "ratio", "level"


class Column(NamedTuple):
    """How a measure is headed and shown."""

    heading: str
    style: str


COLUMNS = {
    "rmse": Column("RMSE", VEHICLES),
    "mare": Column("MARE", RATIO),
    "wape": Column("WAPE", SHARE),
    "geh_pass_share": Column(f"slots with GEH below {GEH_LIMIT:g}", SHARE),
    "coverage": Column("coverage", SHARE),
    "interval_width": Column("mean width, vehicles", VEHICLES),
    "skill_profile": Column("skill against the profile", SHARE),
    "skill_last_week": Column("skill against last week", SHARE),
}


class MeasureTable(NamedTuple):
    """A table with a row a link and, for each measure, a column a method."""

    number: int
    part: Part
    measures: tuple[str, ...]
    caption: str


TABLES = (
    MeasureTable(4, "train", ("rmse", "mare"), "training error, leave-one-out with neighbours within a day barred"),
    MeasureTable(5, "test", ("rmse", "mare"), "test error, one slot ahead"),
    MeasureTable(6, "test", ("wape", "geh_pass_share"), "WAPE and GEH on the test days"),
    MeasureTable(7, "test", ("coverage", "interval_width"), "the interval on the test days"),
    MeasureTable(8, "test", ("skill_profile", "skill_last_week"), "skill on the test days"),
)


def shown(value: float | None, style: str) -> str:
    """Round a figure for the eye."""
    if value is None:
        return "n/a"
    texts = {
        COUNT: f"{value:,.0f}",
        VEHICLES: f"{value:.2f}",
        SHARE: f"{100 * value:.1f} %",
        RATIO: f"{value:.3f}",
        LEVEL: f"{100 * value:g} %",
    }
    return texts[style]


def tables_csv(report: Report) -> str:
    """Return all tables as one CSV: a row a link and measure, a column a method, at full precision.

    A link id that a spreadsheet would take for a formula has an apostrophe before it.
    Table 3 is the rank of each method's metric: KR's is d, KR_PCA's PCA_d, KR_SML's rank(M). ``winner`` is the
    method with the best figure, ``best`` what training chooses.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["table", "part", "link_id", "measure", *COMPARED, "winner"])
    for link in report.links:
        rows.writerow([3, "train", as_cell(link.link_id), "rank", *(method.rank or "" for method in link.methods), ""])
    for table in TABLES:
        for measure in table.measures:
            for link in report.links:
                values = figures(link, table.part, measure)
                marks = best_of(values, measure, report.options.level)
                best = "|".join(method for method, mark in zip(COMPARED, marks, strict=True) if mark)
                cells = ["" if value is None else repr(value) for value in values]
                rows.writerow([table.number, table.part, as_cell(link.link_id), measure, *cells, best])
    return out.getvalue()
