"""A small registry: which versions stay, and that rows and artifacts go together."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.core.database import reading, writing
from app.registry.activate import activate
from app.registry.cleanup import remove_old_versions, sweep_store, training_folder
from app.registry.queries import find_version, read_versions, registry_size
from app.registry.register import register_model
from app.registry.store import ModelStore
from tests.support.artifacts import copy_with_about

NOW = datetime(2025, 9, 30, 12, tzinfo=UTC)
WEEK_AGO = time.time() - 7 * 86_400


@pytest.fixture(scope="session")
def artifacts(artifact, tmp_path_factory):
    """Return eight trained models of link Ba."""
    folder = tmp_path_factory.mktemp("eight")
    for i in range(8):
        (folder / str(i)).mkdir()
    return [copy_with_about(artifact, folder / str(i) / "Ba", gaps=i) for i in range(8)]


@pytest.fixture
def put_versions(engine, store, link, artifacts):
    """Return a function that registers some versions, and activates some of them in turn."""

    def fill(versions, *activated):
        for folder in artifacts[:versions]:
            with writing(engine) as session:
                register_model(session, store, link, folder)
        for hour, version in enumerate(activated):
            with writing(engine) as session:
                activate(session, store, link, version, now=NOW + timedelta(hours=hour))

    return fill


def tidy(engine, store, link, keep):
    with writing(engine) as session:
        return remove_old_versions(session, store, link.link_key, keep)


def left(engine, store, link):
    """Return the versions in the registry, and assert that the store has the same."""
    with reading(engine) as session:
        versions = sorted(row.version for row in read_versions(session, link.link_key, None, 100))
    assert sorted(store.places()) == [f"Ba/{version}" for version in versions]
    return versions


class TestRemoveOldVersions:
    def test_the_active_one_the_latest_retired_and_the_newest_candidates_stay(self, engine, store, link, put_versions):
        put_versions(8, 1, 2, 3, 4)
        assert tidy(engine, store, link, 2) == [1, 5, 6]
        assert left(engine, store, link) == [2, 3, 4, 7, 8]
        assert tidy(engine, store, link, 2) == []

    def test_versions_are_counted_for_each_algorithm(self, engine, store, link, put_versions):
        put_versions(8, 1, 2, 3, 4)
        with writing(engine) as session:
            for version in (1, 6):  # as if another algorithm had made them
                find_version(session, link.link_key, version).algorithm = "KR_SML"
        assert tidy(engine, store, link, 1) == [2, 5, 7]
        assert left(engine, store, link) == [1, 3, 4, 6, 8]

    def test_latest_is_by_when_it_was_retired(self, engine, store, link, put_versions):
        put_versions(4, 3, 1, 2, 4)
        assert tidy(engine, store, link, 1) == [1, 3]
        assert left(engine, store, link) == [2, 4]

    def test_a_rollback_is_always_possible(self, engine, store, link, put_versions):
        put_versions(3, 1, 2, 3)
        tidy(engine, store, link, 0)
        assert left(engine, store, link) == [2, 3]
        with writing(engine) as session:
            activate(session, store, link, 2)

    def test_a_version_once_given_is_never_given_again(self, engine, store, link, put_versions, artifacts):
        put_versions(5, 5, 1, 2, 3, 4)
        assert tidy(engine, store, link, 1) == [1, 2]
        assert left(engine, store, link) == [3, 4, 5]
        with writing(engine) as session:
            assert register_model(session, store, link, artifacts[5]).version == 6

    def test_a_transaction_that_fails_keeps_both_halves(self, engine, store, link, put_versions):
        put_versions(5, 1, 2)

        def fail():
            with writing(engine) as session:
                assert remove_old_versions(session, store, link.link_key, 1)
                raise RuntimeError("the lights went out")

        with pytest.raises(RuntimeError, match="lights"):
            fail()
        assert left(engine, store, link) == [1, 2, 3, 4, 5]

    def test_artifacts_go_after_the_commit(self, engine, store, link, put_versions):
        put_versions(5, 1, 2)
        with writing(engine) as session:
            assert remove_old_versions(session, store, link.link_key, 1) == [3, 4]
            assert len(store.places()) == 5
        assert left(engine, store, link) == [1, 2, 5]


class TestSweepStore:
    @pytest.fixture
    def orphan(self, engine, store, put_versions, link, monkeypatch):
        """Leave versions 3 and 4 without a row, as after a kill between the commit and the removal."""
        put_versions(5, 1, 2)
        with monkeypatch.context() as patch:
            patch.setattr(ModelStore, "remove", lambda *_: None)
            assert tidy(engine, store, link, 1) == [3, 4]
        assert len(store.places()) == 5

    def test_orphans_go_after_an_hour(self, engine, store, link, orphan):
        assert sweep_store(engine, store) == []
        age(store.path("Ba/3"))
        assert sweep_store(engine, store) == ["Ba/3"]
        age(store.path("Ba/4"))
        assert sweep_store(engine, store) == ["Ba/4"]
        assert left(engine, store, link) == [1, 2, 5]

    def test_what_has_a_row_stays_however_old(self, engine, store, put_versions, link):
        put_versions(2, 1)
        for version in (1, 2):
            age(store.path(f"Ba/{version}"))
        assert sweep_store(engine, store) == []

    def test_what_the_database_cannot_know_stays(self, engine, store, link, put_versions, artifact):
        put_versions(2, 1)
        foreign = [store.root / name for name in ("Ba/3", "Zz/1", "Ba/notes", "elsewhere")]
        for folder in foreign:
            folder.mkdir(parents=True)
            age(folder)
        assert sweep_store(engine, store) == []
        assert all(folder.is_dir() for folder in foreign)

    def test_what_is_no_artifact_stays(self, engine, store, orphan):
        (store.path("Ba/3") / "notes.txt").write_text("mine")
        age(store.path("Ba/3"))
        assert sweep_store(engine, store) == []

    def test_stale_training_folders(self, engine, store):
        stale, fresh = store.root / ".training-1-abc", store.root / ".training-2-def"
        for folder in (stale, fresh):
            (folder / "Ba").mkdir(parents=True)
            (folder / "Ba" / "manifest.json").write_text("{}")
            age(folder)
        os.utime(fresh / "Ba" / "manifest.json")  # still being written
        assert sweep_store(engine, store) == [".training-1-abc"]
        assert not stale.exists()
        assert fresh.exists()

    def test_a_training_folder_of_a_running_run_stays(self, engine, store):
        with training_folder(store, 7) as folder:
            age(folder)
            assert sweep_store(engine, store) == []
            assert folder.exists()
        assert not folder.exists()

    def test_a_store_that_is_not_there_or_in_trouble(self, engine, tmp_path, monkeypatch):
        assert sweep_store(engine, ModelStore(tmp_path / "nowhere")) == []

        def fail(_self):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(ModelStore, "places", fail)
        assert sweep_store(engine, ModelStore(tmp_path)) == []


class TestSize:
    def test_of_each_and_of_all(self, engine, store, link, put_versions):
        put_versions(3, 1)
        sizes = [sum(file.stat().st_size for file in store.path(f"Ba/{n}").iterdir()) for n in (1, 2, 3)]
        with reading(engine) as session:
            rows = read_versions(session, link.link_key, None, 10)
            assert registry_size(session) == (3, sum(sizes))
        assert [row.size_bytes for row in rows] == sizes[::-1]
        assert min(sizes) > 1000

    def test_shown_over_rest(self, client, put_link, artifact):
        put_link("Ba", zone="Europe/Berlin")
        runtime = client.app.state
        store = ModelStore(runtime.settings.model_store)
        from app.links.queries import link_or_404

        with writing(runtime.engine) as session:
            register_model(session, store, link_or_404(session, "Ba"), artifact)
        [model] = client.get("/v1/links/Ba/models").json()["models"]
        assert model["size_bytes"] == store.size("Ba/1") > 0
        assert client.get("/v1/links/Ba/models/1").json()["size_bytes"] == model["size_bytes"]
        size = client.get("/readyz").json()["models"]["shelf"]
        assert size == {"versions": 1, "size_bytes": model["size_bytes"]}


class TestCommand:
    @pytest.fixture
    def run(self, settings, monkeypatch):
        from typer.testing import CliRunner

        from app.cli import cli
        from app.settings import settings_from_environment

        monkeypatch.setenv("FLOWCAST_DATABASE_URL", settings.database_url)
        monkeypatch.setenv("FLOWCAST_MODEL_STORE", str(settings.model_store))
        settings_from_environment.cache_clear()
        yield lambda *arguments: CliRunner().invoke(cli, ["models", *arguments])
        settings_from_environment.cache_clear()

    def test_tidy(self, engine, store, link, put_versions, run):
        put_versions(6, 1, 2)
        done = run("tidy", "--keep", "1")
        assert done.exit_code == 0, done.stderr
        assert "link Ba: removed version 3, 4, 5" in done.stdout
        assert "registry: 3 removed, 0 leftovers swept, 3 stay" in done.stderr
        assert left(engine, store, link) == [1, 2, 6]
        assert "registry: 0 removed" in run("tidy").stderr

    def test_list_shows_sizes(self, engine, store, link, put_versions, run):
        put_versions(2, 1)
        megabytes = store.size("Ba/1") / 1e6
        assert f"versions: 2, on disk: {(store.size('Ba/1') + store.size('Ba/2')) / 1e6:.2f} MB" in run("list").stdout
        assert f"{megabytes:.2f}" in run("list").stdout
        listed = json.loads(run("list", "--json").stdout)
        assert listed[0]["models"][1]["size_bytes"] == store.size("Ba/1")


def age(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (WEEK_AGO, WEEK_AGO))
