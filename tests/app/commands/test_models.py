"""``flowcast models`` and ``flowcast train --register``: into the registry and into use."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from app.cli import cli
from app.core.database import open_database, reading, writing
from app.core.schema import upgrade_schema
from app.counts.ingest import store_counts
from app.demo.city import sample_city, write_csv
from app.links.queries import all_links
from app.links.schemas import LinkIn
from app.links.store_links import store_links
from app.registry.queries import read_versions
from app.settings import settings_from_environment
from model.artifacts.network_models import load_network
from tests.support.artifacts import city_series, copy_with_about, trained
from tests.support.count_files import import_counts
from tests.support.experts import NOW

LINKS = ("Ba", "Cf")


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Return the database of the settings, with the two links."""
    url = f"sqlite:///{tmp_path}/flowcast.db"
    monkeypatch.setenv("FLOWCAST_DATABASE_URL", url)
    monkeypatch.setenv("FLOWCAST_MODEL_STORE", str(tmp_path / "store"))
    settings_from_environment.cache_clear()
    opened = open_database(url)
    upgrade_schema(opened)
    with writing(opened) as session:
        store_links(session, [LinkIn(link_id=name, zone="Europe/Berlin", capacity=2000.0) for name in LINKS])
    yield opened
    opened.dispose()
    settings_from_environment.cache_clear()


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts")
    for series in city_series(2):
        trained(folder, series)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def versions(engine) -> dict[str, list[tuple[int, str]]]:
    with reading(engine) as session:
        return {
            link.link_id: [(row.version, row.state) for row in read_versions(session, link.link_key, None, 10)]
            for link in all_links(session)
        }


class TestExperts:
    @pytest.fixture
    def stored(self, engine, trained_experts):
        with writing(engine) as session:
            store_links(session, [LinkIn(link_id="Fe", zone="Europe/Berlin")])
        assert run("models", "add", trained_experts.folder).exit_code == 0
        with writing(engine) as session:
            city = trained_experts.city
            for link in all_links(session):
                counts = city.counts[link.link_id][:NOW]
                known = np.flatnonzero(~np.isnan(counts))
                slots = (city.first_slot + known) * 900
                keys = np.full_like(slots, link.link_key)
                store_counts(session, [link], np.column_stack([keys, slots, counts[known].astype(int), 0 * slots]))
        return engine

    def test_the_newest_candidates_are_activated_and_one_is_withdrawn(self, stored):
        done = run("models", "activate", "Ba")
        assert done.exit_code == 0, done.stderr
        assert done.stdout.splitlines() == ["link Ba: version 1 is active", "link Ba: version 2 is active"]
        assert versions(stored)["Ba"] == [(2, "active"), (1, "active")]
        done = run("models", "deactivate", "Ba", "--algorithm", "KR_SML")
        assert (done.exit_code, done.stdout) == (0, "link Ba: version 2 is withdrawn; active: NETWORK\n")
        done = run("models", "deactivate", "Ba")
        assert (done.exit_code, done.stdout) == (0, "link Ba: version 1 is withdrawn; the profile forecasts\n")
        refused = run("models", "deactivate", "Ba", "--algorithm", "BEST")
        assert refused.exit_code == 2
        assert "algorithm='BEST' is refused; it must be one of KR, KR_PCA, MLKR, KR_SML, NETWORK" in refused.stderr

    def test_weights_are_computed_again(self, stored):
        refused = run("models", "rebuild-weights", "Ba")
        assert refused.exit_code == 2
        assert "link 'Ba' is not forecast by an ensemble of experts" in refused.stderr
        assert run("models", "activate", "--all").exit_code == 0
        done = run("models", "rebuild-weights", "--all")
        assert done.exit_code == 0, done.stderr
        assert "3 of 3 ensembles have new weights" in done.stderr
        assert run("models", "rebuild-weights", "Ba").exit_code == 0
        assert run("models", "rebuild-weights").exit_code == 2
        assert run("models", "rebuild-weights", "Ba", "--all").exit_code == 2


