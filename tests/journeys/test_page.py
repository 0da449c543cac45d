"""The operators' page in a real browser, against a real service with the sample city."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
import pytest

from app.demo.city import City, links_geojson, sample_city
from tests.support.services import ADMIN_KEY, Service, running_service
from tests.support.waiting import TRAINING_SECONDS, wait_until

SLOTS, DAYS, POSTED = 96, 16, 14
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
WORSE = {"lags": 1, "n_neighbors": 1, "held_out_days": 3}
STORED = "flowcast.key"
WAIT = 90_000  # milliseconds; conditions are waited for, so that a slow machine only takes longer
COLUMNS = [
    "Link", "Attention", "Expected", "Interval", "Change", "RMSE", "MARE", "GEH<5", "Feed age", "Detector", "Method",
]  # fmt: skip
READY = "() => document.querySelector('main .panel') && !document.querySelector('main .waiting')"
MACHINE = "ERR_NETWORK_CHANGED"  # Chromium drops what is under way when the machine gains or loses an interface
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> =1+1"


@pytest.fixture(scope="module")
def city() -> City:
    return sample_city(links=3, days=DAYS, seed=3)


class CityService:
    """A service with a city, and where its counts stand."""

    def __init__(self, service: Service, city: City) -> None:
        self.service, self.city, self.next = service, city, POSTED * SLOTS
        self.ids = sorted(city.counts)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.service.request(method, path, body)
        assert status < 300, (path, answer)
        return answer

    def post(self, first: int, last: int, link_ids: list[str] | None = None) -> None:
        rows = [
            {"link_id": link_id, "slot_start": self.start(i), "count": int(self.city.counts[link_id][i])}
            for link_id in link_ids or self.ids
            for i in range(first, last)
            if self.city.counts[link_id][i] == self.city.counts[link_id][i]
        ]
        self.request("POST", "/v1/counts", {"counts": rows})

    def start(self, i: int) -> str:
        return (self.city.grid.start(self.city.first_slot) + i * timedelta(minutes=15)).isoformat()

    def move_on(self, slots: int = 1, link_ids: list[str] | None = None) -> None:
        """Post so many slots, one after another, of all links or some."""
        for _ in range(slots):
            self.post(self.next, self.next + 1, link_ids)
            self.next += 1

    def retrain(self, **body: Any) -> None:
        run = self.request("POST", "/v1/admin/retrain", {"links": "all", "algorithm": "KR_SML", **body})

        def is_over() -> bool:
            shown = self.request("GET", f"/v1/admin/retrain/{run['run_id']}")
            assert shown["state"] not in ("failed", "cancelled"), shown
            return bool(shown["state"] == "succeeded")

        wait_until(is_over, seconds=TRAINING_SECONDS)

    def version(self, link_id: str) -> int | None:
        return self.request("GET", f"/v1/links/{link_id}/forecast")["forecasts"][0]["model_version"]


@pytest.fixture(scope="module")
def city_service(tmp_path_factory: pytest.TempPathFactory, city: City) -> Iterator[CityService]:
    folder = tmp_path_factory.mktemp("city_service")
    url = f"sqlite:///{folder}/flowcast.db"
    with running_service(url, folder, worker=True, FLOWCAST_RETRAIN_JOBS="1") as service:
        city_service = CityService(service, city)
        city_service.request("POST", "/v1/links", links_geojson(city))
        city_service.post(0, city_service.next)
        city_service.retrain(algorithm="KR", parameters=WORSE, activate="always")
        city_service.move_on(12)
        yield city_service


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    """Share one window, because Chromium takes longer to open one than the page takes to load.

    A session belongs to a tab, so that visitors know nothing of each other.
    """
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(WAIT)
    context.new_page()  # a window without tabs would close
    yield context
    context.close()


class BrowserTab:
    """One visitor's tab; whatever goes wrong in it is kept."""

    def __init__(self, window: Any, address: str, key: str | None) -> None:
        self.address = address
        self.errors: list[str] = []
        self.hosts: set[str | None] = set()
        self.page = window.new_page()
        if key is not None:
            self.page.add_init_script(f"sessionStorage.setItem({json.dumps(STORED)}, {json.dumps(key)})")
        self.page.on("console", self.record_error)
        self.page.on("pageerror", lambda problem: self.errors.append(str(problem)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname))

    def record_error(self, message: Any) -> None:
        if message.type == "error" and MACHINE not in message.text:
            self.errors.append(message.text)

    def go(self, view: str) -> Any:
        for _ in range(5):  # files that the machine's network lost are asked for again, as a visitor would
            self.page.goto(f"{self.address}{view}")
            if self.page.evaluate("document.querySelector('header.top') !== null"):
                break
        return self.page


@pytest.fixture
def visit(window: Any, city_service: CityService) -> Iterator[Callable[..., BrowserTab]]:
    """Open the page; assert at the end that it had no error and sent no request elsewhere."""
    visits = []

    def open_page(key: str | None = ADMIN_KEY) -> BrowserTab:
        visits.append(BrowserTab(window, f"http://127.0.0.1:{city_service.service.port}/", key))
        return visits[-1]

    yield open_page
    for one in visits:
        one.page.close()
        assert one.errors == []
        assert one.hosts <= {"127.0.0.1"}


