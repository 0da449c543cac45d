import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy.engine import make_url
from typer import Exit

from app.commands.database import read_settings
from app.registry.store import open_store
from app.settings import Settings, settings_from_environment


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:"])
def test_a_database_that_no_two_connections_would_share_is_refused(url):
    with pytest.raises(ValidationError, match="must name a file"):
        Settings(database_url=url)


def test_a_database_of_another_kind_is_refused():
    with pytest.raises(ValidationError, match="must begin with"):
        Settings(database_url="mysql://localhost/flowcast")


def test_the_default_zone_is_a_zone_or_nothing(monkeypatch):
    assert Settings().default_zone == ""
    monkeypatch.setenv("FLOWCAST_DEFAULT_ZONE", "Europe/Berlin")
    assert Settings().default_zone == "Europe/Berlin"
    monkeypatch.setenv("FLOWCAST_DEFAULT_ZONE", "Mars/Olympus")
    with pytest.raises(ValidationError, match="must be an IANA name such as Europe/Berlin"):
        Settings()


class TestModelStore:
    @pytest.mark.parametrize(
        ("given", "store"),
        [
            ("models", Path("models")),
            ("/srv/models", Path("/srv/models")),
            ("file:srv/models", Path("srv/models")),
            ("file:///srv/models", Path("/srv/models")),
            ("models:old", Path("models:old")),
            ("s3://city-models", "s3://city-models"),
            ("s3://city-models/flow/cast/", "s3://city-models/flow/cast"),
            ("s3:city-models/flow", "s3://city-models/flow"),
        ],
    )
    def test_a_path_is_a_folder_and_an_address_a_bucket(self, given, store, monkeypatch):
        monkeypatch.setenv("FLOWCAST_MODEL_STORE", given)
        assert Settings().model_store == store

    @pytest.mark.parametrize(
        ("given", "rule"),
        [
            ("file:", "must name a folder"),
            ("file://host/models", "without a host"),
            ("gs://models", "must be a folder, file:PATH or s3://BUCKET/PREFIX"),
            ("s3://", "must be written as s3://BUCKET/PREFIX"),
            ("s3://Models", "must be written as s3://BUCKET/PREFIX"),
            ("s3://models/../others", "must be written as s3://BUCKET/PREFIX"),
            ("s3://key:hidden@models", "credentials go into AWS_… variables"),
        ],
    )
    def test_what_is_neither_is_refused_in_one_line(self, given, rule, monkeypatch, capsys):
        monkeypatch.setenv("FLOWCAST_MODEL_STORE", given)
        settings_from_environment.cache_clear()
        with pytest.raises(Exit):
            read_settings("serve")
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("flowcast serve: FLOWCAST_MODEL_STORE is refused; ")
        assert rule in line
        assert "hidden" not in line

    def test_a_bucket_without_its_packages_names_what_to_install(self, monkeypatch):
        monkeypatch.setattr("app.settings.find_spec", lambda _name: None)
        with pytest.raises(ValidationError, match=r"pip install 'flowcast\[s3\]'"):
            Settings(model_store="s3://models")

    def test_each_has_its_store_and_buckets_share_no_copies(self, tmp_path):
        assert not open_store(Settings(model_store=tmp_path)).copies
        stores = [
            open_store(Settings(model_store=address, model_cache=tmp_path))
            for address in ("s3://models", "s3://models/a")
        ]
        assert [store.copies for store in stores] == [True, True]
        assert len({store.root for store in stores}) == 2
        assert {store.root.parent for store in stores} == {tmp_path}


POSTGRESQL = "postgresql://flowcast@database/flowcast"


class TestDatabasePassword:
    def test_it_goes_into_the_address_whatever_characters_it_has(self):
        url = Settings(database_url=POSTGRESQL, database_password="p@ss/w:rd %1").database_url
        assert make_url(url).password == "p@ss/w:rd %1"
        assert make_url(url).host == "database"

    @pytest.mark.parametrize(
        ("url", "password", "rule"),
        [
            (POSTGRESQL, "change-me", "no placeholder"),
            ("sqlite:///flowcast.db", "5b31c0de", "begins with postgresql"),
            ("postgresql://flowcast:own@database/flowcast", "5b31c0de", "no password of its own"),
        ],
    )
    def test_where_it_cannot_be_used_it_is_refused(self, url, password, rule):
        with pytest.raises(ValidationError, match=rule):
            Settings(database_url=url, database_password=password)


