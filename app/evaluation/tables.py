"""The tables of the report, in ``report.html`` and in ``tables.csv``."""

from __future__ import annotations

import csv
import io
import json
from html import escape
from typing import Any, NamedTuple

from app.evaluation.measures import GEOMETRIC, JUDGED, Part, best_of, figures
from app.evaluation.plan import COMPARED
from app.evaluation.report import Report
from app.http.csv import as_cell
from model.error_measures import GEH_LIMIT

COUNT, VEHICLES, SHARE, RATIO, LEVEL = "count", "vehicles", "share", "ratio", "level"


class Column(NamedTuple):
    """The heading of a measure, and the format of its figures."""

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


def rounded(value: float | None, style: str) -> str:
    """Return a figure as text, rounded."""
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


class Numbers:
    """A report as JSON, from which the page takes every number it shows.

    A number is written as an element with ``data-path``, where it is in ``report.json``, and
    ``data-value``, what it is there at full precision; its text is rounded.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report

    def at(self, path: str) -> Any:
        """Return the value at a path such as ``links.0.d``."""
        value: Any = self._report
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value

    def span(self, path: str, style: str = COUNT) -> str:
        """Return a number as an element within a sentence."""
        return f"<span {self._attributes(path)}>{escape(rounded(self.at(path), style))}</span>"

    def cell(self, path: str, style: str = COUNT, *, best: bool = False) -> str:
        """Return a number as a cell of a table; the best of its row in bold, and marked for screen readers."""
        text = escape(rounded(self.at(path), style))
        if best:
            note = '<span class="visually-hidden"> best</span>'
            return f'<td class="best" {self._attributes(path)}><strong>{text}</strong>{note}</td>'
        return f"<td {self._attributes(path)}>{text}</td>"

    def _attributes(self, path: str) -> str:
        return f'data-path="{escape(path)}" data-value="{escape(json.dumps(self.at(path)))}"'


def tables_html(report: Report, numbers: Numbers) -> str:
    """Return tables 3 to 8."""
    return "\n".join([_rank_table(report, numbers), *(_measure_table(table, report, numbers) for table in TABLES)])


def _rank_table(report: Report, numbers: Numbers) -> str:
    head = "<tr>" + "".join(f'<th scope="col">{name}</th>' for name in ("link", "d", "rank(M)", "PCA_d")) + "</tr>"
    rows = [
        _row(escape(link.link_id), [numbers.cell(f"links.{i}.{key}") for key in ("d", "rank", "pca_d")])
        for i, link in enumerate(report.links)
    ]
    caption = "Table 3: inputs d, rank of the metric that KR_SML learnt, and principal components that KR_PCA kept"
    return _framed("Table 3", caption, head, "".join(rows), "")


def _measure_table(table: MeasureTable, report: Report, numbers: Numbers) -> str:
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(COMPARED)}" class="group">{escape(COLUMNS[measure].heading)}</th>'
        for measure in table.measures
    )
    columns = [(measure, at) for measure in table.measures for at in range(len(COMPARED))]
    begins_group = ' class="group"'
    methods = "".join(f'<th scope="col"{"" if at else begins_group}>{COMPARED[at]}</th>' for _, at in columns)
    head = f'<tr><th scope="col" rowspan="2">link</th>{groups}</tr><tr>{methods}</tr>'
    rows = []
    for i, link in enumerate(report.links):
        best = {
            measure: best_of(figures(link, table.part, measure), measure, report.options.level)
            for measure in table.measures
        }
        cells = [
            numbers.cell(
                f"links.{i}.methods.{at}.{table.part}.{measure}", COLUMNS[measure].style, best=best[measure][at]
            )
            for measure, at in columns
        ]
        rows.append(_row(escape(link.link_id), cells))
    means, wins = [], []
    for measure, at in columns:
        summary, kind = f"summary.methods.{at}", "geometric_mean" if measure in GEOMETRIC else "mean"
        means.append(numbers.cell(f"{summary}.{kind}.{table.part}.{measure}", COLUMNS[measure].style))
        wins.append(numbers.cell(f"{summary}.wins.{table.part}.{measure}") if measure in JUDGED else "<td></td>")
    mean_name = "geometric mean" if set(table.measures) <= set(GEOMETRIC) else "mean"
    foot = _row(mean_name, means) + _row("best on … links", wins)
    return _framed(f"Table {table.number}", f"Table {table.number}: {table.caption}", head, "".join(rows), foot)


def _row(heading: str, cells: list[str]) -> str:
    return f'<tr><th scope="row">{heading}</th>{"".join(cells)}</tr>'


def _framed(name: str, caption: str, head: str, body: str, foot: str) -> str:
    """Wrap a table so that it scrolls by itself on a narrow screen, by keyboard too."""
    end = f"<tfoot>{foot}</tfoot>" if foot else ""
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{body}</tbody>{end}</table></div>"
    )


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
                winner = "|".join(method for method, mark in zip(COMPARED, marks, strict=True) if mark)
                cells = ["" if value is None else repr(value) for value in values]
                rows.writerow([table.number, table.part, as_cell(link.link_id), measure, *cells, winner])
    return out.getvalue()