def make_key(city_service: CityService, *scopes: str) -> str:
    return str(city_service.request("POST", "/v1/admin/keys", {"name": "-".join(scopes), "scopes": scopes})["key"])


def heading(page: Any, text: str) -> None:
    page.get_by_role("heading", level=1, name=text, exact=True).wait_for()


def row(page: Any, link_id: str) -> Any:
    return page.locator(f'tr[data-id="{link_id}"]')


def point_at(page: Any, link_id: str) -> tuple[float, float]:
    """Move the pointer over the map until it is on a link; return where that is."""
    page.wait_for_function("() => document.querySelector('.city-map canvas.links')?.width")
    page.locator(".city-map").scroll_into_view_if_needed()
    # The map is drawn with the next frame: a place counts if the link is still there after two.
    search = """async id => {
      const map = document.querySelector('.city-map');
      const tip = document.querySelector('.map-tip');
      const isAt = (x, y) => {
        map.dispatchEvent(new MouseEvent('mousemove', { clientX: x, clientY: y, bubbles: true }));
        return !tip.hidden && tip.textContent.includes(`(${id})`);
      };
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      await frame().then(frame);
      const { left, top, right, bottom } = map.getBoundingClientRect();
      for (let y = top + 4; y < bottom; y += 4)
        for (let x = left + 4; x < right - 60; x += 8)
          if (isAt(x, y)) {
            await frame().then(frame);
            return isAt(x, y) ? [x, y] : null;
          }
      return null;
    }"""
    x, y = wait_until(lambda: page.evaluate(search, link_id))
    page.mouse.move(x, y)
    return x, y


