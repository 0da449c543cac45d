"""What the clients of ``benchmarks.load`` ask, and when: feeds that post each slot as it closes, and readers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.http_load import request
from benchmarks.load_clients import Ask, Clients, Told
from benchmarks.running_service import KEY, Running

POST, FORECAST, ACCURACY, NETWORK = "POST counts", "GET forecast", "GET accuracy", "GET forecasts"
KINDS = (POST, FORECAST, ACCURACY, NETWORK)
LINES = {FORECAST: 16, ACCURACY: 4, NETWORK: 2}  # connections of readers; each feed has one of its own
MANY_LINES = {FORECAST: 64, ACCURACY: 160, NETWORK: 32}
LINES_A_FEED = 8
WARMING = ((ACCURACY, 40), (NETWORK, 4))
PATIENCE = 2.0  # seconds that a reader waits for a connection under overload, before it gives a question up
FULL_LINES = {FORECAST: 16, ACCURACY: 8, NETWORK: 4}


@dataclass(frozen=True)
class Rates:
    """How much is asked a second, and how long a slot lasts here."""

    forecasts: float = 500.0
    accuracy: float = 5.0
    network: float = 1.0
    slot_seconds: float = 60.0
    spread: float = 0.5  # part of a slot's length in which its counts come, one feed after another

    def a_second(self, feeds: int) -> float:
        """All requests of a second, of readers and feeds."""
        return self.forecasts + self.accuracy + self.network + feeds / self.slot_seconds


@dataclass(frozen=True)
class Traffic:
    """Links, and batches of counts to post: those of all feeds for one slot, then those for the next."""

    link_ids: list[str]
    batches: list[bytes]
    feeds: int
    rates: Rates

    def mixed(self, seconds: float, seed: int, *, times: float = 1.0, first: int = 0, begin: float = 0.0) -> list[Ask]:
        """Plan feeds and readers together, ``times`` as fast as the rates say, from a batch and a moment on."""
        chance, rates = random.Random(seed), self.rates
        posts = self._posts(seconds, times, chance)
        readers = (
            self._reads(FORECAST, rates.forecasts * times, seconds, chance),
            self._reads(ACCURACY, rates.accuracy * times, seconds, chance),
            self._reads(NETWORK, rates.network * times, seconds, chance),
        )
        asks = heapq.merge(sorted(posts), *readers, key=lambda ask: ask.at)
        return [ask._replace(at=ask.at + begin, place=ask.place + first if ask.place >= 0 else -1) for ask in asks]

    def every_link(self) -> list[Ask]:
        """Plan two forecasts of every link, and the readers' other questions until every process has seen them."""
        links = [Ask(0.0, FORECAST, self._forecast(link_id)) for link_id in self.link_ids * 2]
        chance = random.Random(0)
        return [*links, *(Ask(0.0, kind, self._question(kind, chance)) for kind, n in WARMING for _ in range(n))]

    def endless(self, seed: int) -> Iterator[Ask]:
        """Give the mix in its proportions, without times."""
        chance, rates, place = random.Random(seed), self.rates, 0
        weights = (self.feeds / rates.slot_seconds, rates.forecasts, rates.accuracy, rates.network)
        while True:
            kind = chance.choices(KINDS, weights)[0]
            if kind == POST and place < len(self.batches):
                yield Ask(0.0, POST, b"", place)
                place += 1
            else:
                kind = FORECAST if kind == POST else kind
                yield Ask(0.0, kind, self._question(kind, chance))

    def written(self, ask: Ask) -> Ask:
        """Add the body to a question that posts counts; plans are small without."""
        return ask if ask.request else ask._replace(request=request("POST", "/v1/counts", KEY, self.batches[ask.place]))

    def _posts(self, seconds: float, times: float, chance: random.Random) -> Iterator[Ask]:
        length = self.rates.slot_seconds / times
        for slot in range(int(seconds / length)):
            for feed in range(self.feeds):
                at = slot * length + chance.random() * length * self.rates.spread
                yield Ask(at, POST, b"", slot * self.feeds + feed)

    def _reads(self, kind: str, rate: float, seconds: float, chance: random.Random) -> Iterator[Ask]:
        chance = random.Random(chance.random())
        at = chance.expovariate(rate) if rate else seconds
        while at < seconds:
            yield Ask(at, kind, self._question(kind, chance))
            at += chance.expovariate(rate)

    def _question(self, kind: str, chance: random.Random) -> bytes:
        if kind == NETWORK:
            return request("GET", "/v1/forecasts", KEY)
        link_id = chance.choice(self.link_ids)
        return self._forecast(link_id) if kind == FORECAST else request("GET", f"/v1/links/{link_id}/accuracy", KEY)

    def _forecast(self, link_id: str) -> bytes:
        return request("GET", f"/v1/links/{link_id}/forecast", KEY)


def drive(service: Running, traffic: Traffic, plans: Sequence[Sequence[Ask]], lines: dict[str, int]) -> list[Told]:
    """Carry plans out, one after another, over the same connections."""
    clients = Clients(service, lines, traffic.feeds)
    told = [clients.drive(traffic.written(ask) for ask in plan) for plan in plans]
    clients.close()
    return told


def overload(service: Running, traffic: Traffic, plan: Sequence[Ask]) -> Told:
    """Carry out a plan that is too much, over as many connections as that takes."""
    clients = Clients(service, MANY_LINES, traffic.feeds, LINES_A_FEED, PATIENCE)
    told = clients.drive(traffic.written(ask) for ask in plan)
    clients.close()
    return told


def saturate(service: Running, traffic: Traffic, seconds: float, seed: int) -> Told:
    """Ask as much of the mix as can be served."""
    clients = Clients(service, FULL_LINES, traffic.feeds)
    told = clients.saturate((traffic.written(ask) for ask in traffic.endless(seed)), seconds)
    clients.close()
    return told
