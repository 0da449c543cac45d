"""``report.html``, one page that needs no other file and no network, and the folder of a report."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from app.evaluation.findings import made, verdict
from app.evaluation.plan import COMPARED, METHODS
from app.evaluation.report import Report
from app.evaluation.tables import LEVEL, Numbers, tables_csv, tables_html

MOST_LEFT_OUT_OPEN = 10


def page(report: Report) -> str:
    """Return the text of report.html."""
    # Not at the top: plotly comes with the reports extra. Its wheel carries the script.
    from plotly.offline import get_plotlyjs

    numbers = Numbers(asdict(report))
    n = len(report.links)
    noun = "link" if n == 1 else "links"
    return Template(_resource("page.html")).substitute(
        style=_resource("page.css"),
        title=f"{n} {noun}",
        n_links_shown=f"{numbers.span('summary.n_links')} {noun}",
        files=escape(", ".join(report.files)),
        days=_days(report),
        methods=", ".join(COMPARED),
        verdict=_paragraphs([*map(escape, report.notes), *(verdict(numbers) if n else [])]),
        link_options="".join(
            f'<option value="{i}">{escape(link.link_id)}</option>' for i, link in enumerate(report.links)
        ),
        method_options="".join(
            f'<option value="{at}"{" selected" if method == "KR_SML" else ""}>{method}</option>'
            for at, method in enumerate(METHODS)
        ),
        tables=tables_html(report, numbers),
        mare_floor=numbers.span("options.mare_floor"),
        geh_limit=numbers.span("options.geh_limit"),
        geh_share=numbers.span("options.geh_share", LEVEL),
        level=numbers.span("options.level", LEVEL),
        made=_paragraphs(made(numbers)) if n else "",
        left_out=_left_out(report, numbers),
        version=escape(report.flowcast_version),
        seconds=numbers.span("seconds"),
        fingerprint=report.data_fingerprint,
        data=_inside_script(report.to_text()),
        plotly=get_plotlyjs(),
        script=_resource("page.js"),
    )


def _days(report: Report) -> str:
    spans = {(link.train_from, link.train_to, link.test_from, link.test_to) for link in report.links}
    if len(spans) == 1:
        return "Learnt from {} to {}, tested from {} to {}, local days.".format(*spans.pop())
    return "Days as each link has them."


def _left_out(report: Report, numbers: Numbers) -> str:
    links = report.not_evaluated
    if not links:
        return "<p>Every requested link was evaluated.</p>"
    rows = "".join(f"<li><strong>{escape(link.link_id)}</strong>: {escape(link.reason)}</li>" for link in links)
    is_open = " open" if len(links) <= MOST_LEFT_OUT_OPEN else ""
    noun = "link" if len(links) == 1 else "links"
    total = numbers.span("summary.n_not_evaluated")
    return f"<details{is_open}><summary>{total} {noun}, and why</summary><ul>{rows}</ul></details>"


def _paragraphs(texts: list[str]) -> str:
    return "\n".join(f"<p>{text}</p>" for text in texts)


def _resource(name: str) -> str:
    return files("app.evaluation").joinpath(name).read_text(encoding="utf-8")


def _inside_script(text: str) -> str:
    """Escape what could end the script element that JSON is in, whatever its strings hold."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def require_folder(output: Path) -> None:
    """Make a report's folder; raise ``OSError`` for one that cannot be written to, before the work begins."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=output):
        pass


def write_report(output: Path, report: Report, pictures: dict[str, bytes]) -> None:
    """Write report.html, report.json, tables.csv and a picture a link; remove an older report's pictures.

    Everything is written beside its place first, so that an interruption leaves no half report.
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
