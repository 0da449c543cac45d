"""``report.html``: one page that opens anywhere, with everything it needs inside."""

from __future__ import annotations

import tempfile
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from app.evaluation.plan import COMPARED, METHODS
from app.evaluation.report import NotEvaluated, Report
from app.evaluation.summary import GEOMETRIC, JUDGED, best_of, figures
from app.evaluation.tables import COLUMNS, COUNT, LEVEL, TABLES, MeasureTable, tables_csv
from app.evaluation.words import Numbers, made, verdict


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


MOST_LEFT_OUT_OPEN = 10
MEASURES = (
    (
        "RMSE, vehicles a slot",
        "The root of the mean squared error. Large misses weigh most: a forecast 40 vehicles off counts like sixteen "
        "that are 10 off. Compare it between methods on one link, not between links of different size.",
    ),
    (
        "MARE",
        "The mean of error over count: 0.15 means that a forecast is off by 15 % of the count, each slot weighing the "
        "same, the quiet night as much as the peak. It explodes near zero, so only slots with a count of at least the "
        "floor of {floor} are in it; report.json says how many were left out.",
    ),
    (
        "WAPE",
        "The sum of all errors over the sum of all counts: the share of vehicles expected too many or too few. Busy "
        "slots weigh as much as they carry.",
    ),
    (
        "GEH",
        "The traffic engineer's own: √(2(m - c)² / (m + c)) on hourly flows m and c. A link passes when it is below "
        "{limit} in at least {share} of its slots. It is lenient at low flow; never look at it alone.",
    ),
    (
        "Coverage and width",
        "The share of counts that fell inside the stated interval, which is meant to hold {level}, and how wide the "
        "interval is. Less coverage than stated is false confidence; more, at a great width, is of little use.",
    ),
    (
        "Skill",
        "1 - RMSE over the RMSE of a simpler forecast: 10 % means a tenth less error, 0 no gain, below 0 worse. The "
        "simpler forecasts are the link's profile (its usual count at that weekday and time of day, from the training "
        "days) and the same slot last week.",
    ),
)


def page(report: Report) -> str:
    """Return the text of report.html."""
    # Not at the top: plotly comes with the reports extra. Its wheel carries the script.
    from plotly.offline import get_plotlyjs

    numbers = Numbers(report.as_json())
    n = len(report.links)
    noun = "link" if n == 1 else "links"
    return Template(_resource("page.html")).substitute(
        style=_resource("page.css"),
        title=f"{n} {noun}",
        n_links_shown=f"{numbers.span(COUNT, 'summary', 'n_links')} {noun}",
        about=_about(report),
        verdict=_paragraphs([*map(escape, report.notes), *(verdict(numbers) if n else [])]),
        link_options="".join(
            f'<option value="{i}">{escape(link.link_id)}</option>' for i, link in enumerate(report.links)
        ),
        method_options="".join(
            f'<option value="{at}"{" selected" if method == "KR_SML" else ""}>{method}</option>'
            for at, method in enumerate(METHODS)
        ),
        tables=all_tables(report, numbers),
        measures=_measures(numbers),
        made=_paragraphs(made(numbers)) if n else "",
        left_out=_left_out(report.not_evaluated, numbers),
        footer=_footer(report, numbers),
        data=_inside_script(report.to_text()),
        plotly=get_plotlyjs(),
        script=_resource("page.js"),
    )


def _about(report: Report) -> str:
    spans = {(link.train_from, link.train_to, link.test_from, link.test_to) for link in report.links}
    days = "Days as each link has them."
    if len(spans) == 1:
        (train_from, train_to, test_from, test_to) = next(iter(spans))
        days = f"Learnt from {train_from} to {train_to}, tested from {test_from} to {test_to}, local days."
    return f"{escape(', '.join(report.files))}. {days} Methods: {', '.join(COMPARED)}, one slot ahead."


def _measures(numbers: Numbers) -> str:
    values = {
        "floor": numbers.span(COUNT, "options", "mare_floor"),
        "limit": numbers.span(COUNT, "options", "geh_limit"),
        "share": numbers.span(LEVEL, "options", "geh_share"),
        "level": numbers.span(LEVEL, "options", "level"),
    }
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{text.format(**values)}</dd>" for name, text in MEASURES) + "</dl>"


def _left_out(links: list[NotEvaluated], numbers: Numbers) -> str:
    if not links:
        return "<p>Every link asked for was evaluated.</p>"
    rows = "".join(f"<li><strong>{escape(link.link_id)}</strong>: {escape(link.reason)}</li>" for link in links)
    is_open = " open" if len(links) <= MOST_LEFT_OUT_OPEN else ""
    total = numbers.span(COUNT, "summary", "n_not_evaluated")
    name = "link" if len(links) == 1 else "links"
    return f"<details{is_open}><summary>{total} {name}, and why</summary><ul>{rows}</ul></details>"


def _footer(report: Report, numbers: Numbers) -> str:
    seconds = numbers.span(COUNT, "seconds")
    return (
        f"Flowcast {escape(report.flowcast_version)}, {seconds} s. Fingerprint of the counts: "
        f"<code>{escape(report.data_fingerprint)}</code>."
    )


def _paragraphs(texts: list[str]) -> str:
    return "\n".join(f"<p>{text}</p>" for text in texts)


def _resource(name: str) -> str:
    return files("app.evaluation").joinpath(name).read_text(encoding="utf-8")


def _inside_script(text: str) -> str:
    """Keep JSON from ending the script element it is in, whatever its strings hold."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


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
