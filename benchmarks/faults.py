"""Kill the service, its worker and PostgreSQL during requests and runs, and check that nothing is lost.

Feeds post counts, corrections and repetitions, model versions are swapped, and runs are executed, while processes are
killed by SIGKILL and started again. A kill is counted only if it interrupted something: a batch or a swap that was
sent and not yet answered, or a run with a link in training. At the end every count that was acknowledged is looked up
in the database and over the API.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.fault_checks import Findings, check
from benchmarks.fault_city import FEEDS, FaultCity, fault_city
from benchmarks.fault_clients import Client, CountFeed, ForecastReader, ModelSwapper, RetrainRequester

SERVICE, PROCESS, WORKER, DATABASE, BACKEND = (
    "service",
    "one of its two processes",
    "worker",
    "PostgreSQL",
    "one backend",
)
BATCH, SWAP, RUN = "batch", "swap", "run"
PLANNED: list[tuple[str, str]] = [
    (SERVICE, BATCH), (SERVICE, SWAP), (PROCESS, BATCH), (PROCESS, SWAP), (WORKER, RUN), (WORKER, RUN),
    (DATABASE, BATCH), (DATABASE, SWAP), (DATABASE, RUN), (BACKEND, BATCH), (BACKEND, SWAP), (BACKEND, RUN),
]  # fmt: skip
MAX_REQUEST_DELAY, MAX_RUN_DELAY = 0.015, 0.5  # seconds from a beginning to a kill, at most
LAND_SECONDS = 60.0
READ_SECONDS = 0.05  # in which a client reads an answer that was sent already
FINISH_SECONDS = 240.0
TRAINING = """
    SELECT run_id, link_key FROM retrain_links JOIN retrain_runs ON id = run_id
    WHERE retrain_links.state = 'training' AND retrain_runs.state = 'running' AND worker LIKE %s
