"""The tables of ``report.html``."""

from __future__ import annotations

from html import escape

from app.evaluation.numbers import Numbers
from app.evaluation.plan import COMPARED
from app.evaluation.report import Report
from app.evaluation.summary import GEOMETRIC, JUDGED, best_of, figures
from app.evaluation.tables import COLUMNS, COUNT, TABLES, MeasureTable


def all_tables(report: Report, numbers: Numbers) -> str:
    """Return tables 3 to 8."""
    return "\n".join([_rank_table(report, numbers), *(_measure_table(table, report, numbers) for table in TABLES)])


def _rank_table(report: Report, numbers: Numbers) -> str:
    head = (
        '<tr><th scope="col">link</th><th scope="col">d</th><th scope="col">rank(M)</th><th scope="col">PCA_d</th></tr>'
    )
    rows = []
    for i, link in enumerate(report.links):
        cells = "".join(numbers.cell(COUNT, "links", i, key) for key in ("d", "rank", "pca_d"))
        rows.append(f'<tr><th scope="row">{escape(link.link_id)}</th>{cells}</tr>')
    caption = "Table 3: inputs d, rank of the metric that KR_SML learnt, and principal components that KR_PCA kept"
    return _framed("Table 3", caption, head, "".join(rows), "")


def _measure_table(table: MeasureTable, report: Report, numbers: Numbers) -> str:
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(COMPARED)}" class="group">{escape(COLUMNS[measure].heading)}</th>'
        for measure in table.measures
    )
    methods = "".join(
        f'<th scope="col"{_group(at)}>{method}</th>' for _ in table.measures for at, method in enumerate(COMPARED)
    )
    head = f'<tr><th scope="col" rowspan="2">link</th>{groups}</tr><tr>{methods}</tr>'
    body = "".join(_link_row(i, table, report, numbers) for i in range(len(report.links)))
    foot = _mean_row(table, numbers) + _wins_row(table, numbers)
    return _framed(f"Table {table.number}", f"Table {table.number}: {table.caption}", head, body, foot)


def _link_row(i: int, table: MeasureTable, report: Report, numbers: Numbers) -> str:
    link, cells = report.links[i], []
    for measure in table.measures:
        marks = best_of(figures(link, table.part, measure), measure, report.options.level)
        for at, best in enumerate(marks):
            path = ("links", i, "methods", at, table.part, measure)
            cells.append(numbers.cell(COLUMNS[measure].style, *path, best=best))
    return f'<tr><th scope="row">{escape(link.link_id)}</th>{"".join(cells)}</tr>'


def _mean_row(table: MeasureTable, numbers: Numbers) -> str:
    """Return means over links: geometric ones where ratios matter."""
    cells = []
    for measure in table.measures:
        kind = "geometric_mean" if measure in GEOMETRIC else "mean"
        for at in range(len(COMPARED)):
            path = ("summary", "methods", at, kind, table.part, measure)
            cells.append(numbers.cell(COLUMNS[measure].style, *path))
    name = "geometric mean" if set(table.measures) <= set(GEOMETRIC) else "mean"
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _wins_row(table: MeasureTable, numbers: Numbers) -> str:
    cells = []
    for measure in table.measures:
        for at in range(len(COMPARED)):
            path = ("summary", "methods", at, "wins", table.part, measure)
            cells.append(numbers.cell(COUNT, *path) if measure in JUDGED else "<td></td>")
    return f'<tr><th scope="row">best on … links</th>{"".join(cells)}</tr>'


def _group(at: int) -> str:
    return ' class="group"' if at == 0 else ""


def _framed(name: str, caption: str, head: str, body: str, foot: str) -> str:
    """Wrap a table so that it scrolls by itself on a narrow screen, by keyboard too."""
    end = f"<tfoot>{foot}</tfoot>" if foot else ""
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{body}</tbody>{end}</table></div>"
    )