class TestAdd:
    def test_a_folder_of_artifacts(self, engine, artifacts):
        done = run("models", "add", artifacts)
        assert done.exit_code == 0, done.stderr
        assert "registry: 2 added, 0 already there, 0 refused" in done.stderr
        assert versions(engine) == {"Ba": [(1, "candidate")], "Cf": [(1, "candidate")]}

    def test_one_artifact_is_activated_and_is_not_added_again(self, engine, artifacts):
        assert run("models", "add", artifacts / "Ba", "--activate").exit_code == 0
        done = run("models", "add", artifacts / "Ba", "--json")
        [shown] = json.loads(done.stdout)
        assert (shown["link_id"], shown["state"], shown["version"]) == ("Ba", "there", 1)
        assert versions(engine)["Ba"] == [(1, "active")]

    def test_a_link_that_does_not_exist_is_reported_and_the_others_are_added(self, engine, artifacts, tmp_path):
        mixed = tmp_path / "mixed"
        mixed.mkdir()
        copy_with_about(artifacts / "Ba", mixed / "Ba", gaps=7)
        copy_with_about(artifacts / "Ba", mixed / "Zz", link_id="Zz")
        done = run("models", "add", mixed)
        assert done.exit_code == 1
        assert "link 'Zz' does not exist" in done.stderr
        assert versions(engine)["Ba"] == [(1, "candidate")]

    def test_a_damaged_artifact_is_reported(self, engine, artifacts, tmp_path):
        copy_with_about(artifacts / "Ba", tmp_path / "Ba")
        (tmp_path / "Ba" / "memory.npy").write_bytes(b"")
        done = run("models", "add", tmp_path / "Ba")
        assert done.exit_code == 1
        assert "memory.npy has 0 bytes" in done.stderr
        assert versions(engine)["Ba"] == []

    @pytest.mark.parametrize("folder", ["nowhere", "."])
    def test_no_artifact_at_all_is_refused(self, engine, tmp_path, monkeypatch, folder):
        monkeypatch.chdir(tmp_path)
        done = run("models", "add", folder)
        assert done.exit_code == 2
        assert "Traceback" not in done.stderr


class TestActivate:
    def test_the_newest_candidate_a_version_and_all(self, engine, artifacts, tmp_path):
        run("models", "add", artifacts)
        run("models", "add", copy_with_about(artifacts / "Ba", tmp_path / "Ba", gaps=7))
        assert "link Ba: version 2 is active" in run("models", "activate", "Ba").stdout
        assert run("models", "activate", "Ba", "1").exit_code == 0
        assert versions(engine)["Ba"] == [(2, "retired"), (1, "active")]
        assert "link Cf: version 1 is active" in run("models", "activate", "--all").stdout
        assert run("models", "activate", "--all").exit_code == 0

    @pytest.mark.parametrize(
        ("arguments", "message", "code"),
        [
            ((), "name a LINK_ID, or give --all", 2),
            (("Ba", "--all"), "name a LINK_ID, or give --all", 2),
            (("Zz",), "link 'Zz' does not exist", 2),
            (("Ba",), "has no candidate", 2),
            (("Ba", "7"), "no trained model of version 7", 1),
        ],
    )
    def test_what_cannot_be_activated_is_refused(self, engine, arguments, message, code):
        done = run("models", "activate", *arguments)
        assert done.exit_code == code
        assert message in done.stderr


class TestList:
    def test_in_words_and_for_machines(self, engine, artifacts):
        assert "the registry is empty" in run("models", "list").stdout
        run("models", "add", artifacts, "--activate")
        assert "active" in run("models", "list").stdout
        [shown] = json.loads(run("models", "list", "--link", "Cf", "--json").stdout)
        assert (shown["link_id"], shown["models"][0]["version"]) == ("Cf", 1)
        assert run("models", "list", "--link", "Zz").exit_code == 2


class TestDeactivate:
    def test_the_active_version_is_withdrawn_and_can_be_activated_again(self, engine, artifacts):
        run("models", "add", artifacts, "--activate")
        done = run("models", "deactivate", "Ba", "--reason", "nonsense")
        assert done.exit_code == 0, done.stderr
        assert "link Ba: version 1 is withdrawn" in done.stdout
        assert versions(engine) == {"Ba": [(1, "retired")], "Cf": [(1, "active")]}
        assert run("models", "activate", "Ba", "1").exit_code == 0
        assert versions(engine) == {"Ba": [(1, "active")], "Cf": [(1, "active")]}

    def test_what_cannot_be_withdrawn_is_refused(self, engine, artifacts):
        nothing = run("models", "deactivate", "Ba")
        assert nothing.exit_code == 2
        assert "no active model" in nothing.stderr
        assert "does not exist" in run("models", "deactivate", "Zz").stderr


