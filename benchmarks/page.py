"""Time how the operators' page shows 1,000 links and filters its table.

- first meaningful paint: from the start of the navigation until the map with every link and the first
  rows of the table are painted; without and with the page's files in the browser's cache;
- the time until accuracy and detector health are in the table as well;
- filter: from a key in the search box until the filtered table is painted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, insert

from app.core.database import open_database, writing
from app.core.schema import upgrade_schema
from app.counts.tables import Count
from app.demo.city import links_geojson, sample_city
from app.settings import Settings
from benchmarks.model_city import ModelCity
from benchmarks.running_service import KEY, Running, running
from tests.support.browser import NoBrowser, chromium, signed_in

ROUNDS = 5
HISTORY_SLOTS = 1344  # fourteen days, which detector health reads
FORECAST_SLOTS = 8  # posted one by one, so that accuracy can be computed
SEARCHES = ("0", "01", "012", "road", "9", "99", "")

# Stores when each part was first on the screen, which is the frame after the one in which it was in the document.
WATCH = """
window.seen = {};
const parts = {
  links: (n) => document.querySelector('.city-map')?.dataset.drawn === String(n) && document.querySelector('tbody tr'),
  figures: () => document.querySelector('tbody .state')
    && document.querySelector('.summary').textContent.includes('RMSE'),
};
const look = () => {
  for (const [name, is] of Object.entries(parts)) {
    if (!(name in window.seen) && is(LINKS)) {
      window.seen[name] = null;
      requestAnimationFrame(() => setTimeout(() => { window.seen[name] = performance.now(); }));
    }
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
FILTER = """async (text) => {
  const box = document.querySelector('#search');
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  await frame();
  const began = performance.now();
  box.value = text;
  box.dispatchEvent(new Event('input'));
  const scripted = performance.now() - began;
  await frame();
  return [scripted, performance.now() - began];
}"""

notes = Console(stderr=True, highlight=False)


def prepare(engine: Engine, folder: Path, links: int) -> ModelCity:
    """Store links with models and fourteen days of counts."""
    city = ModelCity.build(engine, folder / "models", links, notes)
    rows = city.rows(engine, links, 100, HISTORY_SLOTS - 100)
    names = ("link_key", "slot_start", "count", "quality")
    with notes.status("storing counts"), writing(engine) as session:
        session.execute(insert(Count), [dict(zip(names, row, strict=True)) for row in rows])
    return city


def put_on_the_map(service: Running, city: ModelCity) -> None:
    """Store the geometry and the names of the links, those of a city of the same size."""
    drawn = links_geojson(sample_city(links=len(city.link_ids), days=1))
    for feature, link_id in zip(drawn["features"], city.link_ids, strict=True):
        feature["id"] = feature["properties"]["link_id"] = link_id
        feature["properties"]["upstream"] = []
    body = json.dumps(drawn).encode()
    status, answer = service.request("POST", "/v1/links", body)
    if status != 200:
        raise RuntimeError(f"{status}: {answer[:300]!r}")


def post_slots(service: Running, city: ModelCity) -> None:
    """Post a few slots one by one."""
    for i in range(FORECAST_SLOTS):
        status, answer = service.request("POST", "/v1/counts", city.batch(len(city.link_ids), HISTORY_SLOTS + i, 1))
        if status != 200:
            raise RuntimeError(f"{status}: {answer[:300]!r}")


def open_page(page: Any, address: str, links: int) -> dict[str, float]:
    """Open the page and return when each part was painted, in milliseconds."""
    page.add_init_script(WATCH.replace("LINKS", str(links)))
    page.goto(address)
    page.wait_for_function("() => window.seen.links && window.seen.figures", timeout=120_000)
    return dict(page.evaluate("window.seen"))


def measure(links: int) -> dict[str, Any]:
    """Run everything."""
    with tempfile.TemporaryDirectory(prefix="flowcast-page-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'flowcast.db'}"
        engine = open_database(Settings(database_url=url).database_url)
        upgrade_schema(engine)
        city = prepare(engine, folder, links)
        settings = {
            "FLOWCAST_DATABASE_URL": url,
            "FLOWCAST_MODEL_STORE": str(folder / "models"),
            "FLOWCAST_CLOCK": "feed",
        }
        with running(["app", "serve"], settings, "/readyz", folder) as service, chromium() as browser:
            put_on_the_map(service, city)
            with notes.status("posting counts"):
                post_slots(service, city)
            with notes.status("looking"):
                found = _measure_page(browser, f"http://127.0.0.1:{service.port}/", links)
        engine.dispose()
    return found


def _measure_page(browser: Any, address: str, links: int) -> dict[str, Any]:
    first, again = [], []
    for _ in range(ROUNDS):
        page = signed_in(browser, KEY)
        first.append(open_page(page, address, links))
        again.append(open_page(page, address, links))
        page.context.close()
    page = signed_in(browser, KEY)
    open_page(page, address, links)
    filters = [page.evaluate(FILTER, text) for _ in range(ROUNDS) for text in SEARCHES]
    page.context.close()

    def median(times: list[dict[str, float]], name: str) -> float:
        return statistics.median(one[name] for one in times)

    return {
        "links": links,
        "first_paint_ms": median(first, "links"),
        "first_paint_cached_ms": median(again, "links"),
        "figures_ms": median(first, "figures"),
        "filter_ms": statistics.median(painted for _, painted in filters),
        "filter_slowest_ms": max(painted for _, painted in filters),
        "filter_script_ms": statistics.median(scripted for scripted, _ in filters),
    }


def show(found: dict[str, Any]) -> None:
    """Print the measured values and their limits."""
    table = Table("what", "measured", "limit", title=f"the operators' page with {found['links']:,} links")
    table.add_row(
        "first meaningful paint",
        f"{found['first_paint_ms']:.0f} ms, with its files cached {found['first_paint_cached_ms']:.0f} ms",
        "2,000 ms",
    )
    table.add_row("accuracy and detector health shown", f"{found['figures_ms']:.0f} ms", "")
    table.add_row(
        "table filter, until painted",
        f"{found['filter_ms']:.0f} ms, the slowest {found['filter_slowest_ms']:.0f} ms "
        f"(script {found['filter_script_ms']:.0f} ms)",
        "100 ms",
    )
    Console(width=None if sys.stdout.isatty() else 130, highlight=False).print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__.split("\n")[0])
    parser.add_argument("--links", type=int, default=1000, help="links with a trained model each (1000)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    try:
        found = measure(options.links)
    except NoBrowser as problem:
        notes.print(f"benchmarks.page: {problem}", style="red")
        return 1
    print(json.dumps(found, indent=2)) if options.json else show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
