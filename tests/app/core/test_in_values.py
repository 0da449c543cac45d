"""Many keys as one parameter, as each database takes them."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from app.core.database import open_database, reading, writing
from app.core.in_values import in_values
from app.links.tables import Link
from app.settings import Settings

NAMES = ["A", "it's", 'a"b', "{x,y}", "ä,ö", "[1]", "NULL"]


@pytest.fixture
def engine(database_url):
    engine = open_database(Settings(database_url=database_url).database_url)
    now = datetime.now(UTC)
    with writing(engine) as session:
        for name in NAMES:
            session.add(Link(link_id=name, name="", zone="UTC", slot_minutes=15, created_at=now, updated_at=now))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("wanted", [[], ["A"], NAMES, [*NAMES, "absent"], ["absent"]])
def test_texts_are_found_whatever_they_hold(engine, wanted):
    with reading(engine) as session:
        found = session.scalars(select(Link.link_id).where(in_values(Link.link_id, wanted))).all()
    assert sorted(found) == sorted(set(wanted) & set(NAMES))


def test_more_numbers_are_found_than_a_database_takes_parameters(engine):
    with reading(engine) as session:
        keys = session.scalars(select(Link.link_key)).all()
        many = [*keys[1:], *range(10**9, 10**9 + 100_000), 2**40]
        found = session.scalars(select(Link.link_key).where(in_values(Link.link_key, many))).all()
        assert sorted(found) == sorted(keys[1:])
        assert session.scalars(select(Link.link_key).where(in_values(Link.link_key, []))).all() == []


def test_the_next_question_asks_for_its_own_keys(engine):
    # What was compiled for one question is used again for the next: with the new keys, not the old.
    with reading(engine) as session:
        for name in NAMES:
            assert session.scalars(select(Link.link_id).where(in_values(Link.link_id, [name]))).all() == [name]
        both = select(Link.link_id).where(in_values(Link.link_id, NAMES[:2]), in_values(Link.link_id, NAMES[1:3]))
        assert session.scalars(both).all() == [NAMES[1]]