@pytest.mark.journey
class TestTrainRegister:
    QUICK = ("--algorithm", "KR", "--lags", 12, "--held-out-days", 4, "--jobs", 1)

    @pytest.fixture
    def counts(self, tmp_path) -> Path:
        write_csv(sample_city(links=3, days=14), tmp_path / "city.csv")
        return tmp_path / "city.csv"

    def test_from_files_into_the_registry_without_an_output(self, engine, counts):
        done = run("train", counts, "--zone", "Europe/Berlin", "--register", "--activate", *self.QUICK)
        assert done.exit_code == 1  # Fe has no link
        assert "left out: link 'Fe' does not exist" in done.stderr
        assert "registry: 2 added, 0 already there, 0 refused" in done.stderr
        assert versions(engine) == {"Ba": [(1, "active")], "Cf": [(1, "active")]}

    def test_links_of_another_zone_are_not_even_trained(self, engine, counts):
        done = run("train", counts, "--register", *self.QUICK)
        assert done.exit_code == 2
        assert "zone='UTC' is refused; it must be that of link 'Ba', 'Europe/Berlin'" in done.stderr
        assert versions(engine) == {"Ba": [], "Cf": []}

    def test_from_the_database(self, engine, counts, tmp_path):
        import_counts(engine, counts)
        options = ("--from-database", "--register", "--links", "Ba", "--days", 12, "--json", *self.QUICK)
        done = run("train", *options, "--output", tmp_path / "kept")
        assert done.exit_code == 0, done.stderr
        [shown] = json.loads(done.stdout)
        assert (shown["link_id"], shown["state"], shown["shelf"]["version"]) == ("Ba", "trained", 1)
        assert shown["about"]["trained_from"] == "2025-09-02T22:00:00+00:00"
        assert versions(engine) == {"Ba": [(1, "candidate")], "Cf": []}
        [again] = json.loads(run("train", *options, "--output", tmp_path / "kept", "--resume").stdout)
        assert (again["state"], again["shelf"]["state"]) == ("kept", "there")

    @pytest.mark.journey
    def test_a_network_is_learnt_from_all_links_and_registered_for_some(self, engine, counts, tmp_path):
        import_counts(engine, counts)
        how = ("--algorithm", "NETWORK", "--held-out-days", 3, "--jobs", 1, "--days", 12)
        options = ("--from-database", "--register", "--activate", "--links", "Ba", "--json", *how)
        done = run("train", *options, "--output", tmp_path / "kept")
        assert done.exit_code == 0, done.stderr
        [shown] = json.loads(done.stdout)
        assert (shown["link_id"], shown["about"]["plan"]["memory_days"]) == ("Ba", 12)
        assert versions(engine) == {"Ba": [(1, "active")], "Cf": []}
        [network] = (tmp_path / "kept" / ".networks").iterdir()
        assert set(load_network(network).link_ids) == {"Ba", "Cf"}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--output", "o"), "give count files or --from-database"),
            (("x.csv", "--from-database", "--register"), "and not both"),
            (("x.csv",), "--output is needed"),
            (("x.csv", "--output", "o", "--activate"), "--activate needs --register"),
            (("x.csv", "--output", "o", "--days", "3"), "--links and --days need --from-database"),
            (("--from-database", "--register", "--links", "Zz"), "link 'Zz' does not exist"),
            (("--from-database", "--register"), "no counts in the database"),
        ],
    )
    def test_options_that_do_not_fit(self, engine, tmp_path, monkeypatch, options, message):
        monkeypatch.chdir(tmp_path)
        done = run("train", *options)
        assert done.exit_code == 2
        assert message in done.stderr.replace("\n", " ")

    def test_without_a_schema_nothing_is_trained(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", f"sqlite:///{tmp_path}/empty.db")
        settings_from_environment.cache_clear()
        done = run("train", "--from-database", "--register")
        settings_from_environment.cache_clear()
        assert done.exit_code == 2
        assert "flowcast db upgrade" in done.stderr
