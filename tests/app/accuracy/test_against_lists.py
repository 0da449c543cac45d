"""The database's sums agree with the measures of plain lists of counts and forecasts."""

import math
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from app.accuracy.measure import link_accuracy, network_accuracy
from app.accuracy.schemas import By
from app.core.database import open_database, reading, writing
from app.counts.tables import Count
from app.forecasts.tables import Forecast
from app.settings import Settings
from model import error_measures
from tests.support.stored import FORECAST, add_link, put_rows

pytestmark = pytest.mark.journey

FLOOR = 5
NUMBERS = ("n_used", "n_below_floor", "n_missing", "slots_without_forecast", "passes_geh")
WEEK = timedelta(days=7)
EPOCH = datetime(1970, 1, 1)  # by a local clock
NAN = math.nan
# Weeks with a change of clocks: by an hour forth and back, by half an hour, at midnight.
CITIES = [
    ("Europe/Berlin", 15, datetime(2026, 3, 27, 20, tzinfo=UTC)),
    ("Europe/Berlin", 60, datetime(2026, 10, 24, 5, 30, tzinfo=UTC)),
    ("Australia/Lord_Howe", 15, datetime(2026, 4, 3, 9, tzinfo=UTC)),
    ("Africa/Cairo", 30, datetime(2026, 4, 23, 3, tzinfo=UTC)),
]