class TestSignIn:
    def test_with_a_key_that_stays_in_the_tab(self, city_service, visit):
        visitor = visit(key=None)
        page = visitor.go("#/network")
        page.get_by_label("API key").fill("fc_000000000000_wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("This key is unknown, expired or revoked.").wait_for()
        assert [error for error in visitor.errors if "401" not in error] == []
        visitor.errors.clear()  # the browser's own word for the refusal
        page.get_by_label("API key").fill(ADMIN_KEY)
        page.get_by_label("API key").press("Enter")
        row(page, city_service.ids[0]).wait_for()
        kept = page.evaluate(
            "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie, location.href]"
        )
        assert [ADMIN_KEY in text for text in kept] == [True, False, False, False]
        page.reload()
        row(page, city_service.ids[0]).wait_for()  # the session goes on
        other = page.context.new_page()
        other.goto(visitor.address)
        other.get_by_label("API key").wait_for()  # another tab has no key
        other.close()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("API key").wait_for()
        assert page.evaluate("sessionStorage.length") == 0

    def test_a_read_key_sees_what_it_may_do_until_it_is_revoked(self, city_service, visit):
        made = city_service.request("POST", "/v1/admin/keys", {"name": "passing", "scopes": ["read"]})
        visitor = visit(made["key"])
        page = visitor.go("#/network")
        row(page, city_service.ids[0]).wait_for()
        assert page.locator("nav[aria-label=Views] a").all_inner_texts() == ["Network", "Data"]
        page.goto(visitor.address + f"#/links/{city_service.ids[0]}")
        page.get_by_role("heading", name="Trained models").wait_for()
        page.locator("tr.active").wait_for()
        assert [name for name in page.locator("main button").all_inner_texts() if name != "CSV"] == []
        assert page.get_by_text("Retrain").count() == page.get_by_text("History of activations").count() == 0
        page.evaluate("location.hash = '#/data'")
        page.get_by_role("heading", name="Detectors").wait_for()
        assert page.get_by_text("Import a file").count() == 0
        page.evaluate("location.hash = '#/retrain'")
        page.get_by_text("This key may not retrain links").wait_for()
        page.evaluate("location.hash = '#/network'")
        row(page, city_service.ids[0]).wait_for()
        assert visitor.errors == []
        city_service.service.request("DELETE", f"/v1/admin/keys/{made['key_id']}")
        city_service.move_on()
        page.get_by_text("Signed out:").wait_for()
        visitor.errors[:] = [error for error in visitor.errors if "401" not in error]

    def test_a_key_that_may_only_bring_counts_sees_just_that(self, city_service, visit):
        page = visit(make_key(city_service, "ingest")).go("#/data")
        page.get_by_text("Import a file").wait_for()
        page.get_by_text("This key may not see counts").wait_for()
        assert page.get_by_text("Create links that do not exist").count() == 0
        assert page.locator("nav[aria-label=Views] a").all_inner_texts() == ["Data"]


class TestNetwork:
    def test_map_table_and_figures(self, city_service, visit):
        visitor = visit()
        page = visitor.go("#/network")
        page.locator(".state.ok").first.wait_for()
        assert page.locator("tbody tr").count() == len(city_service.ids)
        page.locator(f'.city-map[data-drawn="{len(city_service.ids)}"]').wait_for()
        names = [name.strip("▲▼ \n") for name in page.locator("thead th").all_inner_texts()]
        assert names == COLUMNS
        first = city_service.request("GET", f"/v1/links/{city_service.ids[0]}/forecast")["forecasts"][0]
        cells = row(page, city_service.ids[0]).locator("td").all_inner_texts()
        assert cells[1] == f"{first['expected_count']:.0f}"
        assert cells[-1] == "KR v1"
        assert "Europe/Berlin" in page.locator(".summary").inner_text()
        page.get_by_label("Colour by").select_option("accuracy")
        page.get_by_text("95 % and more").wait_for()
        page.get_by_label("Search").fill(city_service.ids[1])
        page.get_by_text("1 of 3 links").wait_for()
        assert page.locator("tbody tr").count() == 1
        assert re.search(rf"#/network\?q={city_service.ids[1]}&colour=accuracy$", page.url)
        page.reload()  # the address contains the whole state
        page.get_by_text("1 of 3 links").wait_for()
        assert page.get_by_label("Colour by").input_value() == "accuracy"
        page.get_by_label("Search").fill("nobody")
        page.get_by_role("button", name="Show all links").click()
        page.get_by_text("3 links", exact=True).wait_for()
        page.get_by_role("button", name="Expected").click()
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("Expected")
        shown = [int(row(page, link_id).locator("td").nth(1).inner_text()) for link_id in
                 page.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.id)")]  # fmt: skip
        assert shown == sorted(shown, reverse=True)
        page.get_by_role("button", name="Copy links as CSV").click()
        page.get_by_text("Copied 3 rows of links as CSV.").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.splitlines()[0].startswith("link,attention,expected_count,interval,change,rmse")
        assert len(copied.splitlines()) == 4

    def test_new_counts_are_seen_without_reloading_unless_the_tab_is_hidden(self, city_service, visit):
        page = visit().go("#/network")
        page.locator(".live.live", has_text="Live").wait_for()
        before = page.locator(".summary").inner_text()
        page.evaluate("window.sameDocument = true")
        city_service.move_on()
        page.wait_for_function("before => document.querySelector('.summary').textContent !== before", arg=before)
        assert page.evaluate("window.sameDocument")
        # A hidden tab closes its stream, and catches up when it is shown again.
        show = """isHidden => {
          Object.defineProperty(document, 'hidden', { configurable: true, get: () => isHidden });
          document.dispatchEvent(new Event('visibilitychange'));
        }"""
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/events")):
            page.evaluate(show, True)
        before = page.locator(".summary").inner_text()
        city_service.move_on()
        with page.expect_request("**/v1/events"):
            page.evaluate(show, False)
        page.wait_for_function("before => document.querySelector('.summary').textContent !== before", arg=before)

    def test_a_dead_feed_turns_visible(self, city_service, visit):
        page = visit().go("#/network")
        page.locator(".state.ok").first.wait_for()
        dead, *alive = reversed(city_service.ids)
        first = city_service.next
        city_service.move_on(8, alive)
        page.get_by_role("button", name="1 dead feed").press("Enter")
        page.get_by_text("1 of 3 links").wait_for()
        assert "dead feed" in page.evaluate("document.activeElement.textContent")  # to press it again
        assert page.locator("tbody tr").get_attribute("data-id") == dead
        assert "no count for" in row(page, dead).inner_text()
        point_at(page, dead)
        assert "Dead feed" in page.locator(".map-tip").inner_text()
        page.get_by_role("button", name="1 dead feed").click()
        assert page.locator("tbody tr").first.get_attribute("data-id") == dead  # what needs attention comes first
        city_service.post(first, city_service.next, [dead])
        page.get_by_role("button", name="0 dead feed").wait_for()

    def test_a_hostile_name_is_text(self, city_service, visit):
        city_service.request("PUT", "/v1/links/hostile", {"name": HOSTILE, "zone": "Europe/Berlin"})
        try:
            visitor = visit()
            page = visitor.go("#/network")
            assert row(page, "hostile").locator(".name").inner_text() == HOSTILE
            page.get_by_text("1 link has no place").click()  # it is listed, and not drawn
            page.locator(".unplaced").get_by_role("link", name=HOSTILE).wait_for()
            for view in ("#/links/hostile", "#/data/hostile"):
                page.goto(visitor.address + view)
                heading(page, HOSTILE)
            page.goto(visitor.address + "#/retrain?links=hostile")
            page.get_by_label("Some links").wait_for()
            assert page.locator(".run-form").get_by_text(HOSTILE).count() == 1
            assert page.evaluate("document.querySelectorAll('img, main script').length") == 0
        finally:
            city_service.request("DELETE", "/v1/links/hostile?force=true")


class TestUnknown:
    def test_what_is_not_read_yet_is_no_zero(self, city_service, visit):
        visitor = visit()
        held: list[Any] = []
        visitor.page.route("**/v1/health?*", lambda route: held.append(route))
        page = visitor.go("#/network")
        row(page, city_service.ids[0]).wait_for()
        dead = page.get_by_role("button", name="dead feed")
        wait_until(lambda: "\N{EN DASH} dead feed" in dead.inner_text())
        page.get_by_role("button", name="0 no forecast").wait_for()
        wait_until(lambda: held)
        visitor.page.unroute("**/v1/health?*")  # what is held goes on
        page.get_by_role("button", name="0 dead feed").wait_for()
        assert re.fullmatch(r"\d\d:\d\d Europe/Berlin.*", page.locator("time.clock").inner_text())


class TestMap:
    def test_it_is_moved_zoomed_and_fitted_and_leads_to_a_link(self, city_service, visit):
        page = visit().go("#/network?colour=flow")
        page.locator(f'.city-map[data-drawn="{len(city_service.ids)}"]').wait_for()
        page.locator(".state.ok").first.wait_for()  # nothing that is loaded later changes the map's size
        page.get_by_role("button", name="Fit the map to all links").click()
        before = page.locator(".map-scale").inner_text()
        assert re.fullmatch(r"[125]0* (m|km)", before)
        link_id = city_service.ids[0]
        point_at(page, link_id)
        assert "vehicles per hour" in page.locator(".map-tip").inner_text()
        assert page.locator(f'tbody tr[data-id="{link_id}"].marked').count() == 1
        for _ in range(4):
            page.get_by_role("button", name="Zoom in").click()
        page.wait_for_function("before => document.querySelector('.map-scale').textContent !== before", arg=before)
        page.get_by_role("button", name="Fit the map to all links").click()
        page.wait_for_function("before => document.querySelector('.map-scale').textContent === before", arg=before)
        page.locator(".city-map").focus()
        page.keyboard.press("ArrowRight")  # the links move to the left
        page.wait_for_function(
            "() => document.querySelector('.city-map .leaflet-map-pane').style.transform.includes('-')"
        )
        page.get_by_role("button", name="Fit the map to all links").click()

        def is_open() -> bool:  # the map may be drawn again between the look and the click
            if page.evaluate("location.hash") != f"#/links/{link_id}":
                page.mouse.click(*point_at(page, link_id))
            return bool(page.evaluate("location.hash") == f"#/links/{link_id}")

        wait_until(is_open)

    def test_its_scales_are_fixed_and_each_names_its_steps(self, city_service, visit):
        page = visit().go("#/network")
        legend = page.locator(".map-legend")
        assert page.get_by_label("Colour by").input_value() == "deviation"
        steps = {
            "deviation": "about the same", "share": "100 % and more", "flow": "1500 and more",
            "change": "about the same", "accuracy": "95 % and more", "feed": "suspect",
        }  # fmt: skip
        assert page.get_by_label("Colour by").locator("option").evaluate_all("all => all.map((one) => one.value)") == [
            *steps
        ]
        for colouring, step in steps.items():
            page.get_by_label("Colour by").select_option(colouring)
            legend.get_by_text(step).first.wait_for()
            point_at(page, city_service.ids[0])
            assert "nothing known" not in page.locator(".map-tip").inner_text(), colouring

    def test_approaches_lie_around_their_junction(self, city_service, visit):
        page = visit().go("#/network")
        row(page, city_service.ids[0]).wait_for()
        at = {"type": "Point", "coordinates": [145.09, -37.86]}
        line = {"type": "LineString", "coordinates": [[145, -37], [146, -37]]}
        rows = [
            {"id": "7-1", "link": {"name": "HIGH_ST N of LOW_RD", "geometry": at}},
            {"id": "7-3", "link": {"name": "HIGH_ST SW OF LOW_RD", "geometry": at}},
            {"id": "7-5", "link": {"name": "LOW_RD", "geometry": at}},
            {"id": "8-1", "link": {"name": "a", "geometry": {"type": "Point", "coordinates": [145.2, -37.8605]}}},
            {"id": "8-2", "link": {"name": "b", "geometry": {"type": "Point", "coordinates": [145.2, -37.8595]}}},
            {"id": "alone", "link": {"name": "c", "geometry": {"type": "Point", "coordinates": [145.3, -37.8]}}},
            {"id": "line", "link": {"name": "N of d", "geometry": line}},
            {"id": "nowhere", "link": {"name": "e", "geometry": None}},
        ]  # fmt: skip
        read = """async (rows) => {
          const folder = document.querySelector('script[type=module]').src.replace(/main\\.js$/, '');
          const { shapesOf } = await import(folder + 'charts/link_shapes.js');
          return shapesOf(rows);
        }"""
        shapes = {shape["id"]: shape for shape in page.evaluate(read, rows)}
        assert set(shapes) == {one["id"] for one in rows} - {"nowhere"}
        assert (shapes["7-1"]["bearing"], shapes["7-3"]["bearing"]) == (0, 225)  # by their names
        assert shapes["7-5"]["bearing"] not in (0, 225, None)  # in one of the directions that are left
        assert shapes["8-1"]["bearing"] == pytest.approx(180)  # by their places
        assert shapes["8-2"]["bearing"] == pytest.approx(0)
        assert shapes["8-1"]["at"] == shapes["8-2"]["at"]
        assert shapes["alone"]["bearing"] is None
        assert shapes["line"]["lines"] == [[[-37, 145], [-37, 146]]]


class TestLink:
    def test_counts_forecasts_accuracy_and_reasons(self, city_service, visit):
        link_id = city_service.ids[0]
        visitor = visit()
        page = visitor.go(f"#/links/{link_id}")
        heading(page, next(link.name for link in city_service.city.links if link.link_id == link_id))
        page.locator("path.line.count").first.wait_for(state="attached")
        drawn = page.locator(".panel", has=page.get_by_role("heading", name="Counts and forecasts")).locator(".canvas")
        assert drawn.locator("path.stars.past").get_attribute("d").count("M") >= 12
        assert drawn.locator("path.stars.ahead").get_attribute("d").count("M") == 4
        assert drawn.locator("path.band.interval").get_attribute("d")
        assert "Europe/Berlin" in page.locator(".zone").inner_text()
        page.get_by_label("Horizon", exact=True).select_option("3")
        page.get_by_text("horizon 3,").wait_for()
        assert page.url.endswith("?horizon=3")
        explained = city_service.request("GET", f"/v1/links/{link_id}/forecast?explain=true")["explanation"]
        neighbours = page.get_by_role("table", name="Neighbours by weight").locator("tbody tr")
        assert neighbours.count() == len(explained["neighbours"])
        page.get_by_text(f"rank {explained['rank']}, 1 lag, KR version 1").wait_for()
        assert page.locator("rect.bar").count() == 1
        page.locator(".panel", has_text="Counts and forecasts").get_by_text("As a table").click()
        table = page.get_by_role("table", name=f"{link_id} counts and forecasts")
        table.wait_for()
        assert table.locator("tbody tr").count() == SLOTS + 4
        assert "realised_error" in table.inner_text()
        assert "verdict" in table.inner_text()
        assert page.get_by_role("table", name="Accuracy by horizon").locator("tbody tr").count() == 4


class TestRetrain:
    def test_started_watched_accepted_and_rolled_back(self, city_service, visit):
        link_id = city_service.ids[0]
        visitor = visit()
        page = visitor.go(f"#/retrain?links={link_id}")
        page.get_by_label("Algorithm").wait_for()
        offered = page.get_by_label("Algorithm").locator("option").all_inner_texts()
        schema = city_service.request("GET", "/openapi.json")["components"]["schemas"]["NewRun"]["properties"]
        assert offered == schema["algorithm"]["enum"]
        assert page.get_by_label("Algorithm").input_value() == "best"
        page.get_by_label("Algorithm").select_option("KR_SML")
        page.get_by_label("Activate a candidate").select_option("never")
        page.get_by_text("Parameters").click()
        for name, value in (("Lags", "6"), ("Neighbours", "6"), ("Held-out days", "3"), ("Most steps", "2")):
            page.get_by_label(name, exact=True).fill(value)
        page.get_by_role("button", name="Start the run").click()
        page.get_by_text("1 of 1 links trained.").wait_for(timeout=1000 * TRAINING_SECONDS)
        run_id = page.url.rsplit("/", 1)[1]
        figures = row(page, link_id).locator("td").all_inner_texts()
        assert float(figures[1]) > 0
        assert float(figures[2]) > 0
        assert city_service.version(link_id) == 1
        page.get_by_role("button", name=f"Accept version 2 of {link_id}").click()
        page.get_by_label("Why").fill("looks better")
        page.get_by_role("dialog").get_by_role("button", name="Accept").click()
        page.get_by_role("button", name=f"Refuse version 2 of {link_id}").wait_for()
        assert city_service.version(link_id) == 2
        page.goto(f"{visitor.address}#/links/{link_id}")
        page.get_by_role("button", name="Roll back version 1").click()
        page.keyboard.press("Escape")  # asked first, and not done
        page.get_by_role("dialog").wait_for(state="detached")
        assert city_service.version(link_id) == 2
        page.get_by_role("button", name="Roll back version 1").click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        page.get_by_role("button", name="Roll back version 2").wait_for()
        assert city_service.version(link_id) == 1
        page.get_by_text("History of activations").click()
        page.get_by_text("looks better").wait_for()
        page.goto(f"{visitor.address}#/retrain")
        page.get_by_role("link", name=f"Run {run_id}").click()
        page.get_by_role("button", name=f"Accept version 2 of {link_id}").click()
        page.get_by_role("dialog").get_by_role("button", name="Accept").click()
        page.get_by_role("button", name=f"Refuse version 2 of {link_id}").click()
        page.get_by_role("dialog").get_by_role("button", name="Refuse").click()
        page.get_by_role("button", name=f"Accept version 2 of {link_id}").wait_for()
        assert city_service.version(link_id) == 1

    def test_a_network_is_trained_explained_and_refreshed(self, city_service, visit):
        link_id = city_service.ids[2]
        visitor = visit()
        page = visitor.go(f"#/retrain?links={link_id}")
        refresh = page.get_by_label("Refresh only")
        page.get_by_label("Algorithm").wait_for()
        assert not refresh.is_visible()
        page.get_by_text("Parameters").click()
        page.get_by_label("Lags", exact=True).fill("6")
        page.get_by_label("Algorithm").select_option("NETWORK")
        assert not page.get_by_label("Lags", exact=True).is_visible()  # nor sent: it would be refused
        for name, value in (("Held-out days", "2"), ("Days to learn from", "9"), ("Most steps", "0")):
            page.get_by_label(name, exact=True).fill(value)
        page.get_by_label("Activate a candidate").select_option("always")
        page.get_by_role("button", name="Start the run").click()
        page.get_by_text("1 of 1 links trained.").wait_for(timeout=1000 * TRAINING_SECONDS)

        page.goto(f"{visitor.address}#/links/{link_id}")
        answer = city_service.request("GET", f"/v1/links/{link_id}/forecast?explain=true")
        version, explained = answer["forecasts"][0]["model_version"], answer["explanation"]
        detail = city_service.request("GET", f"/v1/links/{link_id}/models/{version}")
        columns = len(detail["context_weights"])
        page.get_by_text(f"rank {explained['rank']}, {columns} columns, NETWORK version {version}").wait_for()
        parts = {one["part"]: one["vehicles"] for one in explained["context"]}
        summed = page.locator(".panel", has=page.get_by_role("heading", name="Parts of the expected count"))
        assert summed.locator("rect.bar").count() == len(parts) + 1  # and their sum
        assert f"profile of this time +{parts['usual']:.1f}" in summed.locator("svg").get_attribute("aria-label")
        page.get_by_role("button", name=f"Copy {link_id} parts of the expected count as CSV").click()
        page.get_by_text(f"Copied {len(parts)} rows of").wait_for()
        copied = [line.split(",") for line in page.evaluate("navigator.clipboard.readText()").splitlines()]
        assert copied[0] == ["part", "meaning", "vehicles", "sum"]
        assert {cells[0]: float(cells[2]) for cells in copied[1:]} == pytest.approx(parts)
        assert float(copied[-1][3]) == pytest.approx(answer["forecasts"][0]["expected_count"], abs=0.01)
        neighbours = page.get_by_role("table", name="Neighbours by weight").locator("tbody tr")
        assert neighbours.count() == len(explained["neighbours"])
        named = neighbours.locator("th a").all_inner_texts()
        assert named == [one["link_id"] for one in explained["neighbours"] if one["link_id"] != link_id]
        learnt = page.locator(".panel", has=page.get_by_role("heading", name="Weights of the learnt metric"))
        learnt.get_by_text("As a table").click()
        learnt.get_by_role("table").wait_for()
        assert learnt.locator("tbody tr").count() == columns

        page.goto(f"{visitor.address}#/retrain?links={link_id}")
        page.get_by_label("Algorithm").select_option("NETWORK")
        refresh.check()
        page.get_by_role("button", name="Start the run").click()
        page.get_by_text("1 of 1 links trained.").wait_for(timeout=1000 * TRAINING_SECONDS)
        assert "NETWORK, refreshed" in page.locator(".summary").inner_text()
        assert city_service.version(link_id) == version + 1

    def test_a_run_can_be_cancelled(self, city_service, visit):
        # A network: with one job a link is trained in the worker itself, and goes on to its end.
        slow = {"max_iter": 500, "mu": [10.0**-power for power in range(10)]}
        how = {"links": "all", "algorithm": "NETWORK", "parameters": slow, "activate": "never"}
        run = city_service.request("POST", "/v1/admin/retrain", how)
        page = visit().go(f"#/retrain/{run['run_id']}")
        page.get_by_role("button", name="Cancel the run").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
        page.locator(".summary", has_text="cancelled").wait_for()

    def test_a_model_is_withdrawn_and_comes_back(self, city_service, visit):
        link_id = city_service.ids[2]
        version = city_service.version(link_id)
        page = visit().go(f"#/links/{link_id}")
        page.get_by_role("button", name=f"Withdraw version {version}").click()
        page.get_by_role("dialog").get_by_role("button", name="Withdraw").click()
        page.get_by_text("The models were withdrawn; forecasts come from the profile").wait_for()
        assert city_service.version(link_id) is None
        page.get_by_text("History of activations").click()
        page.get_by_text("withdrawn", exact=True).first.wait_for()  # also of a model that was not used
        page.get_by_role("button", name=f"Roll back version {version}").click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        page.get_by_role("button", name=f"Withdraw version {version}").wait_for()
        assert city_service.version(link_id) == version

    def test_the_learning_of_a_network_is_watched(self, city_service, visit):
        run = city_service.request("GET", "/v1/admin/retrain")["runs"][0]
        shown = city_service.request("GET", f"/v1/admin/retrain/{run['run_id']}")
        links = [one | {"state": "waiting", "outcome": None} for one in shown["links"]]
        stage = {"name": "network", "share": 0.35, "estimated_seconds_left": 80}
        shown |= {"state": "running", "stage": stage, "links": links}
        chosen = [links[0] | {"state": "done", "outcome": "profile", "reason": "it was better", "version": 3}]
        visitor = visit()
        body = f"event: run\ndata: {json.dumps(shown | {'links': chosen})}\n\n"
        visitor.page.route(
            f"**/v1/admin/retrain/{run['run_id']}",
            lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body),
        )
        page = visitor.go(f"#/retrain/{run['run_id']}")
        page.get_by_text("The network is trained: 35 % done, about 1 min left.").wait_for()
        page.get_by_text("profile chosen: it won on held-out days").wait_for()


