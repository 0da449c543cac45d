"""Clients of a service that is killed. They record what was acknowledged, and send again what was not."""

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
RETRY_SECONDS = 0.1
NO_ANSWER = 0


@dataclass
class Attempt:
    """One request that was sent; ``status`` is 0 if there was no response."""

    port: int  # of the client, by which the serving process is found
    status: int | None = None
    over: threading.Event = field(default_factory=threading.Event)


class Client(threading.Thread):
    """A thread that sends requests over one connection and shows which one is in flight."""

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
        """Send requests until ``end`` is called."""
        while not self._ended.is_set():
            self.send_next()
            self._ended.wait(self.rng.uniform(0, 2 * self.pause))
        if self._connection is not None:
            self._connection.close()

    def send_next(self) -> None:
        """Send the next request."""
        raise NotImplementedError

    def end(self) -> None:
        """Finish the request in flight and stop."""
        self._ended.set()
        self.join(timeout=120)

    def send(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one request; status 0 means no response."""
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
            content = json.loads(answer.read() or b"null")
            attempt.status = answer.status
            if answer.status >= 500 and answer.status != 503:
                self.unexpected.append(f"{method} {path}: {answer.status}")
            return answer.status, content
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

    def send_until_answered(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request until there is a response other than 429 or 503."""
        while True:
            status, content = self.send(method, path, body)
            if status not in (NO_ANSWER, 429, 503) or (self._ended.is_set() and status == NO_ANSWER):
                return status, content
            time.sleep(RETRY_SECONDS)


class CountFeed(Client):
    """Posts counts of its own links: mostly new ones, sometimes repeated ones or corrections."""

    def __init__(self, port: int, rng: random.Random, links: Sequence[str], kills: Callable[[], int]) -> None:
        super().__init__(port, rng, 0.03)
        self.links, self._kills = links, kills
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.replaced: dict[tuple[str, int], list[int]] = {}
        self.at_kill: dict[tuple[str, int], int] = {}  # number of kills before a count was acknowledged
        self.slots = 0  # number of slots used so far

    def send_next(self) -> None:
        """Post a batch until it is acknowledged."""
        link, kind = self.rng.choice(self.links), self.rng.random()
        if kind < 0.1 and self.acknowledged:
            batch = dict(self.rng.sample(sorted(self.acknowledged.items()), 1))
            batch = {place: count + 1 for place, count in batch.items()}  # a correction
        elif kind < 0.25 and self.acknowledged:
            batch = dict(list(self.acknowledged.items())[-self.rng.randint(1, 30) :])  # a repetition
        else:
            n = self.rng.randint(1, 40)
            batch = {(link, self.slots + i): self.rng.randint(0, 900) for i in range(n)}
            self.slots += n
        rows = [{"link_id": at, "slot_start": slot_name(slot), "count": n} for (at, slot), n in batch.items()]
        status, body = self.send_until_answered("POST", "/v1/counts", {"counts": rows})
        if status != 200:
            if status != NO_ANSWER:
                self.unexpected.append(f"POST /v1/counts: {status} {body}")
            return
        # A repetition stores a count that was lost, which would hide the loss from the checks at the end.
        known = sum(place in self.acknowledged for place in batch)
        if known and body["stored"]:
            self.unexpected.append(f"{body['stored']} of {known} acknowledged counts were new when sent again")
        for place, count in batch.items():
            old = self.acknowledged.get(place)
            if old is not None and old != count:
                self.replaced.setdefault(place, []).append(old)
            self.acknowledged[place] = count
            self.at_kill[place] = self._kills()


class ModelSwapper(Client):
    """Activates two versions alternately."""

    def __init__(self, port: int, rng: random.Random, links: Sequence[str]) -> None:
        super().__init__(port, rng, 0.05)
        self.links = links
        self.active: dict[str, int] = {}
        self.acknowledged = 0

    def send_next(self) -> None:
        """Activate the other version of a link and wait for the acknowledgement."""
        link = self.rng.choice(self.links)
        version = 3 - self.active.get(link, 2)
        path = f"/v1/admin/links/{link}/models/{version}/activate"
        status, body = self.send_until_answered("POST", path, {"reason": "swapped"})
        if status == 200:
            self.active[link] = version
            self.acknowledged += 1
        elif status != NO_ANSWER:
            self.unexpected.append(f"POST {path}: {status} {body}")


class ForecastReader(Client):
    """Reads forecasts, and checks that each is of one version."""

    def __init__(self, port: int, rng: random.Random, links: Sequence[str]) -> None:
        super().__init__(port, rng, 0.05)
        self.links = links
        self.answers = self.stale = 0

    def send_next(self) -> None:
        """Read a link's forecast."""
        status, body = self.send("GET", f"/v1/links/{self.rng.choice(self.links)}/forecast?horizon=4")
        if status == 200:
            self.answers += 1
            self.stale += body["stale"]
            if len({(one["model_version"], one["issued_at"]) for one in body["forecasts"]}) != 1:
                self.unexpected.append(f"a forecast of two: {body}")


class RetrainRequester(Client):
    """Requests runs, so that there is always one to execute."""

    def __init__(self, port: int, rng: random.Random, activating: Sequence[str], others: Sequence[str]) -> None:
        super().__init__(port, rng, 0.3)
        self._activating, self._links = set(activating), [*activating, *others]
        self.accepted: list[int] = []

    def send_next(self) -> None:
        """Request a run of one link; the service refuses a link that is in a run already."""
        link = self.rng.choice(self._links)
        wish = {"links": [link], "activate": "always" if link in self._activating else "never", **TRAINING}
        status, body = self.send("POST", "/v1/admin/retrain", wish)
        if status == 202:
            self.accepted.append(body["run_id"])


TRAINING = {
    "algorithm": "KR_SML",
    "parameters": {"lags": 45, "n_neighbors": 20, "max_iter": 20, "held_out_days": 4, "mu": [1e-2, 1e-3]},
}


def slot_name(slot: int) -> str:
    """Return the start of a feed's slot, by its number, as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_SLOT + slot * SLOT_SECONDS))
