"""The page as text, and the page in a real browser."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, astuple, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.evaluation.days import Choice
from app.evaluation.evaluate import make_report
from app.evaluation.page import write_report
from app.evaluation.report import MethodForecasts, NotEvaluated, ScoredSlots
from app.evaluation.tables import Numbers, tables_html
from tests.support.evaluation import MARKUP, PLAN
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.journey

# More slots than a function of a script can have arguments: counts, and the upper ends of seven methods' intervals.
TIMES = 86


@pytest.fixture(scope="module")
def marked_up(odd_link, tmp_path_factory) -> Path:
    """Return a report on months of slots in which every text of users is markup."""
    result = odd_link.result
    methods = [
        replace(method, forecasts=MethodForecasts(*(values * TIMES for values in astuple(method.forecasts))))
        for method in result.methods
    ]
    slots = ScoredSlots(*(values * TIMES for values in astuple(result.test_slots)))
    assert (1 + len(methods)) * len(slots.counts) > 130_000
    done = odd_link._replace(result=replace(result, methods=methods, test_slots=slots))
    choice = Choice([], [NotEvaluated(f"{MARKUP}2", f"reason {MARKUP}")], [f"note {MARKUP}"])
    folder = tmp_path_factory.mktemp("marked")
    plan = replace(PLAN, links=MARKUP)
    write_report(folder, *make_report([f"in/{MARKUP}"], plan, 15, choice, [done], 1.0))
    return folder


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def at(report: Any, path: str) -> Any:
    for key in path.split("."):
        report = report[int(key) if isinstance(report, list) else key]
    return report


class TestText:
    def test_every_number_equals_the_report(self, city_report, city_json):
        page = (city_report / "report.html").read_text()
        numbers = [element for _, element in Elements(page).found if "data-path" in element]
        assert len(numbers) > 2 * (3 + 2 * 4 * 5)
        for number in numbers:
            assert json.loads(number["data-value"]) == at(city_json, number["data-path"]), number

    def test_every_figure_in_the_tables_has_its_path(self, city_report):
        page = (city_report / "report.html").read_text()
        cells = re.findall(r"<td[^>]*>(?:<strong>)?[^<]+", page)
        assert cells
        assert not [cell for cell in cells if "data-path" not in cell]

    def test_the_data_inside_is_the_report(self, city_report, city_json):
        page = (city_report / "report.html").read_text()
        inside = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL)
        assert inside
        assert json.loads(inside[1]) == city_json

    def test_tables_have_captions_and_scopes_and_mark_the_best_in_words(self, city_report, city_json):
        page = (city_report / "report.html").read_text()
        tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
        assert [re.search(r"<caption>Table (\d)", table)[1] for table in tables] == list("345678")
        elements = Elements("".join(tables)).found
        assert all("scope" in attributes for tag, attributes in elements if tag == "th")
        test_error = tables[2]
        rows = re.findall(r"<tr>.*?</tr>", test_error.split("<tbody>")[1].split("</tbody>")[0])
        assert len(rows) == 2
        for row in rows:
            assert row.count('class="best"') == row.count("> best</span>") == row.count("<strong>") >= 2

    def test_words_are_of_this_run(self, city_report, city_json):
        text = re.sub(r"<[^>]+>", "", (city_report / "report.html").read_text().split("<h2")[2])
        page = re.sub(r"<[^>]+>", "", (city_report / "report.html").read_text().split("<form")[0])
        wins = city_json["summary"]["methods"][3]["wins"]["test"]["rmse"]
        assert f"On {wins} of 2 links KR_SML had the smallest test RMSE" in page
        ranking = city_json["summary"]["ranking"]
        first = page.split("Result of this run")[1].split("KR_SML has place")
        assert f"The best method over all 2 links is {ranking[0]}" in first[0]
        assert first[1].startswith(f" {ranking.index('KR_SML') + 1} of 7, with ")
        assert "No link was left out." in first[1]
        assert text

    def test_explains_how_it_was_made(self, city_report):
        page = re.sub(r"<[^>]+>", "", (city_report / "report.html").read_text())
        assert "Protocol “paper”" in page
        assert "Neighbours k: KR 8, KR_PCA 8, MLKR 8, KR_SML 20" in page
        assert "Chosen on the last 2 of the training days" in page
        assert "fewer than the product's usual 7" in page
        assert "Training figures are leave-one-out" in page

    def test_what_users_wrote_is_text_and_no_markup(self, marked_up):
        page = (marked_up / "report.html").read_text()
        assert not [element for element in Elements(page).found if element[0] == "img"]
        assert "<img src=x" not in page.split("Plotly")[0]
        assert page.count("&lt;/script&gt;&lt;img src=x") >= 5

    def test_an_evaluation_of_nothing_still_has_its_tables(self, marked_up):
        choice = Choice([], [NotEvaluated("Ba", "no count")], [])
        report, pictures = make_report(["a.csv"], PLAN, 15, choice, [], 1.0)
        write_report(marked_up / "empty", report, pictures)
        assert "Ba" in (marked_up / "empty" / "report.html").read_text()
        assert tables_html(report, Numbers(asdict(report))).count("<table>") == 6


class Watched:
    """A page in the browser, with its requests and errors."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page, self.requests, self.complaints = page, [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.goto(file.as_uri())
        page.wait_for_selector("#metric .main-svg")
        page.wait_for_selector("#figure4 .main-svg")


