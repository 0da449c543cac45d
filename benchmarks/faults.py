"""Kill the service, its worker and PostgreSQL in the middle of things, and count what was lost: nothing should be.

Feeds post counts, correct them and send them again, models are swapped, runs are carried out, and all the while
processes are killed by SIGKILL and started again. A kill counts only where it landed in the middle of something:
of a batch or a swap that was sent and not answered, of a run with a link in training. At the end every count that
was acknowledged is looked for, in the database and over the API.
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
from benchmarks.fault_clients import Ask, Client, Feed, Retrain, Swap

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
LONGEST_REQUEST, LONGEST_RUN = 0.015, 0.5  # seconds that a kill waits at most, once something is under way
LAND_SECONDS = 60.0
FINISH_SECONDS = 240.0
TRAINING = """
    SELECT run_id, link_key FROM retrain_links JOIN retrain_runs ON id = run_id
    WHERE retrain_links.state = 'training' AND retrain_runs.state = 'running' AND worker LIKE %s
"""
OPEN = "SELECT 1 FROM retrain_links WHERE run_id = %s AND link_key = %s AND state IN ('waiting', 'training')"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = 'faults' AND pid <> pg_backend_pid()"


@dataclass
class Killer:
    """Kills one thing after another, and knows which kills landed."""

    city: FaultCity
    rng: random.Random
    feeds: list[Feed]
    swap: Swap
    landed: list[tuple[str, str]] = field(default_factory=list)
    missed: int = 0

    def kill(self, target: str, where: str) -> bool:
        """Kill a target in the middle of something; False where that was over by then."""
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
        self.city.wait_for("the service", lambda: self.city.ask("GET", "/readyz")[0] == 200)
        backends = self._backends() if target == BACKEND else []
        until = time.monotonic() + LAND_SECONDS
        while time.monotonic() < until:
            self.city.keep_alive()
            port = client.local_port
            victim = self.city.server_of(port) if target == PROCESS else None
            if not client.sent.wait(1.0) or (target == PROCESS and victim is None):
                continue
            attempt = client.in_flight
            time.sleep(self.rng.uniform(0, LONGEST_REQUEST))
            if attempt is None or client.in_flight is not attempt or (victim is not None and attempt.port != port):
                continue
            struck = self._strike(target, victim, backends)
            attempt.over.wait(LAND_SECONDS)
            self._restore(target)
            return struck and attempt.status != 200
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
            time.sleep(self.rng.uniform(0, LONGEST_RUN))
            if self.city.rows(TRAINING, mine) != under_way:
                continue
            struck = self._strike(target, None, self._backends() if target == BACKEND else [])
            self._restore(target)
            return struck and bool(self.city.rows(OPEN, *under_way[0]))
        raise TimeoutError

    def _backends(self) -> list[int]:
        return [pid for (pid,) in self.city.rows(BACKENDS)]

    def _strike(self, target: str, victim: int | None, backends: Sequence[int]) -> bool:
        """Kill, and tell whether there was somebody to kill."""
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

    def _restore(self, target: str) -> None:
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
) -> tuple[Killer, Findings, list[Feed]]:
    """Kill until so many kills landed, let everything finish, and look what there is."""
    rng = random.Random(seed)
    names = [[f"feed-{i}-{j}" for j in (1, 2)] for i in range(FEEDS)]
    swapped, activating = ["swap-1", "swap-2"], ["run-1", "run-2"]
    notes.print("starting PostgreSQL, the service with two processes, and the worker; training two versions a link")
    with fault_city(folder, [link for links in names for link in links], swapped, activating, fsync=fsync) as city:
        landed: list[tuple[str, str]] = []
        own = [random.Random(rng.random()) for _ in range(FEEDS + 3)]
        feeds = [Feed(city.port, own[i], links, lambda: len(landed)) for i, links in enumerate(names)]
        swap, retrain = Swap(city.port, own[-1], swapped), Retrain(city.port, own[-2], activating, swapped)
        ask = Ask(city.port, own[-3], [*swapped, *activating])
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
                elif not notes.is_terminal and len(landed) % 10 == 0:  # where no bar is drawn
                    notes.print(f"{len(landed)} of {kills} kills landed")
                progress.update(bar, completed=len(landed), description=f"killed {target} in a {where}")
        notes.print(f"{len(landed)} kills landed, {killer.missed} did not; letting everything finish")
        retrain.end()
        city.wait_for("the service", city.ready)
        for client in clients:
            client.end()
        city.wait_for("the runs", lambda: city.open_runs() == 0, FINISH_SECONDS)
        found = check(city, feeds, swap, retrain)
        found.wrong["unexpected answers"] += len(ask.unexpected)
        for client in clients:
            for line in client.unexpected[:5]:
                notes.print(line, style="red", markup=False)
        facts = f"{swap.acknowledged} swaps, {len(retrain.accepted)} runs, {ask.answers} forecasts read"
        notes.print(f"{facts}, {ask.stale} of them stale")
        return killer, found, feeds


def table(killer: Killer, found: Findings, feeds: Sequence[Feed]) -> list[dict[str, object]]:
    """Sum up by target and by where kills landed; a count belongs to the first kill after it was acknowledged."""
    at_kill = {place: kill for feed in feeds for place, kill in feed.at_kill.items()}
    kinds = [*killer.landed, ("no kill", "after the last")]

    def by_kind(places: Sequence[tuple[str, int]]) -> Counter[tuple[str, str]]:
        return Counter(kinds[min(at_kill.get(place, len(kinds)), len(kinds) - 1)] for place in places)

    acknowledged, lost = by_kind(list(at_kill)), by_kind(found.lost)
    doubled, corrected = by_kind(found.doubled), by_kind(found.corrected)
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


def show(rows: Sequence[dict[str, object]], found: Findings) -> None:
    """Print the table with its sums, and everything else that was looked for."""
    titles = list(rows[0])
    total: dict[str, object] = {"target": "all", "landed in a": ""}
    total |= {title: sum(int(str(row[title])) for row in rows) for title in titles[2:]}
    print(f"{titles[0]:26}{titles[1]:16}" + "".join(f"{title:>19}" for title in titles[2:]))
    for row in [*rows, total]:
        print(f"{row['target']:26}{row['landed in a']:16}" + "".join(f"{row[title]:>19}" for title in titles[2:]))
    print()
    for name, n in found.wrong.items():
        print(f"{name}: {n}")


def main() -> int:
    """Run it from the command line; exit code 1 when anything was lost, doubled or otherwise wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many must land in the middle of something")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-fsync", action="store_true", help="spare the disk; kills cannot tell the difference")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.kills < 1:
        parser.error(f"--kills={options.kills} is refused; it must be at least 1")
    notes = Console(stderr=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flowcast-faults-") as folder:
        killer, found, feeds = run(options.kills, options.seed, Path(folder), fsync=not options.no_fsync, notes=notes)
    rows = table(killer, found, feeds)
    seconds = round(time.monotonic() - began)
    if options.json:
        print(json.dumps({"kills": rows, "wrong": found.wrong, "missed": killer.missed, "seconds": seconds}))
    else:
        show(rows, found)
        verdict = "nothing is wrong" if found.sound else "something is wrong"
        print(f"\n{len(killer.landed)} kills landed in {seconds} s, {killer.missed} did not: {verdict}")
    return 0 if found.sound and len(killer.landed) >= options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
