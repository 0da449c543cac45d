"""The demo: prepared once, replayed at its pace, and never leaving a process behind."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest
from typer.testing import CliRunner, Result

from app.cli import cli
from app.core.database import open_database, reading, writing
from app.core.schema import upgrade_schema
from app.demo.city import sample_city
from app.demo.prepare import DemoFolder, DemoSize, demo_key, next_slot, store_city, train_city
from app.demo.replay import FeedClient, counts_of, replay
from app.demo.service_process import free_port
from app.links.queries import all_links
from app.links.schemas import LinkIn
from app.links.store_links import store_links
from app.registry.queries import active_models
from tests.support.services import running_service
from tests.support.virtual_time import SteppedTime
from tests.support.waiting import WAIT_SECONDS, wait_until

FLOWCAST = Path(sys.executable).with_name("flowcast")
SMALL = DemoSize(links=2, days=14)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """Return a small demo that is ready to run."""
    folder = DemoFolder(tmp_path_factory.mktemp("demo"))
    engine, city = open_database(folder.database_url), SMALL.city()
    with folder.held(SMALL), pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOKY_MAX_CPU_COUNT", "1")  # trained here: to start processes would take longer
        upgrade_schema(engine)
        store_city(engine, SMALL, city)
        assert train_city(engine, folder, SMALL, city, lambda done, of: None) == []
    engine.dispose()
    return folder.root


class TestReplay:
    city = sample_city(links=3, days=1)

    class RecordingFeed(FeedClient):
        def __init__(self) -> None:
            self.slots: list[str] = []

        def post_counts(self, counts: list[dict[str, Any]]) -> Any:
            self.slots += {count["slot_start"] for count in counts}

    def test_a_slot_is_posted_as_the_service_takes_it_and_a_gap_is_left_out(self):
        series = {link_id: counts.copy() for link_id, counts in self.city.counts.items()}
        series["Ba"][5] = float("nan")
        city = type(self.city)(**{**vars(self.city), "counts": series})
        found = counts_of(city, city.first_slot + 5)
        assert [count["link_id"] for count in found] == ["Cf", "Fe"]
        assert found[0] == {"link_id": "Cf", "slot_start": "2025-08-31T23:15:00Z", "count": int(series["Cf"][5])}

    def test_slot_after_slot_to_the_end(self):
        feed, noted = self.RecordingFeed(), []
        first = self.city.slots[-1] - 4
        assert replay(self.city, feed, first, per_minute=60_000, note=noted.append)
        assert noted == list(range(first, first + 5))
        assert feed.slots == sorted(feed.slots)
        assert len(feed.slots) == 5

    def test_at_its_pace_and_only_until_it_is_time(self, monkeypatch):
        feed, clock = self.RecordingFeed(), SteppedTime()
        monkeypatch.setattr("app.demo.replay.time", clock)
        until = clock.now + 0.45
        assert not replay(self.city, feed, self.city.first_slot, per_minute=600, until=until)
        assert len(feed.slots) == 5
        assert clock.now == pytest.approx(until)

    def test_live_no_slot_is_sent_before_it_is_over(self, monkeypatch):
        city, feed = sample_city(links=1, days=3, start=date(2025, 9, 1)), self.RecordingFeed()
        now = datetime(2025, 9, 2, 12, 7, tzinfo=UTC)
        clock = SteppedTime(now.timestamp())
        monkeypatch.setattr("app.demo.replay.time", clock)
        first = city.grid.containing(now) - 5
        assert not replay(city, feed, first, per_minute=60_000, until=clock.now + 600, live=True)
        assert feed.slots[0] == "2025-09-02T10:45:00Z"
        assert feed.slots[-1] == "2025-09-02T12:00:00Z"  # sent at 12:15, when it was over
        assert clock.time() == pytest.approx(now.timestamp() + 600)

    def test_used_up_from_the_start(self):
        assert replay(self.city, self.RecordingFeed(), self.city.slots[-1] + 1, per_minute=60)


class FixedStatuses(BaseHTTPRequestHandler):
    """FixedStatuses with one status after the other."""

    statuses: ClassVar[list[int]] = []
    bodies: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.statuses.pop(0))
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.journey
class TestFeed:
    @pytest.fixture
    def address(self) -> Iterator[str]:
        server = HTTPServer(("127.0.0.1", 0), FixedStatuses)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        FixedStatuses.bodies.clear()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
        server.server_close()

    def test_posts_again_while_the_service_is_unreachable(self, address):
        FixedStatuses.statuses[:] = [503, 200]
        FeedClient(address, "key").post_counts([{"count": 1}])
        assert FixedStatuses.bodies == [{"counts": [{"count": 1}]}] * 2

    def test_what_is_refused_is_not_sent_again(self, address):
        FixedStatuses.statuses[:] = [422]
        with pytest.raises(HTTPError):
            FeedClient(address, "key").post_counts([])
        assert len(FixedStatuses.bodies) == 1

    def test_gives_up_when_the_service_takes_nothing_for_long(self, address):
        FixedStatuses.statuses[:] = [503, 503]
        with pytest.raises(TimeoutError, match=r"has accepted no counts for 0\.2 s: status 503"):
            FeedClient(address, "key", patience=0.2).post_counts([])

    def test_gives_up_when_the_service_is_gone(self):
        def gone() -> None:
            raise RuntimeError("gone")

        with pytest.raises(RuntimeError, match="gone"):
            FeedClient(f"http://127.0.0.1:{free_port(0)}", "key", gone).post_counts([])


@pytest.mark.journey
class TestPrepare:
    def test_links_counts_and_active_models_are_stored(self, prepared):
        engine = open_database(DemoFolder(prepared).database_url)
        with reading(engine) as session:
            links = all_links(session)
            assert len(active_models(session, [link.link_key for link in links])) == 2
        assert {link.capacity for link in links} <= {550.0, 920.0, 1800.0}  # by the hour
        assert not (prepared / "training").exists()
        city = SMALL.city()
        first = city.first_slot + 11 * 96
        assert next_slot(engine, city) >= first
        engine.dispose()

    def test_a_second_time_nothing_is_trained_and_the_key_stays(self, prepared):
        folder = DemoFolder(prepared)
        engine, city, noted = open_database(folder.database_url), SMALL.city(), []
        store_city(engine, SMALL, city)
        assert train_city(engine, folder, SMALL, city, lambda *progress: noted.append(progress)) == []
        assert noted == []
        key = demo_key(engine, folder)
        assert demo_key(engine, folder) == key
        (prepared / "demo.key").unlink()
        assert demo_key(engine, folder) != key
        engine.dispose()

    def test_one_demo_at_a_time_of_one_size(self, tmp_path):
        folder = DemoFolder(tmp_path)
        with folder.held(SMALL), pytest.raises(FileExistsError, match="in use by another demo"), folder.held(SMALL):
            pass
        with pytest.raises(FileExistsError, match="links=2 and days=14"), folder.held(DemoSize(3, 14)):
            pass

    def test_settings_of_another_service_do_not_reach_it(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", "postgresql://elsewhere/important")
        monkeypatch.setenv("FLOWCAST_AUTH", "off")
        environment = DemoFolder(tmp_path).environment()
        assert environment["FLOWCAST_DATABASE_URL"].startswith("sqlite:///")
        assert "FLOWCAST_AUTH" not in environment

    def test_too_few_days_are_refused(self):
        with pytest.raises(ValueError, match="days=9 is refused"):
            DemoSize(days=9)


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    command = [FLOWCAST, "demo", "--links", "2", "--days", "14", "--data", folder, "--port", "0", *options]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def command(*options: str) -> Result:
    """Run the command here, where no signal is what it is about; the service that it starts is a process anyway."""
    return CliRunner().invoke(cli, ["demo", "--links", "2", "--days", "14", *options])


def introduction(lines: list[str]) -> tuple[str, str]:
    """Return the address and the key that are printed with three calls to try."""
    assert sum("curl -H" in line for line in lines) == 3, lines
    return lines[0].split()[1], lines[1].split()[1]


def is_served(address: str) -> bool:
    try:
        with urlopen(f"{address}/livez", timeout=WAIT_SECONDS):
            return True
    except OSError:
        return False


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.journey
class TestDemoCommand:
    def test_it_stops_by_itself(self, prepared, monkeypatch):
        monkeypatch.setenv("DEMO_SECONDS", "1")
        demo = command("--data", str(prepared), "--port", "0")
        assert demo.exit_code == 0, demo.stderr
        assert "stopped" in demo.stderr
        address, _ = introduction(demo.stdout.splitlines()[:6])
        assert not is_served(address)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_forecasts_move_and_however_it_ends_the_service_ends_with_it(self, prepared, number):
        with start(prepared, "--speed", "600") as demo:
            assert demo.stdout is not None
            address, key = introduction([demo.stdout.readline() for _ in range(6)])
            seen = set()
            request = Request(f"{address}/v1/links/Ba/forecast", headers={"X-API-Key": key})

            def has_moved() -> bool:
                with urlopen(request, timeout=WAIT_SECONDS) as answer:
                    seen.add(json.load(answer)["forecasts"][0]["as_of_slot"])
                return len(seen) == 2

            wait_until(has_moved)
            started = psutil.Process(demo.pid).children(recursive=True)
            demo.send_signal(number)
            demo.communicate(timeout=2 * WAIT_SECONDS)
        assert demo.returncode == (-9 if number == signal.SIGKILL else 0)
        wait_until(lambda: not is_served(address))
        assert started
        wait_until(lambda: all(map(has_ended, started)))

    def test_what_cannot_be_done_is_refused_in_one_line(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            refused = command("--data", str(tmp_path / "a"), "--port", port)
        assert refused.exit_code == 2
        assert refused.stderr.splitlines() == [
            f"flowcast demo: port {port} cannot be used: address already in use; --port or DEMO_PORT names another"
        ]
        refused = command("--data", "/proc/no-space-there", "--port", "0")  # a file system that never has any
        assert refused.exit_code == 2
        assert refused.stderr.splitlines() == [
            "flowcast demo: no space is left on the disk of /proc/no-space-there; free 100 MB there, "
            "or --data names another folder"
        ]
        refused = command("--data", str(tmp_path / "b"), "--speed", "0")
        assert refused.exit_code == 2
        assert "speed=0 is refused" in refused.stderr
        assert not (tmp_path / "b").exists()


class TestDemoOfAServiceThatRuns:
    key = "a-key-for-the-demo-only"

    @pytest.fixture(autouse=True)
    def _own_settings(self, fresh_settings: None) -> None:
        """Use ``fresh_settings``, because the command reads settings from the environment."""

    @pytest.mark.journey
    def test_its_database_has_the_city_and_its_clock_goes_on(self, prepared, tmp_path, monkeypatch):
        folder = DemoFolder(shutil.copytree(prepared, tmp_path / "service"))
        engine, city = open_database(folder.database_url), SMALL.city()
        with writing(engine) as session:  # a link that is no part of the city
            store_links(session, [LinkIn(link_id="other", zone="Europe/Berlin")])
        before = next_slot(engine, city)
        settings = folder.environment() | {"FLOWCAST_ADMIN_KEY": self.key}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        settings = {name: value for name, value in settings.items() if name.startswith("FLOWCAST_")}
        with running_service(folder.database_url, tmp_path, **settings) as service:
            where = ("--service", service.url, "--data", str(tmp_path / "demo"))
            done = command("--speed", "600", "--seconds", "1", *where)
            assert done.exit_code == 0, done.stderr
            _, answer, _ = service.request_as(self.key, "GET", "/v1/links/Ba/forecast")
            assert answer["forecasts"][0]["method"] == "ENSEMBLE"
        assert next_slot(engine, city) > before
        engine.dispose()
        assert "2 models are trained and active" in done.stderr
        assert self.key not in done.stdout + done.stderr

    def test_without_the_key_of_the_service_it_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", f"sqlite:///{tmp_path}/flowcast.db")
        monkeypatch.delenv("FLOWCAST_ADMIN_KEY", raising=False)
        refused = command("--service", "http://127.0.0.1:1", "--data", str(tmp_path))
        assert refused.exit_code == 2
        assert refused.stderr.startswith("flowcast demo: FLOWCAST_ADMIN_KEY is not set")
