"""``docs/getting-started.md``, run as written on a file of counts that Flowcast has never seen."""

import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tests.support.databases import on_sqlite
from tests.support.services import free_port, listens
from tests.support.waiting import TRAINING_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "getting-started.md").read_text()
ZONE = ZoneInfo("Europe/Berlin")
DAYS = 15
MOST_COMMANDS = 10


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Return the commands of the page, each on one line."""
    lines = "\n".join(blocks()).replace("\\\n", "").splitlines()
    return [line for line in lines if line and "=$(" not in line]


def write_counts(file: Path) -> None:
    """Write counts up to the slot before the one that has just ended, in local time, for two detectors."""
    now = datetime.now(UTC)
    last = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0) - timedelta(minutes=30)
    starts = [(last - timedelta(minutes=15 * back)).astimezone(ZONE) for back in range(DAYS * 96)][::-1]
    hours = np.array([start.hour + start.minute / 60 for start in starts])
    expected = 60 + 50 * np.sin((hours - 6) / 24 * 2 * np.pi)
    counts = np.random.default_rng(7).poisson(expected[:, None] * [1.0, 0.6])
    rows = (
        f"{link};{start:%Y-%m-%d %H:%M};{count}"
        for start, row in zip(starts, counts, strict=True)
        for link, count in zip(("high-street", "low-street"), row, strict=True)
    )
    file.write_text("\n".join(["Detector;Time;Vol", *rows]) + "\n")


def test_takes_at_most_ten_commands():
    assert 6 <= len(commands()) <= MOST_COMMANDS


@on_sqlite
@pytest.mark.usefixtures("database_url")
def test_leads_to_a_forecast(tmp_path):
    port = free_port()
    write_counts(tmp_path / "counts.csv")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    (tmp_path / "Makefile").write_text("setup:\n")
    script = "\n".join(blocks()).replace("localhost:8000", f"127.0.0.1:{port}")
    script = script.replace("flowcast serve &", f"flowcast serve --port {port} --no-worker > serve.log 2>&1 &")
    before, curls = script.split("ended=", 1)
    code = f"set -euo pipefail\n{before}\necho started\nread go\nended={curls}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FLOWCAST_")}
    shell = subprocess.Popen(
        ["bash", "-c", code],
        cwd=tmp_path,
        # On one core the links are trained in the command itself: other processes take longer to start than that.
        env=clean | {"PYTHONPATH": str(ROOT), "LOKY_MAX_CPU_COUNT": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: shell.poll() is not None or listens(port), seconds=TRAINING_SECONDS)
        shown, _ = shell.communicate("go\n", timeout=TRAINING_SECONDS)
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
    assert shell.returncode == 0, shown
    assert '"stored":1' in shown.replace(" ", ""), shown
    assert shown.count('"expected_count"') == 4, shown
    assert '"link_id":"high-street"' in shown.replace(" ", ""), shown
