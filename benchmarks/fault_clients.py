"""Clients of a service that is killed: each knows what was acknowledged, and sends again what was not."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.running_service import KEY

FIRST_SLOT = 1_000_000_800  # Unix seconds, on the grid of a quarter of an hour
SLOT_SECONDS = 900
AGAIN_SECONDS = 0.1
NO_ANSWER = 0


@dataclass
class Attempt:
    """One request that was sent; ``status`` is 0 where no answer came."""

    port: int  # of the client's end, by which the process that has it is found
    status: int | None = None
    over: threading.Event = field(default_factory=threading.Event)


class Client(threading.Thread):
    """Asks without end over one connection, and can be seen waiting for an answer."""

    def __init__(self, port: int, rng: random.Random, pause: float) -> None:
        super().__init__(daemon=True)
        self.port, self.rng, self.pause = port, rng, pause
        self.in_flight: Attempt | None = None
        self.sent = threading.Event()
        self.local_port = 0
        self.unexpected: list[str] = []
        self._connection: http.client.HTTPConnection | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Ask until told to end."""
        while not self._ended.is_set():
            self.ask_once()
            self._ended.wait(self.rng.uniform(0, 2 * self.pause))
        if self._connection is not None:
            self._connection.close()

    def ask_once(self) -> None:
        """Ask what is next."""
        raise NotImplementedError

    def end(self) -> None:
        """Finish what is under way."""
        self._ended.set()
        self.join(timeout=120)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask once; status 0 where no answer came."""
        attempt = Attempt(0)
        data = None if body is None else json.dumps(body).encode()
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self._connection.connect()
                self.local_port = self._connection.sock.getsockname()[1]
            attempt.port = self.local_port
            headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
            self._connection.request(method, path, data, headers)
            self.in_flight = attempt
            self.sent.set()
            answer = self._connection.getresponse()
            said = json.loads(answer.read() or b"null")
            attempt.status = answer.status
            if answer.status >= 500 and answer.status != 503:
                self.unexpected.append(f"{method} {path}: {answer.status}")
            return answer.status, said
        except (OSError, http.client.HTTPException, ValueError):
            attempt.status = NO_ANSWER
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return NO_ANSWER, None
        finally:
            self.in_flight = None
            self.sent.clear()
            attempt.over.set()

    def until_answered(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask again and again, as long as the service is not there or says to come again."""
        while True:
            status, said = self.ask(method, path, body)
            if status not in (NO_ANSWER, 429, 503) or (self._ended.is_set() and status == NO_ANSWER):
                return status, said
            time.sleep(AGAIN_SECONDS)


class Feed(Client):
    """Posts counts of its own links: new ones, now and then some again, now and then a correction."""

    def __init__(self, port: int, rng: random.Random, links: Sequence[str], kills: Callable[[], int]) -> None:
        super().__init__(port, rng, 0.03)
        self.links, self._kills = links, kills
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.replaced: dict[tuple[str, int], list[int]] = {}
        self.at_kill: dict[tuple[str, int], int] = {}  # how many kills there were when a count was acknowledged
        self.slots = 0  # begun so far

    def ask_once(self) -> None:
        """Post a batch until it is acknowledged."""
        link, kind = self.rng.choice(self.links), self.rng.random()
        if kind < 0.1 and self.acknowledged:
            batch = dict(self.rng.sample(sorted(self.acknowledged.items()), 1))
            batch = {place: count + 1 for place, count in batch.items()}  # a correction
        elif kind < 0.25 and self.acknowledged:
            batch = dict(list(self.acknowledged.items())[-self.rng.randint(1, 30) :])  # the same once more
        else:
            n = self.rng.randint(1, 40)
            batch = {(link, self.slots + i): self.rng.randint(0, 900) for i in range(n)}
            self.slots += n
        rows = [{"link_id": at, "slot_start": slot_name(slot), "count": n} for (at, slot), n in batch.items()]
        status, said = self.until_answered("POST", "/v1/counts", {"counts": rows})
        if status != 200:
            if status != NO_ANSWER:
                self.unexpected.append(f"POST /v1/counts: {status} {said}")
            return
        # Sent again, a count that was lost would be there once more, and nobody would miss it at the end.
        known = sum(place in self.acknowledged for place in batch)
        if known and said["stored"]:
            self.unexpected.append(f"{said['stored']} of {known} acknowledged counts were new when sent again")
        for place, count in batch.items():
            old = self.acknowledged.get(place)
            if old is not None and old != count:
                self.replaced.setdefault(place, []).append(old)
            self.acknowledged[place] = count
            self.at_kill[place] = self._kills()


class Swap(Client):
    """Activates one of two versions after the other."""

    def __init__(self, port: int, rng: random.Random, links: Sequence[str]) -> None:
        super().__init__(port, rng, 0.05)
        self.links = links
        self.active: dict[str, int] = {}
        self.acknowledged = 0

    def ask_once(self) -> None:
        """Activate the other version of a link, until that is acknowledged."""
        link = self.rng.choice(self.links)
        version = 3 - self.active.get(link, 2)
        path = f"/v1/admin/links/{link}/models/{version}/activate"
        status, said = self.until_answered("POST", path, {"reason": "swapped"})
        if status == 200:
            self.active[link] = version
            self.acknowledged += 1
        elif status != NO_ANSWER:
            self.unexpected.append(f"POST {path}: {status} {said}")


class Ask(Client):
    """Reads forecasts, and sees that each is of one version."""

    def __init__(self, port: int, rng: random.Random, links: Sequence[str]) -> None:
        super().__init__(port, rng, 0.05)
        self.links = links
        self.answers = self.stale = 0

    def ask_once(self) -> None:
        """Ask for a link's forecast."""
        status, said = self.ask("GET", f"/v1/links/{self.rng.choice(self.links)}/forecast?horizon=4")
        if status == 200:
            self.answers += 1
            self.stale += said["stale"]
            if len({(one["model_version"], one["issued_at"]) for one in said["forecasts"]}) != 1:
                self.unexpected.append(f"a forecast of two: {said}")


class Retrain(Client):
    """Asks for runs, so that there is always one to carry out."""

    def __init__(self, port: int, rng: random.Random, activating: Sequence[str], others: Sequence[str]) -> None:
        super().__init__(port, rng, 0.3)
        self._activating, self._links = set(activating), [*activating, *others]
        self.accepted: list[int] = []

    def ask_once(self) -> None:
        """Ask for a run of one link; one that is in a run already is refused."""
        link = self.rng.choice(self._links)
        wish = {"links": [link], "activate": "always" if link in self._activating else "never", **TRAINING}
        status, said = self.ask("POST", "/v1/admin/retrain", wish)
        if status == 202:
            self.accepted.append(said["run_id"])


TRAINING = {
    "algorithm": "KR_SML",
    "parameters": {"lags": 45, "n_neighbors": 20, "max_iter": 20, "held_out_days": 4, "mu": [1e-2, 1e-3]},
}


def slot_name(slot: int) -> str:
    """Write the start of a feed's slot, by number."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_SLOT + slot * SLOT_SECONDS))
