"""The caller, identified by the key of a request."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import OperationalError

from app.core.change_feed import ConnectionGuard
from app.core.database import open_database, writing
from app.core.errors import Forbidden, TooManyRequests, Unauthorized
from app.keys import cache as cache_module
from app.keys.cache import ApiKeyCache
from app.keys.issue import issue_key, revoke_key
from app.keys.queries import key_with_id
from app.keys.tables import Scope
from app.settings import Switch
from tests.support.databases import on_postgresql
from tests.support.services import ADMIN_KEY


@pytest.fixture
def engine(database_url, settings):
    opened = open_database(settings.database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def keys(engine, settings):
    return ApiKeyCache(engine, settings)


@pytest.fixture
def issued(engine):
    with writing(engine) as session:
        row, key = issue_key(session, name="control centre", scopes=["read", "ingest"])
    return row.key_id, key


def look_up(keys, key):
    return asyncio.run(keys.identify(key, "192.0.2.1"))


def later(monkeypatch, seconds):
    now = cache_module.monotonic()
    monkeypatch.setattr(cache_module, "monotonic", lambda: now + seconds)


def last_use(engine, key_id):
    with writing(engine) as session:
        return key_with_id(session, key_id).last_used_at


class TestKnown:
    def test_a_key_is_known_once_it_was_looked_up(self, keys, issued):
        key_id, key = issued
        assert keys.cached(key) is None
        caller = look_up(keys, key)
        assert (caller.key_id, caller.name) == (key_id, "control centre")
        assert caller.scopes == {"read", "ingest"}
        assert keys.cached(key) is caller

    def test_for_a_minute_at_most(self, keys, issued, monkeypatch):
        look_up(keys, issued[1])
        later(monkeypatch, 59)
        assert keys.cached(issued[1])
        later(monkeypatch, 61)
        assert keys.cached(issued[1]) is None

    def test_until_it_expires_and_no_longer(self, keys, engine, monkeypatch):
        with writing(engine) as session:
            row, key = issue_key(session, name="short", scopes=["read"])
            row.expires_at = datetime.now(UTC) + timedelta(seconds=10)
        look_up(keys, key)
        later(monkeypatch, 11)
        assert keys.cached(key) is None

    def test_until_it_is_forgotten(self, keys, issued):
        look_up(keys, issued[1])
        keys.forget("another")
        assert keys.cached(issued[1])
        keys.forget(issued[0])
        assert keys.cached(issued[1]) is None

    def test_the_environment_s_key_may_do_everything(self, keys):
        caller = keys.cached(ADMIN_KEY)
        assert caller.key_id == "environment"
        assert caller.scopes == {"read", "ingest", "admin"}
        assert keys.has_environment_key

    def test_everyone_may_do_everything_where_auth_is_off(self, engine, settings):
        open_keys = ApiKeyCache(engine, settings.model_copy(update={"auth": Switch.OFF}))
        for key in (None, "", "anything"):
            assert open_keys.cached(key).key_id == "anonymous"
            open_keys.cached(key).require_scope("admin")


class TestLookUp:
    def wrong_keys(self, key_id, key):
        return [None, "", "x", "fc", "fc__", f"fc_{key_id}_", key[:-1], key + "x", key.upper(), "é" * 50, "\ud800"]

    def test_wrong_keys_are_refused(self, keys, issued):
        for wrong in self.wrong_keys(*issued):
            with pytest.raises(Unauthorized) as refused:
                look_up(keys, wrong)
            assert "X-API-Key" in refused.value.headers["WWW-Authenticate"]
            assert keys.cached(wrong) is None

    def test_revoked_and_expired_keys_are_refused(self, keys, engine):
        with writing(engine) as session:
            revoked, expired = (issue_key(session, name=name, scopes=["read"]) for name in ("revoked", "expired"))
            revoke_key(session, revoked.row.key_id)
            expired.row.expires_at = datetime.now(UTC) - timedelta(seconds=1)
        for key in (revoked.key, expired.key):
            with pytest.raises(Unauthorized):
                look_up(keys, key)

    def test_the_last_use_is_noted_off_the_request_path(self, keys, engine, issued):
        before = datetime.now(UTC)
        look_up(keys, issued[1])
        assert last_use(engine, issued[0]) is None
        keys.save_last_use()
        assert before <= last_use(engine, issued[0]) <= datetime.now(UTC)

    def test_a_key_revoked_while_it_is_looked_up_is_not_kept(self, keys, issued, monkeypatch):
        asked = cache_module.key_with_id

        def revoked_meanwhile(session, key_id):
            keys.forget(key_id)
            return asked(session, key_id)

        monkeypatch.setattr(cache_module, "key_with_id", revoked_meanwhile)
        look_up(keys, issued[1])
        assert keys.cached(issued[1]) is None


class TestIdentify:
    def identify(self, keys, key, times):
        async def ask():
            for _ in range(times):
                await keys.identify(key, "192.0.2.1")

        asyncio.run(ask())

    def test_a_key_that_was_good_is_not_locked_out_by_guesses_from_its_address(
        self, engine, settings, issued, monkeypatch
    ):
        keys = ApiKeyCache(engine, settings.model_copy(update={"rate_limit": 2}))
        self.identify(keys, issued[1], 1)
        for refused in (Unauthorized, Unauthorized, TooManyRequests):
            with pytest.raises(refused):
                self.identify(keys, "guess", 1)
        later(monkeypatch, 61)
        self.identify(keys, issued[1], 1)

    def test_a_new_key_passes_although_wrong_ones_came_from_its_address(self, engine, settings, issued):
        keys = ApiKeyCache(engine, settings.model_copy(update={"rate_limit": 2}))
        for refused in (Unauthorized, Unauthorized, TooManyRequests, TooManyRequests):
            with pytest.raises(refused):
                self.identify(keys, f"fc_{issued[0]}_wrong", 1)
        self.identify(keys, issued[1], 1)

    def test_past_the_limit_keys_of_an_address_are_looked_up_one_at_a_time(self, engine, settings, monkeypatch):
        keys = ApiKeyCache(engine, settings.model_copy(update={"rate_limit": 1}))
        asked, under_way, most = cache_module.key_with_id, 0, 0

        def counted(session, key_id):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                return asked(session, key_id)
            finally:
                under_way -= 1

        async def guess():
            guesses = (keys.identify(f"fc_{n}_wrong", "192.0.2.1") for n in range(20))
            return await asyncio.gather(*guesses, return_exceptions=True)

        with pytest.raises(Unauthorized):
            self.identify(keys, "guess", 1)
        monkeypatch.setattr(cache_module, "key_with_id", counted)
        assert {type(refused) for refused in asyncio.run(guess())} == {TooManyRequests}
        assert most == 1

    def test_each_key_has_its_own_limit(self, engine, settings, issued):
        keys = ApiKeyCache(engine, settings.model_copy(update={"rate_limit": 2}))
        self.identify(keys, issued[1], 2)
        with pytest.raises(TooManyRequests, match=r"try again in \d+ s"):
            self.identify(keys, issued[1], 1)
        self.identify(keys, ADMIN_KEY, 2)


@on_postgresql
class TestWhileTheDatabaseIsUnreachable:
    @pytest.fixture
    def disconnect(self, engine):
        guard = ConnectionGuard(engine)

        def set_unreachable(unreachable=True):
            guard.unreachable = unreachable
            engine.dispose()

        return set_unreachable

    def test_a_key_sent_within_the_last_minute_stays_good(self, keys, issued, disconnect, monkeypatch):
        caller = look_up(keys, issued[1])
        disconnect()
        for _ in range(11):
            later(monkeypatch, 50)
            assert look_up(keys, issued[1]) is caller
        later(monkeypatch, 61)
        with pytest.raises(OperationalError):
            look_up(keys, issued[1])
        disconnect(False)
        assert look_up(keys, issued[1]).key_id == issued[0]

    def test_but_not_for_ever(self, keys, issued, disconnect, monkeypatch):
        look_up(keys, issued[1])
        disconnect()
        for _ in range(11):
            later(monkeypatch, 50)
            look_up(keys, issued[1])
        later(monkeypatch, 55)
        with pytest.raises(OperationalError):
            look_up(keys, issued[1])

    def test_nor_past_its_end_or_once_it_is_revoked_or_where_it_was_never_seen(
        self, keys, engine, issued, disconnect, monkeypatch
    ):
        with writing(engine) as session:
            row, short = issue_key(session, name="short", scopes=["read"])
            row.expires_at = datetime.now(UTC) + timedelta(seconds=100)
            unseen = issue_key(session, name="unseen", scopes=["read"]).key
            gone = issue_key(session, name="gone", scopes=["read"])
        for key in (short, issued[1], gone.key):
            look_up(keys, key)
        keys.forget(gone.row.key_id)  # as revoking it does
        disconnect()
        for key in (unseen, gone.key):
            with pytest.raises(OperationalError):
                look_up(keys, key)
        later(monkeypatch, 55)
        assert look_up(keys, short)
        later(monkeypatch, 50)
        with pytest.raises(OperationalError):
            look_up(keys, short)


def test_no_scope_implies_another(keys, issued):
    caller = look_up(keys, issued[1])
    caller.require_scope("read")
    with pytest.raises(Forbidden, match=f"needs the scope 'admin'; key {issued[0]} has ingest, read"):
        caller.require_scope(Scope.ADMIN)  # in its own words, not in Python's