class TestExperts:
    def test_their_weights_are_seen_to_move_when_a_road_leaves_its_course(self, city_service, visit):
        link_id = city_service.ids[1]
        quick = {"lags": 6, "n_neighbors": 6, "held_out_days": 3, "max_iter": 0, "mu": [1e-3]}
        city_service.retrain(algorithm="best", links=[link_id], parameters=quick, activate="always")
        city_service.move_on(4)
        page = visit().go(f"#/links/{link_id}")
        panel = page.locator(".panel", has=page.get_by_role("heading", name="Experts", exact=True))
        rows = panel.get_by_role("table", name="Experts by weight").locator("tbody tr")
        rows.first.wait_for()
        assert rows.count() == 5
        assert panel.locator("path.share").count() == 5 * 2  # and in the legend
        page.get_by_text("The active experts forecast together").wait_for()
        page.get_by_role("button", name=re.compile("Withdraw version")).first.wait_for()

        for i in range(16):  # a queue passes at a rate of its own
            count = {"link_id": link_id, "slot_start": city_service.start(city_service.next + i), "count": 700}
            city_service.request("POST", "/v1/counts", {"counts": [count]})
        city_service.move_on(16, [other for other in city_service.ids if other != link_id])
        slots = city_service.request("GET", f"/v1/links/{link_id}/experts")["slots"]
        assert slots[-1]["weights"]["last_count"] > 0.5
        page.get_by_text(re.compile("Since .* the last count carries most of the weight")).wait_for()
        wait_until(lambda: rows.first.inner_text().startswith("last count"))
        page.evaluate(AXE)
        found = page.evaluate("async () => (await axe.run(document.querySelector('main'))).violations")
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