def test_an_address_that_cannot_be_read_is_refused_without_its_password():
    with pytest.raises(ValidationError, match="must be written as postgresql") as refused:
        Settings(database_url="postgresql://flowcast:hidden@database:port/flowcast")
    assert "hidden" not in refused.value.errors(include_input=False)[0]["msg"]


class TestSecretFiles:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        for name in ("FLOWCAST_ADMIN_KEY", "FLOWCAST_DATABASE_PASSWORD"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("FLOWCAST_SECRETS", str(tmp_path))
        return tmp_path

    def test_a_secret_may_be_a_file(self, folder):
        (folder / "flowcast_admin_key").write_text("a-key-from-a-file\n")
        admin_key = Settings().admin_key
        assert admin_key is not None
        assert admin_key.get_secret_value() == "a-key-from-a-file"

    def test_the_environment_comes_first_and_an_empty_variable_is_none(self, folder, monkeypatch):
        (folder / "flowcast_database_password").write_text("from-a-file")
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", POSTGRESQL)
        monkeypatch.setenv("FLOWCAST_DATABASE_PASSWORD", "")
        assert make_url(Settings().database_url).password == "from-a-file"
        monkeypatch.setenv("FLOWCAST_DATABASE_PASSWORD", "from-the-environment")
        assert make_url(Settings().database_url).password == "from-the-environment"

    def test_an_empty_file_sets_nothing(self, folder):
        (folder / "flowcast_admin_key").write_text("\n")
        assert Settings().admin_key is None

    def test_a_placeholder_in_a_file_is_refused(self, folder):
        (folder / "flowcast_admin_key").write_text("change-me-to-something-long")
        with pytest.raises(ValidationError, match="no placeholder"):
            Settings()

    def test_an_unreadable_file_is_reported_in_one_line(self, folder, capsys):
        (folder / "flowcast_admin_key").write_bytes(b"\xff\xfe not text")  # root may read whatever its mode
        settings_from_environment.cache_clear()
        with pytest.raises(Exit):
            read_settings("serve")
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"flowcast serve: flowcast_admin_key in {folder} cannot be read: ")

    def test_no_folder_is_fine(self, folder, monkeypatch):
        monkeypatch.setenv("FLOWCAST_SECRETS", str(folder / "absent"))
        assert Settings().admin_key is None


@pytest.mark.parametrize(("given", "kept"), [("auto", "auto"), ("off", "off"), ("AU", "AU"), ("au-vic", "AU-VIC")])
def test_holidays_are_those_of_the_zone_none_or_a_country(given, kept):
    assert Settings(holidays=given).holidays == kept


@pytest.mark.parametrize("given", ["Atlantis", "XX", "AU-BAVARIA", "on"])
def test_holidays_of_nowhere_are_refused_by_name(given):
    with pytest.raises(ValidationError, match=f"holidays\n.*holidays='{given}' is refused"):
        Settings(holidays=given)


class TestDaskScheduler:
    @pytest.mark.parametrize(
        "address", ["tcp://127.0.0.1:8786", "tls://dask-scheduler.example.org:8786", "tcp://[::1]:8786", ""]
    )
    def test_it_is_an_address_or_nothing(self, address):
        assert Settings(dask_scheduler=address).dask_scheduler == address

    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1:8786",
            "http://a:8786",
            "tcp://127.0.0.1",
            "tcp://:8786",
            "tcp://a b:1",
            "tcp://a:65536",
            "tcp://a:1/",
        ],
    )
    def test_another_form_is_refused_by_name(self, address, monkeypatch, capsys):
        monkeypatch.setenv("FLOWCAST_DASK_SCHEDULER", address)
        settings_from_environment.cache_clear()
        with pytest.raises(Exit):
            read_settings("worker")
        settings_from_environment.cache_clear()
        [line] = capsys.readouterr().err.splitlines()
        assert line == (
            f"flowcast worker: FLOWCAST_DASK_SCHEDULER='{address}' is refused; it must be written as "
            "tcp://HOST:PORT or tls://HOST:PORT"
        )

    def test_without_dask_it_is_refused_with_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)  # what Python takes for a package that is not there
        with pytest.raises(ValidationError, match=r"not installed: pip install --requirement requirements/cluster.txt"):
            Settings(dask_scheduler="tcp://127.0.0.1:8786")
        assert Settings().dask_scheduler == ""

    def test_away_is_one_of_two_words(self):
        with pytest.raises(ValidationError, match="'local' or 'wait'"):
            Settings(dask_away="never")
