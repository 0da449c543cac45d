"""What processes tell each other about what they wrote."""

import pytest

from app.core.pg_notify import Kind, Notice, read, written

LONGEST = 7999  # bytes that PostgreSQL takes in one notice


def test_notices_about_links_come_back_as_they_were_sent() -> None:
    (one,) = written(Kind.FORECASTS, "somebody", [17, 18, 2**31 - 1], 900)
    assert read(one) == Notice(Kind.FORECASTS, "somebody", 900, (17, 18, 2**31 - 1))


def test_many_links_make_several_notices_that_postgresql_takes() -> None:
    keys = list(range(2**31 - 2000, 2**31))
    sent = list(written(Kind.COUNTS, "a" * 30, keys))
    assert max(map(len, sent)) <= LONGEST
    assert [key for notice in sent for key in read(notice).link_keys] == keys


def test_nothing_is_said_where_nothing_was_written() -> None:
    assert list(written(Kind.NOTHING, "somebody", [])) == []
    assert list(written(Kind.COUNTS, "somebody", [])) == []


@pytest.mark.parametrize("payload", ["", "hello", "forecasts somebody 0 1,x", "counts somebody 0 1,,2", "counts 1,2"])
def test_what_is_not_understood_may_concern_any_link(payload: str) -> None:
    assert read(payload) == Notice(Kind.SERVED)
