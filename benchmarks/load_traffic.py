"""The requests of ``benchmarks.load`` and when they are due: feeds that post each slot as it closes, and readers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.http_load import request
from benchmarks.load_clients import ClientResults, Clients, PlannedRequest
from benchmarks.running_service import KEY, Running

POST, FORECAST, ACCURACY, NETWORK = "POST counts", "GET forecast", "GET accuracy", "GET forecasts"
KINDS = (POST, FORECAST, ACCURACY, NETWORK)
CONNECTIONS = {FORECAST: 16, ACCURACY: 4, NETWORK: 2}  # connections of readers; each feed has another one
OVERLOAD_CONNECTIONS = {FORECAST: 64, ACCURACY: 160, NETWORK: 32}
CONNECTIONS_PER_FEED = 8
WARM_UP_READS = ((ACCURACY, 40), (NETWORK, 4))
PATIENCE = 2.0  # seconds that a read waits for a connection under overload before it is dropped
SATURATION_CONNECTIONS = {FORECAST: 16, ACCURACY: 8, NETWORK: 4}


@dataclass(frozen=True)
class Rates:
    """Requests per second, and the length of a slot."""

    forecasts: float = 500.0
    accuracy: float = 3.0
    network: float = 1.0
    slot_seconds: float = 90.0
    spread: float = 0.5  # share of a slot in which its counts are posted

    def requests_per_second(self, feeds: int) -> float:
        """Return the requests per second of readers and feeds together."""
        return self.forecasts + self.accuracy + self.network + feeds / self.slot_seconds


@dataclass(frozen=True)
class Traffic:
    """Links, and batches of counts to post: those of all feeds for one slot, then those for the next."""

    link_ids: list[str]
    batches: list[bytes]
    feeds: int
    rates: Rates

    def mixed(
        self, seconds: float, seed: int, *, times: float = 1.0, first: int = 0, begin: float = 0.0
    ) -> list[PlannedRequest]:
        """Plan feeds and readers at ``times`` the rates, from batch ``first`` and second ``begin`` on."""
        rng, rates = random.Random(seed), self.rates
        posts = self._planned_posts(seconds, times, rng)
        readers = (
            self._planned_reads(FORECAST, rates.forecasts * times, seconds, rng),
            self._planned_reads(ACCURACY, rates.accuracy * times, seconds, rng),
            self._planned_reads(NETWORK, rates.network * times, seconds, rng),
        )
        requests = heapq.merge(sorted(posts), *readers, key=lambda planned: planned.due)
        return [
            planned._replace(due=planned.due + begin, batch=planned.batch + first if planned.batch >= 0 else -1)
            for planned in requests
        ]

    def warm_up_reads(self) -> list[PlannedRequest]:
        """Plan two forecasts of every link, and enough of the other reads to reach every process."""
        links = [PlannedRequest(0.0, FORECAST, self._forecast_request(link_id)) for link_id in self.link_ids * 2]
        rng = random.Random(0)
        return [
            *links,
            *(PlannedRequest(0.0, kind, self._read_request(kind, rng)) for kind, n in WARM_UP_READS for _ in range(n)),
        ]

    def endless(self, seed: int) -> Iterator[PlannedRequest]:
        """Yield requests in the proportions of the rates, without times."""
        rng, rates, batch = random.Random(seed), self.rates, 0
        weights = (self.feeds / rates.slot_seconds, rates.forecasts, rates.accuracy, rates.network)
        while True:
            kind = rng.choices(KINDS, weights)[0]
            if kind == POST and batch < len(self.batches):
                yield PlannedRequest(0.0, POST, b"", batch)
                batch += 1
            else:
                kind = FORECAST if kind == POST else kind
                yield PlannedRequest(0.0, kind, self._read_request(kind, rng))

    def with_body(self, planned: PlannedRequest) -> PlannedRequest:
        """Add the body to a request that posts counts; plans are smaller without bodies."""
        return (
            planned
            if planned.request
            else planned._replace(request=request("POST", "/v1/counts", KEY, self.batches[planned.batch]))
        )

    def _planned_posts(self, seconds: float, times: float, rng: random.Random) -> Iterator[PlannedRequest]:
        length = self.rates.slot_seconds / times
        for slot in range(int(seconds / length)):
            for feed in range(self.feeds):
                at = slot * length + rng.random() * length * self.rates.spread
                yield PlannedRequest(at, POST, b"", slot * self.feeds + feed)

    def _planned_reads(self, kind: str, rate: float, seconds: float, rng: random.Random) -> Iterator[PlannedRequest]:
        rng = random.Random(rng.random())
        at = rng.expovariate(rate) if rate else seconds
        while at < seconds:
            yield PlannedRequest(at, kind, self._read_request(kind, rng))
            at += rng.expovariate(rate)

    def _read_request(self, kind: str, rng: random.Random) -> bytes:
        if kind == NETWORK:
            return request("GET", "/v1/forecasts", KEY)
        link_id = rng.choice(self.link_ids)
        return (
            self._forecast_request(link_id)
            if kind == FORECAST
            else request("GET", f"/v1/links/{link_id}/accuracy", KEY)
        )

    def _forecast_request(self, link_id: str) -> bytes:
        return request("GET", f"/v1/links/{link_id}/forecast", KEY)


def drive(
    service: Running, traffic: Traffic, plans: Sequence[Sequence[PlannedRequest]], connections: dict[str, int]
) -> list[ClientResults]:
    """Execute plans one after another over the same connections."""
    clients = Clients(service, connections, traffic.feeds)
    results = [clients.drive(traffic.with_body(planned) for planned in plan) for plan in plans]
    clients.close()
    return results


def overload(service: Running, traffic: Traffic, plan: Sequence[PlannedRequest]) -> ClientResults:
    """Execute a plan that exceeds the capacity, over many connections."""
    clients = Clients(service, OVERLOAD_CONNECTIONS, traffic.feeds, CONNECTIONS_PER_FEED, PATIENCE)
    results = clients.drive(traffic.with_body(planned) for planned in plan)
    clients.close()
    return results


def saturate(service: Running, traffic: Traffic, seconds: float, seed: int) -> ClientResults:
    """Send the mix as fast as it is served."""
    clients = Clients(service, SATURATION_CONNECTIONS, traffic.feeds)
    results = clients.saturate((traffic.with_body(planned) for planned in traffic.endless(seed)), seconds)
    clients.close()
    return results
