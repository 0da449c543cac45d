"""Take pictures of a demo's operators' page for the docs: ``make screenshots``."""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from rich.console import Console

from app.core.database import open_database
from app.core.schema import upgrade_schema
from app.demo.city import City
from app.demo.prepare import DemoFolder, DemoSize, demo_key, next_slot, store_city, train_city
from app.demo.replay import FeedClient, counts_of
from app.demo.service_process import free_port, running_service
from tests.support.browser import NoBrowser, chromium, signed_in

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
LINKS = 40
REPLAYED_SLOTS = 3 * 96 + 34  # up to a Monday's rush hour
UNPLUGGED_SLOTS = 14  # one detector falls silent, so that the page shows a fault
WAIT = 60_000  # milliseconds

notes = Console(stderr=True, highlight=False)


class Picture(NamedTuple):
    """A view to take a picture of."""

    name: str
    view: str
    ready: str  # selector that must match first
    scheme: str = "light"
    size: tuple[int, int] = (1280, 800)
    shown: str | None = None  # selector of the part to scroll to


def pictures(link_id: str, run_id: int) -> list[Picture]:
    """List the pictures, of a link and a run."""
    return [
        Picture("network", "#/network", "tbody .state"),
        Picture("network-dark", "#/network?colour=change", "tbody .state", "dark"),
        Picture("link", f"#/links/{link_id}", "path.share", size=(1280, 900)),
        Picture("link-reasons", f"#/links/{link_id}", "path.share", "dark", (1280, 1000), ".beside"),
        Picture("retrain", f"#/retrain/{run_id}", "tbody .state.done", size=(1280, 620)),
        Picture("data", f"#/data/{link_id}", ".calendar .day", size=(1280, 620)),
        Picture("phone", "#/network", "tbody .state", "dark", (390, 844)),
    ]


def replay(feed: FeedClient, city: City, first: int, unplugged: str) -> None:
    """Post slot after slot, at the end without the counts of one link."""
    last = first + REPLAYED_SLOTS
    for slot in range(first, last):
        counts = counts_of(city, slot)
        silent = slot >= last - UNPLUGGED_SLOTS
        feed.post_counts([one for one in counts if not (silent and one["link_id"] == unplugged)])


def retrained(page: Any, address: str) -> int:
    """Start a run from the page, as an operator would, and return its number after its end."""
    page.goto(f"{address}/#/retrain")
    page.get_by_label("Algorithm").select_option("NETWORK")
    page.get_by_label("Activate a candidate").select_option("never")
    page.get_by_role("button", name="Start the run").click(timeout=WAIT)
    page.get_by_text("links trained.").wait_for(timeout=10 * WAIT)
    return int(page.url.rsplit("/", 1)[1])


def take(browser: Any, address: str, key: str, picture: Picture, folder: Path) -> None:
    """Take one picture."""
    width, height = picture.size
    page = signed_in(browser, key, width, height, picture.scheme)
    page.goto(f"{address}/{picture.view}")
    page.locator(picture.ready).first.wait_for(state="attached", timeout=WAIT)
    if picture.shown:
        page.locator(picture.shown).first.evaluate("part => part.closest('.panel').scrollIntoView()")
    time.sleep(1.0)  # until the last figures are loaded
    image = Image.open(io.BytesIO(page.screenshot()))
    path = folder / f"page-{picture.name}.png"
    few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    page.context.close()
    notes.print(f"{path.name}, {path.stat().st_size / 1000:.0f} kB")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURES, help="folder for the pictures (docs/pictures)")
    parser.add_argument("--links", type=int, default=LINKS, help=f"links of the demo ({LINKS})")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    size = DemoSize(options.links)
    with tempfile.TemporaryDirectory(prefix="flowcast-screenshots-") as name:
        folder = DemoFolder(Path(name))
        engine = open_database(folder.database_url)
        with notes.status("preparing the demo"):
            upgrade_schema(engine)
            city = size.city()
            store_city(engine, size, city)
            train_city(engine, folder, size, city, lambda done, of: None)
            key, first = demo_key(engine, folder), next_slot(engine, city)
        engine.dispose()
        with running_service(folder.environment(), free_port(0), folder.log) as service:
            feed = FeedClient(service.address, key, service.require_alive)
            with notes.status("replaying counts"):
                replay(feed, city, first, unplugged=city.links[-1].link_id)
            try:
                with chromium() as browser:
                    with notes.status("training"):
                        run_id = retrained(signed_in(browser, key), service.address)
                    for picture in pictures(city.links[0].link_id, run_id):
                        take(browser, service.address, key, picture, options.output)
            except NoBrowser as problem:
                notes.print(f"benchmarks.screenshots: {problem}", style="red")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