class LinkInLists:
    """A link with counts and forecasts as lists, and the slow way to measure it."""

    def __init__(self, link_id, zone, minutes, begin, seed):
        self.link_id, self.zone, self.minutes = link_id, ZoneInfo(zone), minutes
        chance, step = random.Random(seed), 60 * minutes
        self.begin, self.end = begin, begin + 4 * 86_400
        first = -(-(begin - 8 * 86_400) // step) * step
        self.counts = {
            slot: chance.choice([0, 0, 3, 375, chance.randrange(200)])
            for slot in range(first, self.end, step)
            if chance.random() < 0.9
        }
        self.forecasts = [
            self._forecast(chance, slot, horizon, version)
            for slot in range(-(-begin // step) * step, self.end + step, step)
            for horizon in (1, 2)
            for version in (0, 3, 4)
            if chance.random() < 0.5
        ]
        self.by_slot = {}
        for forecast in self.forecasts:
            self.by_slot.setdefault((forecast["slot_start"], forecast["horizon"]), []).append(forecast)
        self.at_local = {}  # of a time that came twice the first slot stays
        for slot in reversed(range(min(self.counts), self.end, step)):
            self.at_local[self.local_index(slot)] = slot

    def _forecast(self, chance, slot, horizon, version):
        # 425 beside a count of 375 in a quarter of an hour is a GEH of exactly 5, which does not pass.
        expected = chance.choice([0.0, -2.5, 425.0, round(chance.uniform(0, 200), 3)])
        bounded, usual = chance.random() < 0.8, chance.random() < 0.8
        return FORECAST | {
            "slot_start": slot,
            "horizon": horizon,
            "model_version": version,
            "expected": expected,
            "lower": expected - 40.0 if bounded else None,
            "upper": expected + 40.0 if bounded else None,
            "usual": round(chance.uniform(0, 200), 3) if usual else None,
            "issued_at": slot + chance.randrange(2),
        }

    def store(self, engine):
        link = add_link(engine, self.link_id, zone=self.zone.key, slot_minutes=self.minutes)
        with writing(engine) as session:
            counts = [{"slot_start": slot, "count": n, "quality": 0} for slot, n in self.counts.items()]
            put_rows(session, Count, [row | {"link_key": link.link_key} for row in counts])
            put_rows(session, Forecast, [row | {"link_key": link.link_key} for row in self.forecasts])

    def local(self, slot):
        return datetime.fromtimestamp(slot, self.zone)

    def local_index(self, slot, ago=timedelta(0)):
        return (self.local(slot).replace(tzinfo=None) - ago - EPOCH) // timedelta(minutes=self.minutes)

    def slots(self, begin=None, end=None):
        step = 60 * self.minutes
        begin, end = self.begin if begin is None else begin, self.end if end is None else end
        return range(-(-begin // step) * step, end, step)

    def pairs(self, slots, *, horizon=1, version=None, served=True):
        """Return pairs of counts and forecasts; several where they are not as served."""
        found = []
        for slot in slots:
            if slot not in self.counts:
                continue
            fitting = self.by_slot.get((slot, horizon), [])
            fitting = [f for f in fitting if version is None or f["model_version"] == version]
            if served and fitting:
                fitting = [max(fitting, key=lambda f: (f["issued_at"], f["model_version"]))]
            before = self.counts.get(self.at_local.get(self.local_index(slot, WEEK)), NAN)
            found += [(self.counts[slot], f, before, self.minutes) for f in fitting]
        return found

    def n_counts(self, slots):
        return sum(slot in self.counts for slot in slots)


def slow_measures(pairs, n_slots, n_counts):
    """Measure pairs of count and forecast with the functions for arrays."""
    actual = [float(count) for count, *_ in pairs]
    expected, lower, upper, usual = (
        [NAN if f[name] is None else f[name] for _, f, *_ in pairs] for name in ("expected", "lower", "upper", "usual")
    )
    hourly = [60.0 / minutes for *_, minutes in pairs]
    flows = (
        [count * per_hour for count, per_hour in zip(actual, hourly, strict=True)],
        [max(value, 0.0) * per_hour for value, per_hour in zip(expected, hourly, strict=True)],
    )
    geh = [value for value in error_measures.geh(*flows, slot_minutes=60.0).tolist() if value == value]
    share = error_measures.geh_pass_share(*flows, slot_minutes=60.0)
    mare = error_measures.mare(actual, expected, FLOOR)
    return {
        "rmse": error_measures.rmse(actual, expected).value,
        "mare": mare.value,
        "mae": error_measures.mae(actual, expected).value,
        "bias": error_measures.bias(actual, expected).value,
        "wape": error_measures.wape(actual, expected).value,
        "geh_mean": sum(geh) / len(geh) if geh else None,
        "geh_pass_share": share.value,
        "passes_geh": error_measures.passes_geh(share),
        "coverage": error_measures.coverage(actual, lower, upper).value,
        "skill_profile": error_measures.skill(actual, expected, usual).value,
        "skill_last_week": error_measures.skill(actual, expected, [before for _, _, before, _ in pairs]).value,
        "n_used": len(pairs),
        "n_below_floor": mare.n_below_floor,
        "n_missing": n_slots - n_counts,
        "slots_without_forecast": n_counts - len(pairs),
    }


def agree(answer, expected):
    given = answer.model_dump()
    for name, value in expected.items():
        if name not in NUMBERS and value is not None:
            value = pytest.approx(value, rel=1e-9, abs=1e-9)
        assert given[name] == value, name


@pytest.fixture
def engine(database_url):
    opened = open_database(Settings(database_url=database_url).database_url)
    yield opened
    opened.dispose()


@pytest.fixture(params=CITIES, ids=lambda city: f"{city[0]}-{city[1]}")
def road(request, engine):
    zone, minutes, begin = request.param
    made = LinkInLists("A", zone, minutes, int(begin.timestamp()), seed=minutes)
    made.store(engine)
    return made


class TestLink:
    def measure(self, engine, road, **query):
        with reading(engine) as session:
            span = {"begin": datetime.fromtimestamp(road.begin, UTC), "end": datetime.fromtimestamp(road.end, UTC)}
            return link_accuracy(session, road.link_id, FLOOR, **span | query)

    def test_the_span_whole_and_by_horizon_and_version(self, engine, road):
        slots = road.slots()
        size = len(slots), road.n_counts(slots)
        for horizon in (1, 2, 7):
            answer = self.measure(engine, road, horizon=horizon, by=By.HORIZON)
            agree(answer, slow_measures(road.pairs(slots, horizon=horizon), *size))
            assert [item.horizon for item in answer.series] == [1, 2]
            for item in answer.series:
                agree(item, slow_measures(road.pairs(slots, horizon=item.horizon), *size))
        for version in (3, 5):
            answer = self.measure(engine, road, model_version=version)
            agree(answer, slow_measures(road.pairs(slots, version=version), *size))
        answer = self.measure(engine, road, by=By.MODEL_VERSION)
        agree(answer, slow_measures(road.pairs(slots), *size))
        assert [item.model_version for item in answer.series] == [0, 3, 4]
        for item in answer.series:
            agree(item, slow_measures(road.pairs(slots, version=item.model_version), *size))

    def test_local_hours_and_days(self, engine, road):
        for by in (By.HOUR, By.DAY):
            self.check_parts(engine, road, by)

    def check_parts(self, engine, road, by):
        answer = self.measure(engine, road, by=by)
        agree(answer, slow_measures(road.pairs(road.slots()), len(road.slots()), road.n_counts(road.slots())))
        begins = [int(item.from_.timestamp()) for item in answer.series]
        assert begins[0] <= road.begin
        for item, begin, end in zip(answer.series, begins, [*begins[1:], road.end], strict=True):
            slots = road.slots(max(begin, road.begin), end)
            # Cairo's clocks skip midnight, Lord Howe's go back in the middle of an hour.
            days = {road.local(slot).date() for slot in slots}
            assert len(days) <= 1 or by is By.HOUR
            agree(item, slow_measures(road.pairs(slots), len(slots), road.n_counts(slots)))


def test_the_network_and_each_of_its_links(engine):
    begin = int(CITIES[0][2].timestamp())
    roads = [LinkInLists("A", "Europe/Berlin", 15, begin, 1), LinkInLists("B", "Asia/Kolkata", 60, begin, 2)]
    for road in roads:
        road.store(engine)
    add_link(engine, "C", slot_minutes=5)
    newest = max(max(road.counts) + 60 * road.minutes for road in roads)
    with reading(engine) as session:
        answer = network_accuracy(session, FLOOR, window="3d", horizon=2)
    slots = [road.slots(newest - 3 * 86_400, newest) for road in roads]
    pairs = [road.pairs(some, horizon=2) for road, some in zip(roads, slots, strict=True)]
    n_counts = [road.n_counts(some) for road, some in zip(roads, slots, strict=True)]
    together = slow_measures([pair for some in pairs for pair in some], sum(map(len, slots)) + 3 * 288, sum(n_counts))
    del together["skill_last_week"]
    agree(answer, together)
    links = {link.link_id: link for link in answer.links}
    for road, *of_road in zip(roads, pairs, map(len, slots), n_counts, strict=True):
        expected = slow_measures(*of_road)
        del expected["skill_last_week"]
        agree(links[road.link_id], expected)
    assert (links["C"].rmse, links["C"].n_missing, links["C"].n_used) == (None, 3 * 288, 0)
