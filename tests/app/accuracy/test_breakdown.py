"""Pieces of a span: in each, the same local slot a week before is equally far away."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from app.accuracy.breakdown import cut_pieces
from app.core.slots import SlotGrid
from app.core.times import Span
from app.counts.series import LinkSeries, as_count_series
from app.links.queries import LinkInfo

DAY = 86_400


def second(year, month, day, hour=0):
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", second(2026, 3, 29)),
        ("Europe/Berlin", second(2026, 10, 25)),
        ("Australia/Lord_Howe", second(2026, 4, 4)),
        ("Australia/Lord_Howe", second(2026, 10, 3)),
        ("Africa/Cairo", second(2026, 4, 23)),
        ("America/New_York", second(2026, 11, 1)),
        ("Asia/Kathmandu", second(2026, 5, 1)),
        ("UTC", second(2026, 5, 1)),
    ],
)
@pytest.mark.parametrize("minutes", [1, 15, 60, 120])
def test_a_slot_is_compared_with_that_of_a_week_before(zone, change, minutes):
    step = 60 * minutes
    span = Span(change - 9 * DAY, change + 16 * DAY)
    first = (span.begin - 9 * DAY) // step
    numbers = np.arange(first, span.end // step, dtype=np.float64)
    series = LinkSeries("A", SlotGrid(minutes), ZoneInfo(zone), first, numbers, np.zeros(len(numbers), dtype=np.bool_))
    expected = as_count_series(series).last_week() * step
    pieces = cut_pieces(LinkInfo(1, "A", "", zone, minutes, None), span)
    assert (pieces[0].begin, pieces[-1].end) == span
    assert all(left.end == right.begin for left, right in pairwise(pieces))
    for piece in pieces:
        slots = np.arange(-(-piece.begin // step), -(-piece.end // step))
        found = slots * step + (np.nan if piece.week_before is None else piece.week_before)
        np.testing.assert_array_equal(found, expected[slots - first])


def test_parts_are_numbered_and_what_lies_before_them_is_in_none():
    link = LinkInfo(1, "A", "", "UTC", 15, None)
    parts = [Span(10 * DAY, 11 * DAY), Span(11 * DAY, 11 * DAY + 900)]
    pieces = cut_pieces(link, Span(9 * DAY, 11 * DAY + 900), parts)
    assert [(piece.part, piece.begin, piece.end) for piece in pieces] == [
        (-1, 9 * DAY, 10 * DAY),
        (0, *parts[0]),
        (1, *parts[1]),
    ]
    assert cut_pieces(link, Span(5, 5)) == cut_pieces(link, Span(6, 5)) == []