class TestData:
    def test_calendar_and_verdicts(self, city_service, visit):
        link_id = city_service.ids[1]
        page = visit().go("#/data")
        page.get_by_text("3 links:").wait_for()
        row(page, link_id).get_by_role("link").click()
        page.get_by_role("table", name="Completeness by local day").wait_for()
        health = city_service.request("GET", f"/v1/links/{link_id}/health?days=28")
        days = page.locator(".calendar .day .visually-hidden").all_inner_texts()
        result = {(day["observed"], day["observed"] + day["missing"] + day["suspect"]) for day in health["days"]}
        assert len(days) == len(health["days"])
        assert {tuple(map(int, re.match(r"(\d+) of (\d+) observed", day).groups())) for day in days} == result
        assert page.locator(".verdicts li").count() == len(health["verdicts"])

    def test_a_file_is_reported_on_and_then_imported(self, city_service, visit, tmp_path):
        link_id = city_service.ids[2]
        slot = city_service.start(city_service.next)
        text = f"link_id,slot_start,count\n{link_id},{slot},77\n{link_id},{slot},-1\nnobody,{slot},5\n"
        visitor = visit()
        page = visitor.go("#/data")
        page.get_by_text("Choose a file").wait_for()
        dropped = page.evaluate_handle(
            "text => { const data = new DataTransfer(); data.items.add(new File([text], 'counts.csv')); return data; }",
            text,
        )
        page.locator(".drop").dispatch_event("drop", {"dataTransfer": dropped})
        page.get_by_text("counts.csv: what an import would do").wait_for()
        assert page.get_by_text("1 link does not exist: nobody.").count() == 1
        newest = city_service.request("GET", f"/v1/links/{link_id}/health")["newest_slot"]
        assert newest != slot.replace("+00:00", "Z")  # nothing was stored yet
        page.get_by_role("button", name="Import 1 count").click()
        page.get_by_text("counts.csv is imported").wait_for()
        counts = city_service.request("GET", f"/v1/links/{link_id}/counts")["counts"]
        assert (counts[-1]["slot_start"], counts[-1]["count"]) == (slot.replace("+00:00", "Z"), 77)
        page.locator("summary", has_text="Options").click()
        page.get_by_label("Columns").fill("slot_start=Time,count=Vol")
        page.get_by_label("Only link").fill(link_id)
        page.keyboard.press("Tab")
        lane = tmp_path / "lane.csv"
        lane.write_text("Time;Vol\n" + "".join(f"2025-01-01T00:{minute:02}Z;1\n" for minute in range(0, 30, 5)))
        page.locator("#file").set_input_files(lane)
        page.get_by_text("rows of 5 minutes are summed into 2 slots of 15 minutes").wait_for()
        file = tmp_path / "more.csv"
        file.write_text("not,a,file,of,counts\n1,2,3\n")
        page.locator("#file").set_input_files(file)
        page.locator(".block.failure", has_text="must be a file of counts").wait_for()
        visitor.errors[:] = [error for error in visitor.errors if "422" not in error]
        city_service.move_on()  # the others follow


