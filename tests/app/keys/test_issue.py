"""The key of a first start."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.core.database import open_database, reading
from app.keys.issue import FirstKey, make_first_key
from app.keys.queries import all_keys
from app.settings import Switch


@pytest.fixture
def engine(settings):
    opened = open_database(settings.database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def keyless(settings):
    return settings.model_copy(update={"admin_key": None})


def keys(engine):
    with reading(engine) as session:
        return all_keys(session)


def test_on_a_terminal_it_is_shown(engine, keyless):
    first = make_first_key(engine, keyless, terminal=True)
    assert first.shown.startswith("fc_")
    assert not keyless.admin_key_file.exists()
    assert [key.scopes for key in keys(engine)] == ["read,ingest,admin"]
    assert make_first_key(engine, keyless, terminal=True) == FirstKey()


def test_elsewhere_it_is_written_for_its_owner_alone(engine, keyless):
    first = make_first_key(engine, keyless, terminal=False)
    assert first == FirstKey(file=keyless.admin_key_file)
    assert stat.S_IMODE(first.file.stat().st_mode) == 0o600
    assert first.file.read_text().startswith("fc_")


def test_of_several_that_start_at_once_one_makes_it(keyless):
    def start(_):
        own = open_database(keyless.database_url)
        try:
            return make_first_key(own, keyless, terminal=False)
        finally:
            own.dispose()

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(start, range(4)))
    assert made.count(FirstKey()) == 3


def test_an_old_key_file_is_replaced_and_any_other_file_kept(engine, keyless):
    keyless.admin_key_file.write_text("notes of mine")
    with pytest.raises(FileExistsError, match="will not be overwritten"):
        make_first_key(engine, keyless, terminal=False)
    assert keys(engine) == []
    keyless.admin_key_file.write_text("fc_0123456789ab_of-another-database\n")
    make_first_key(engine, keyless, terminal=False)
    assert keys(engine)[0].key_id in keyless.admin_key_file.read_text()


def test_none_is_made_where_another_key_gives_access(engine, settings, keyless):
    assert make_first_key(engine, settings, terminal=True) == FirstKey()
    assert make_first_key(engine, keyless.model_copy(update={"auth": Switch.OFF}), terminal=True) == FirstKey()
    assert keys(engine) == []
