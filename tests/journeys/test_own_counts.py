"""A file of one's own counts, as people have it, read by the shell and over REST alike."""

from datetime import datetime, timedelta
from pathlib import Path

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from app.cli import cli
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY, environment, run_flowcast, running_service

pytestmark = pytest.mark.journey

BERLIN_MIDNIGHT = datetime(2025, 9, 1)
OPTIONS = {"map": "link_id=Detector,slot_start=Time,count=Vol", "zone": "Europe/Berlin"}


def five_minute_file(*detectors: str, hours: int) -> str:
    """Return rows every five minutes of local time, separated by semicolons: 22 vehicles a quarter of an hour."""
    times = [BERLIN_MIDNIGHT + timedelta(minutes=5 * i) for i in range(12 * hours)]
    rows = [f"{at:%Y-%m-%d %H:%M};{name};4;{(6, 7, 9)[i % 3]}.0" for name in detectors for i, at in enumerate(times)]
    return "\n".join(["TIME;Detector;Lane;VOL", *rows, ""])


@on_sqlite
@pytest.mark.usefixtures("fresh_settings")
def test_shell_and_rest_sum_the_same_file_alike(database_url: str, tmp_path: Path):
    file, hourly, off = tmp_path / "counts.csv", tmp_path / "hourly.csv", tmp_path / "off.csv"
    file.write_text(five_minute_file("north", hours=24))
    off.write_text(five_minute_file("south", hours=3).replace("02:55", "02:54"))
    hourly.write_text("TIME;Detector;Lane;VOL\n" + "".join(f"2025-09-01 0{i}:00;south;4;60\n" for i in range(3)))
    shell = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]

    with running_service(database_url, tmp_path, "--no-worker") as service:
        where = environment(database_url, tmp_path)
        done = run_flowcast("import", file, *shell, "--create-links", **where)
        assert done.returncode == 0, done.stderr
        assert "rows of 5 minutes are summed into 96 slots of 15 minutes" in done.stdout

        assert service.request("PUT", "/v1/links/south", {"name": "South", "zone": "Europe/Berlin"})[0] == 201
        for bad, message in ((hourly, "counts cannot be split"), (off, "is off the grid of 5-minute slots")):
            refused = CliRunner().invoke(cli, ["import", str(bad), *shell], env=where)
            assert refused.exit_code == 2
            assert message in refused.stderr
            answer = upload(service.port, bad)
            assert answer.status_code == 422
            assert message in answer.json()["detail"]
        assert service.counts("south") == {}

        file.write_text(five_minute_file("south", hours=24))
        answer = upload(service.port, file)
        assert (answer.status_code, answer.json()["stored"]) == (200, 96)
        assert set(service.counts("south").values()) == {22}
        assert service.counts("south") == service.counts("north")
        assert max(service.counts("south")) == "2025-09-01T21:45:00Z"
        status, link = service.request("GET", "/v1/links/north")
        assert (status, link["zone"]) == (200, "Europe/Berlin")
        status, forecast = service.request("GET", "/v1/links/south/forecast")
        assert (status, forecast["forecasts"][0]["as_of_slot"]) == (200, "2025-09-01T21:45:00Z")


def upload(port: int, file: Path) -> httpx.Response:
    """Send a file as a form does."""
    return httpx.post(
        f"http://127.0.0.1:{port}/v1/import",
        params=OPTIONS,
        files={"file": (file.name, file.read_bytes())},
        headers={"X-API-Key": ADMIN_KEY},
        timeout=60,
    )