"""
OPEN = "SELECT 1 FROM retrain_links WHERE run_id = %s AND link_key = %s AND state IN ('waiting', 'training')"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = 'faults' AND pid <> pg_backend_pid()"


@dataclass
class Killer:
    """Kills processes one after another, and records which kills interrupted something."""

    city: FaultCity
    rng: random.Random
    feeds: list[CountFeed]
    swap: ModelSwapper
    landed: list[tuple[str, str]] = field(default_factory=list)
    missed: int = 0

    def kill(self, target: str, where: str) -> bool:
        """Kill a target during a request or a run; return whether it was interrupted."""
        try:
            landed = self._in_a_run(target) if where == RUN else self._in_a_request(target, where)
        except TimeoutError:
            landed = False
        if landed:
            self.landed.append((target, where))
        else:
            self.missed += 1
        return landed

    def _in_a_request(self, target: str, where: str) -> bool:
        client: Client = self.swap if where == SWAP else self.rng.choice(self.feeds)
        self.city.wait_for("the service", lambda: self.city.request("GET", "/readyz")[0] == 200)
        backends = self._backends() if target == BACKEND else []
        until = time.monotonic() + LAND_SECONDS
        while time.monotonic() < until:
            self.city.keep_alive()
            port = client.local_port
            victim = self.city.server_of(port) if target == PROCESS else None
            if not client.sent.wait(1.0) or (target == PROCESS and victim is None):
                continue
            attempt = client.in_flight
            time.sleep(self.rng.uniform(0, MAX_REQUEST_DELAY))
            with self.city.paused("service"):
                if attempt is None or client.in_flight is not attempt or (victim is not None and attempt.port != port):
                    continue
                if attempt.over.wait(READ_SECONDS):  # it was answered already
                    continue
                killed = self._kill_process(target, victim, backends)
            attempt.over.wait(LAND_SECONDS)
            self._restart(target)
            return killed and attempt.status != 200
        raise TimeoutError

    def _in_a_run(self, target: str) -> bool:
        until = time.monotonic() + LAND_SECONDS
        while time.monotonic() < until:
            self.city.keep_alive()
            mine = f"%:{self.city.pid('worker')}:%"
            under_way = self.city.rows(TRAINING, mine)
            if not under_way:
                time.sleep(0.02)
                continue
            time.sleep(self.rng.uniform(0, MAX_RUN_DELAY))
            with self.city.paused(WORKER):
                if self.city.rows(TRAINING, mine) != under_way:
                    continue
                killed = self._kill_process(target, None, self._backends() if target == BACKEND else [])
            self._restart(target)
            return killed and bool(self.city.rows(OPEN, *under_way[0]))
        raise TimeoutError

    def _backends(self) -> list[int]:
        return [pid for (pid,) in self.city.rows(BACKENDS)]

    def _kill_process(self, target: str, victim: int | None, backends: Sequence[int]) -> bool:
        """Kill a target; return whether it was running."""
        if target in (SERVICE, WORKER):
            self.city.kill(target)
        elif target == DATABASE:
            self.city.database.kill()
        else:
            pid = victim if target == PROCESS else self.rng.choice(backends or [0])
            try:
                if not pid:
                    return False
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
        return True

    def _restart(self, target: str) -> None:
        if target == DATABASE:
            self.city.database.start()
        elif target == BACKEND:
            self.city.database.wait()
        self.city.keep_alive()


def run(
    kills: int,
    seed: int,
    folder: Path,
    *,
    fsync: bool,
    notes: Console,
    planned: Sequence[tuple[str, str]] = PLANNED,
) -> tuple[Killer, Findings, list[CountFeed]]:
    """Kill until ``kills`` interrupted something, wait until all clients have finished, and check the results."""
    rng = random.Random(seed)
    names = [[f"feed-{i}-{j}" for j in (1, 2)] for i in range(FEEDS)]
    swapped, activating = ["swap-1", "swap-2"], ["run-1", "run-2"]
    notes.print("starting PostgreSQL, the service with two processes, and the worker; training two versions a link")
    with fault_city(folder, [link for links in names for link in links], swapped, activating, fsync=fsync) as city:
        landed: list[tuple[str, str]] = []
        own = [random.Random(rng.random()) for _ in range(FEEDS + 3)]
        feeds = [CountFeed(city.port, own[i], links, lambda: len(landed)) for i, links in enumerate(names)]
        swap, retrain = (
            ModelSwapper(city.port, own[-1], swapped),
            RetrainRequester(city.port, own[-2], activating, swapped),
        )
        ask = ForecastReader(city.port, own[-3], [*swapped, *activating])
        clients: list[Client] = [*feeds, swap, retrain, ask]
        for client in clients:
            client.start()
        killer = Killer(city, rng, feeds, swap, landed)
        with Progress(console=notes, transient=True) as progress:
            bar = progress.add_task("killing", total=kills)
            plan: list[tuple[str, str]] = []
            while len(landed) < kills and killer.missed <= 2 * kills:
                plan = plan or rng.sample(planned, len(planned))
                target, where = plan.pop()
                if not killer.kill(target, where):
                    plan.insert(0, (target, where))
                elif not notes.is_terminal and len(landed) % 10 == 0:  # without a progress bar
                    notes.print(f"{len(landed)} of {kills} kills done")
                progress.update(bar, completed=len(landed), description=f"killed {target} in a {where}")
        notes.print(
            f"{len(landed)} kills interrupted something, {killer.missed} did not; waiting until everything has finished"
        )
        retrain.end()
        city.wait_for("the service", city.ready)
        for client in clients:
            client.end()
        city.wait_for("the runs", lambda: city.open_runs() == 0, FINISH_SECONDS)
        findings = check(city, feeds, swap, retrain)
        findings.wrong["unexpected answers"] += len(ask.unexpected)
        for client in clients:
            for line in client.unexpected[:5]:
                notes.print(line, style="red", markup=False)
        facts = f"{swap.acknowledged} swaps, {len(retrain.accepted)} runs, {ask.answers} forecasts read"
        notes.print(f"{facts}, {ask.stale} of them stale")
        return killer, findings, feeds


def table(killer: Killer, findings: Findings, feeds: Sequence[CountFeed]) -> list[dict[str, object]]:
    """Return the sums by target and interrupted work; a count belongs to the first kill after its acknowledgement."""
    at_kill = {place: kill for feed in feeds for place, kill in feed.at_kill.items()}
    kinds = [*killer.landed, ("no kill", "after the last")]

    def by_kind(places: Sequence[tuple[str, int]]) -> Counter[tuple[str, str]]:
        return Counter(kinds[min(at_kill.get(place, len(kinds)), len(kinds) - 1)] for place in places)

    acknowledged, lost = by_kind(list(at_kill)), by_kind(findings.lost)
    doubled, corrected = by_kind(findings.doubled), by_kind(findings.corrected)
    kills = Counter(killer.landed)
    return [
        {
            "target": kind[0],
            "landed in a": kind[1],
            "kills": kills[kind],
            "acknowledged": acknowledged[kind],
            "lost": lost[kind],
            "doubled": doubled[kind],
            "corrected wrongly": corrected[kind],
        }
        for kind in [*sorted(kills), kinds[-1]]
    ]


def show(rows: Sequence[dict[str, object]], findings: Findings) -> None:
    """Print the table with its sums, and the results of the other checks."""
    titles = list(rows[0])
    total: dict[str, object] = {"target": "all", "landed in a": ""}
    total |= {title: sum(int(str(row[title])) for row in rows) for title in titles[2:]}
    print(f"{titles[0]:26}{titles[1]:16}" + "".join(f"{title:>19}" for title in titles[2:]))
    for row in [*rows, total]:
        print(f"{row['target']:26}{row['landed in a']:16}" + "".join(f"{row[title]:>19}" for title in titles[2:]))
    print()
    for name, n in findings.wrong.items():
        print(f"{name}: {n}")


def main() -> int:
    """Run the benchmark; return 1 if anything was lost, doubled or otherwise wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="number of kills that must interrupt something (200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices (1)")
    parser.add_argument(
        "--no-fsync", action="store_true", help="run PostgreSQL without fsync, which only a power cut would reveal"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args()
    if options.kills < 1:
        parser.error(f"--kills={options.kills} is refused; it must be at least 1")
    notes = Console(stderr=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flowcast-faults-") as folder:
        killer, findings, feeds = run(
            options.kills, options.seed, Path(folder), fsync=not options.no_fsync, notes=notes
        )
    rows = table(killer, findings, feeds)
    seconds = round(time.monotonic() - began)
    if options.json:
        print(json.dumps({"kills": rows, "wrong": findings.wrong, "missed": killer.missed, "seconds": seconds}))
    else:
        show(rows, findings)
        verdict = "nothing is wrong" if findings.ok else "something is wrong"
        print(f"\n{len(killer.landed)} kills interrupted something in {seconds} s, {killer.missed} did not: {verdict}")
    return 0 if findings.ok and len(killer.landed) >= options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