class TestEveryone:
    VIEWS = ("#/network", "#/links/{}", "#/retrain", "#/retrain/1", "#/data", "#/data/{}")

    def test_axe_finds_nothing_serious_in_light_and_dark(self, city_service, visit):
        page = visit().go("#/network")
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        row(page, city_service.ids[0]).wait_for()
        page.evaluate(AXE)

        def grave(**options: Any) -> list[Any]:
            found = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"]} | options)
            return [
                (one["id"], [node["html"][:150] for node in one["nodes"]])
                for one in found["violations"]
                if one["impact"] in ("serious", "critical")
            ]

        def grave_in_both(view: str) -> None:
            assert grave() == [], view
            page.emulate_media(color_scheme="dark")
            assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
            # Only colours are others in the dark.
            assert grave(runOnly=["color-contrast"]) == [], view
            page.emulate_media(color_scheme="light")

        for view in self.VIEWS:
            page.evaluate("view => { location.hash = view; }", view.format(city_service.ids[2]))
            page.wait_for_function(READY)
            grave_in_both(view)
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("API key").wait_for()
        grave_in_both("sign in")

    def test_the_keyboard_is_enough(self, city_service, visit):
        page = visit().go("#/network")
        row(page, city_service.ids[0]).wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.tagName") == "H1"

        def tab_to(script: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                if page.evaluate(f"(() => {{ const here = document.activeElement; return {script}; }})()"):
                    return
            raise AssertionError(script)

        tab_to("here.id === 'search'")
        page.keyboard.type(city_service.ids[1])
        page.get_by_text("1 of 3 links").wait_for()
        tab_to("here.textContent === 'RMSE'")
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("RMSE")
        tab_to("here.matches('tbody a')")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Counts and forecasts").wait_for()
        assert page.evaluate("document.activeElement.tagName") == "H1"  # the new view has the focus
        tab_to("here.id === 'horizon'")
        page.keyboard.press("ArrowDown")
        page.get_by_text("horizon 2,").wait_for()
        tab_to("here.textContent === 'As a table'")
        page.keyboard.press("Enter")
        page.get_by_role("table", name=f"{city_service.ids[1]} counts and forecasts").wait_for()

    def test_fits_a_phone_and_keeps_the_chosen_colours(self, city_service, visit):
        visitor = visit()
        page = visitor.go("#/network")
        page.set_viewport_size({"width": 390, "height": 844})
        for view in self.VIEWS:
            page.goto(visitor.address + view.format(city_service.ids[0]))
            page.wait_for_function(READY)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        page.get_by_role("button", name="Colours: Auto").click()
        page.get_by_role("button", name="Colours: Light").click()
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        page.reload()
        page.get_by_role("button", name="Colours: Dark").click()
        page.get_by_role("button", name="Colours: Auto").wait_for()  # as the next visitor is to find it

    def test_csv_cells_are_no_formulas_and_events_may_come_in_parts(self, city_service, visit):
        page = visit().go("#/network")
        row(page, city_service.ids[0]).wait_for()
        read = """async () => {
          const folder = document.querySelector('script[type=module]').src.replace(/main\\.js$/, '');
          const { asCsv } = await import(folder + 'csv.js');
          const { EventParser } = await import(folder + 'event_stream.js');
          const heard = [];
          const parser = new EventParser((name, data) => heard.push([name, data]));
          const parts = [': hi\\n\\nevent: fore', 'cast\\ndata: {"a"', ':1}\\n', '\\ndata: 2\\r\\n\\r\\n'];
          parts.forEach((part) => parser.take(part));
          const rows = [['=1+1', -2.5], ['a "b", c', null], ['@x', true]];
          return [asCsv({ name: 'x', columns: ['a', 'b'], rows }), heard];
        }"""
        csv, heard = page.evaluate(read)
        assert csv == 'a,b\r\n\'=1+1,-2.5\r\n"a ""b"", c",\r\n\'@x,true\r\n'
        assert heard == [["forecast", {"a": 1}], ["message", 2]]


def test_an_empty_service_and_one_that_goes_and_comes_back(window, tmp_path):
    """Without keys, below a prefix, without links; then the service ends and is started again."""
    url = f"sqlite:///{tmp_path}/flowcast.db"
    settings = {"FLOWCAST_AUTH": "off", "FLOWCAST_ROOT_PATH": "/flowcast"}
    with running_service(url, tmp_path, **settings) as service:
        visitor = BrowserTab(window, f"http://127.0.0.1:{service.port}/flowcast/", None)
        page = visitor.go("#/network")
        page.get_by_text("There are no links yet").wait_for()
        assert page.get_by_role("button", name="Sign out").count() == 0
        page.goto(visitor.address + "#/retrain")
        page.get_by_text("There are no links to retrain").wait_for()
        page.get_by_text("No run yet").wait_for()
        page.goto(visitor.address + "#/data")
        page.get_by_text("There are no links yet").wait_for()
        assert visitor.errors == []
        page.goto(visitor.address + "#/links/nobody")
        page.get_by_text("link 'nobody' does not exist").wait_for()
        page.goto(visitor.address + "#/nowhere")
        page.get_by_text("There is no such view").wait_for()
        visitor.errors.clear()  # the browser's own message for a missing resource
        service.request("PUT", "/v1/links/new", {"name": "New road", "zone": "UTC"})
        page.goto(visitor.address + "#/network")
        row(page, "new").get_by_text("New road").wait_for()
        page.get_by_role("button", name="1 dead feed").wait_for()
        page.goto(visitor.address + "#/links/new")
        page.get_by_text("No counts yet").wait_for()
        counts = [{"link_id": "new", "slot_start": "2025-09-15T08:00:00+02:00", "count": 87}]
        assert service.request("POST", "/v1/counts", {"counts": counts})[0] == 200
        page.get_by_text("No slot of the span is scored yet").wait_for()
        page.get_by_text("Forecast by last_count, from counts up to Mon 15 Sept 06:00.").wait_for()
        assert not page.get_by_text("What makes up the expected count").is_visible()
        assert visitor.errors == []
        page.goto(visitor.address + "#/network")
        row(page, "new").wait_for()
    page.get_by_role("alert").get_by_text("The service has not answered since").wait_for()
    assert row(page, "new").is_visible()  # known forecasts stay, marked as stale
    with running_service(url, tmp_path, port=service.port, **settings) as service:
        page.locator(".stale-bar").wait_for(state="hidden")
        page.locator(".live", has_text="Live").wait_for()
        service.request("PUT", "/v1/links/newer", {"name": "Newer road", "zone": "UTC"})
        row(page, "newer").wait_for()
    assert [error for error in visitor.errors if "ERR_" not in error] == []
    assert visitor.hosts == {"127.0.0.1"}
    page.close()
