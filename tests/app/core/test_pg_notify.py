"""Notices between processes about what they wrote."""

import pytest

from app.core.pg_notify import Change, Notice, format_notices, parse_notice

LONGEST = 7999  # bytes that PostgreSQL takes in one notice


def test_notices_about_links_come_back_as_they_were_sent() -> None:
    (one,) = format_notices(Change.FORECASTS, "somebody", [17, 18, 2**31 - 1], 900)
    assert parse_notice(one) == Notice(Change.FORECASTS, "somebody", 900, (17, 18, 2**31 - 1))


def test_many_links_make_several_notices_that_postgresql_takes() -> None:
    keys = list(range(2**31 - 2000, 2**31))
    sent = list(format_notices(Change.COUNTS, "a" * 30, keys))
    assert max(map(len, sent)) <= LONGEST
    assert [key for notice in sent for key in parse_notice(notice).link_keys] == keys


def test_no_notice_is_sent_without_a_change() -> None:
    assert list(format_notices(Change.NOTHING, "somebody", [])) == []
    assert list(format_notices(Change.COUNTS, "somebody", [])) == []


@pytest.mark.parametrize("payload", ["", "hello", "forecasts somebody 0 1,x", "counts somebody 0 1,,2", "counts 1,2"])
def test_a_notice_that_cannot_be_parsed_may_concern_any_link(payload: str) -> None:
    assert parse_notice(payload) == Notice(Change.SERVED)