@pytest.fixture(scope="module")
def watch(browser) -> Iterator[Any]:
    contexts = []

    def open_page(file: Path, width: int = 1400, scheme: str = "light", **options: Any) -> Watched:
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, **options))
        contexts[-1].set_default_timeout(1000 * WAIT_SECONDS)
        return Watched(contexts[-1].new_page(), file)

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def city_page(watch, city_report) -> Watched:
    return watch(city_report / "report.html")


@pytest.fixture
def seen(city_page) -> Watched:
    """Return the city's report with its initial selection: the first link, all days and the metric of KR_SML."""
    city_page.page.select_option("#link", index=0)
    city_page.page.select_option("#metric-method", "3")
    return city_page


@pytest.fixture(scope="module")
def marked_up_page(watch, marked_up) -> Watched:
    return watch(marked_up / "report.html")


class TestInTheBrowser:
    def test_requests_nothing_but_itself_and_logs_nothing(self, seen, city_report):
        for control in ("link", "day", "metric-method"):
            for value in seen.page.eval_on_selector_all(f"#{control} option", "all => all.map(o => o.value)"):
                seen.page.select_option(f"#{control}", value)
        seen.page.wait_for_load_state("networkidle")
        assert seen.requests == [(city_report / "report.html").as_uri()]
        assert seen.complaints == []

    def test_offers_no_way_to_send_the_counts_elsewhere(self, seen):
        offered = seen.page.eval_on_selector_all(".modebar-btn", "all => all.map(b => b.dataset.title)")
        assert "Download plot as a PNG" in offered
        assert not [title for title in offered if "hare" in title or "loud" in title]

    def test_draws_months_of_slots(self, marked_up_page):
        drawn = marked_up_page.page.evaluate("document.getElementById('figure4').data.map(t => t.y.length)")
        assert set(drawn) == {2 * 96 * TIMES}
        assert marked_up_page.complaints == []

    def test_draws_a_panel_a_method_of_counts_forecasts_and_interval(self, seen, city_json):
        page = seen.page
        traces = page.evaluate("document.getElementById('figure4').data.map(t => [t.xaxis, t.mode, t.y, t.fill])")
        assert [trace[0] for trace in traces] == [f"x{n}" if n > 1 else "x" for n in range(1, 8) for _ in range(4)]
        slots, methods = city_json["links"][0]["test_slots"], city_json["links"][0]["methods"]
        for n, method in enumerate(methods):
            lower, upper, counts, expected = traces[4 * n : 4 * n + 4]
            assert counts[1:3] == ["lines", slots["counts"]]
            assert expected[1:3] == ["markers", method["forecasts"]["expected"]]
            assert (lower[2], upper[2]) == (method["forecasts"]["lower"], method["forecasts"]["upper"])
            assert upper[3] == "tonexty"
        domains = page.evaluate(
            "['xaxis', 'xaxis2', 'xaxis3', 'xaxis4'].map(a => document.getElementById('figure4').layout[a].domain)"
        )
        assert domains == sorted(domains)
        assert all(left[1] < right[0] for left, right in pairwise(domains))  # side by side

    def test_the_keyboard_switches_the_link_in_both_pictures(self, seen, city_json):
        page = seen.page
        page.focus("#link")
        page.keyboard.press("ArrowDown")
        second = city_json["links"][1]
        assert f"Link {second['link_id']}:" in page.inner_text("#link-days")
        assert second["zone"] in page.inner_text("#link-days")
        assert second["link_id"] in page.get_attribute("#figure4", "aria-label")
        weights = page.evaluate("document.getElementById('metric').data[0].y")
        assert weights == second["methods"][3]["metric"]["lag_weights"]
        assert f"rank {second['rank']} of 12" in page.inner_text("#metric-words")
        eigenvalues = page.evaluate("document.getElementById('metric').data[1].y")
        assert eigenvalues == second["methods"][3]["metric"]["eigenvalues"]

    def test_a_day_may_be_looked_at_alone(self, seen):
        page = seen.page
        page.select_option("#day", index=2)
        layout = page.evaluate("document.getElementById('figure4').layout.xaxis")
        assert layout["range"] == [96, 191]
        assert layout["ticktext"][0] == "00:00"

    @pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (800, "light"), (1400, "dark"), (3200, "light")])
    def test_fits_every_width_and_its_text_stands_out(self, watch, city_report, width, scheme):
        seen = watch(city_report / "report.html", width=width, scheme=scheme)
        page = seen.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink, paper = (
            page.evaluate(f"getComputedStyle(document.documentElement).{name}") for name in ("color", "backgroundColor")
        )
        assert contrast(ink, paper) > 7.0
        drawn = page.evaluate("document.getElementById('figure4').layout.font.color")
        assert drawn == ("#1b2026" if scheme == "light" else "#e7eaee")
        assert seen.complaints == []

    def test_without_scripts_it_names_the_pictures(self, browser, city_report):
        context = browser.new_context(java_script_enabled=False)
        context.set_default_timeout(1000 * WAIT_SECONDS)
        page = context.new_page()
        page.goto((city_report / "report.html").as_uri())
        assert "need JavaScript" in page.inner_text("main")
        assert page.locator("table").count() == 6
        context.close()

    def test_markup_in_a_links_name_is_shown_as_it_is(self, marked_up_page):
        page = marked_up_page.page
        assert page.inner_text("#link option") == MARKUP
        assert MARKUP in page.inner_text("#link-days")
        assert page.locator("img").count() == 0
        assert marked_up_page.complaints == []


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours by the Web accessibility guidelines."""
    lights = []
    for colour in (first, second):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)
