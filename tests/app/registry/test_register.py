"""Registration: row and artifact are stored together or not at all, and errors name the artifact."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core.database import reading, writing
from app.core.errors import Invalid
from app.forecasts.issued_forecast import HORIZONS
from app.links.tables import Link
from app.registry.queries import read_versions
from app.registry.register import LEAST_HORIZONS, register_model
from app.registry.tables import ModelVersion
from model.artifacts.artifact import read_artifact
from model.artifacts.link_models import load_model, save_model
from tests.support.artifacts import copy_with_about
from tests.support.databases import on_sqlite
from tests.support.stored import add_link

NOW = datetime(2025, 9, 30, 12, tzinfo=UTC)


def put(engine, store, link, folder):
    with writing(engine) as session:
        return register_model(session, store, link, folder, now=NOW)


def test_as_many_horizons_are_wanted_as_are_served():
    assert LEAST_HORIZONS == HORIZONS


class TestRegister:
    def test_a_candidate_with_all_that_is_known_about_it(self, engine, store, link, artifact):
        assert put(engine, store, link, artifact) == (1, True)
        with reading(engine) as session:
            [row] = read_versions(session, link.link_key, None, 10)
        model, about = load_model(artifact)
        assert (row.version, row.state, row.algorithm, row.rank) == (1, "candidate", "KR", model.rank)
        assert row.fingerprint == read_artifact(artifact).fingerprint
        assert row.trained_from.isoformat() == about["trained_from"]
        assert row.created_at == NOW
        assert (row.activated_at, row.retired_at, row.damaged) == (None, None, None)
        for name in ("plan", "held_out", "verdicts", "suspect", "gaps", "mu", "n_iter", "data_fingerprint"):
            assert row.about[name] == about[name]
        load_model(store.path(row.folder), fingerprint=row.fingerprint)

    def test_versions_count_up_on_each_link(self, engine, store, link, artifact, second_artifact, tmp_path):
        other = add_link(engine, "Cf")
        assert put(engine, store, link, artifact).version == 1
        assert put(engine, store, link, second_artifact).version == 2
        assert put(engine, store, other, copy_with_about(artifact, tmp_path / "Cf", link_id="Cf")).version == 1

    def test_the_same_artifact_twice_is_there_already(self, engine, store, link, artifact):
        put(engine, store, link, artifact)
        assert put(engine, store, link, artifact) == (1, False)
        with reading(engine) as session:
            assert len(read_versions(session, link.link_key, None, 10)) == 1

    def test_registered_again_a_damaged_artifact_is_repaired(self, engine, store, link, artifact):
        put(engine, store, link, artifact)
        (store.path("Ba/1") / "memory.npy").write_bytes(b"")
        put(engine, store, link, artifact)
        load_model(store.path("Ba/1"), fingerprint=read_artifact(artifact).fingerprint)

    def test_a_link_deleted_and_made_anew_starts_from_1(self, engine, store, link, artifact, second_artifact):
        put(engine, store, link, artifact)
        with writing(engine) as session:
            session.delete(session.get_one(Link, link.link_key))
        again = add_link(engine)
        assert put(engine, store, again, second_artifact) == (1, True)
        assert read_artifact(store.path("Ba/1")).fingerprint == read_artifact(second_artifact).fingerprint


class TestRefused:
    @pytest.mark.parametrize(
        ("about", "message"),
        [
            ({"link_id": "Cf"}, "link_id='Cf' is refused; it must be 'Ba'"),
            ({"slot_minutes": 5}, "slot_minutes='5' is refused; it must be that of link 'Ba', 15"),
            ({"zone": "UTC"}, "zone='UTC' is refused; it must be that of link 'Ba', 'Europe/Berlin'"),
            ({"held_out": []}, "about.held_out="),
            ({"trained_from": "yesterday"}, "about.trained_from='yesterday' is refused"),
            ({"plan": None}, "about.plan='None' is refused"),
        ],
    )
    @on_sqlite
    def test_the_description_must_fit_the_link(self, engine, store, link, artifact, tmp_path, about, message):
        with pytest.raises(Invalid, match=message.replace(".", r"\.")):
            put(engine, store, link, copy_with_about(artifact, tmp_path / "other", **about))
        self.nothing_is_there(engine, store)

    def test_too_few_horizons(self, engine, store, link, artifact, tmp_path):
        model, about = load_model(artifact)
        short = replace(
            model,
            continuations=type(model.continuations)(model.continuations.steps[:, :3], model.continuations.unit[:3]),
            level_shares=model.level_shares[:3],
            bands=replace(
                model.bands,
                edges=model.bands.edges[:3],
                below=model.bands.below[:3],
                above=model.bands.above[:3],
            ),
        )
        save_model(tmp_path / "short", short, about)
        with pytest.raises(Invalid, match="horizons='3' is refused; it must be at least 4"):
            put(engine, store, link, tmp_path / "short")

    def test_an_unknown_algorithm_and_a_week_of_another_grid(self, engine, store, link, artifact, tmp_path):
        model, about = load_model(artifact)
        save_model(tmp_path / "lstm", replace(model, algorithm="LSTM"), about)
        with pytest.raises(Invalid, match="algorithm='LSTM' is refused"):
            put(engine, store, link, tmp_path / "lstm")
        week = type(model.profile)(np.asarray(model.profile.expected_counts)[:, ::2])
        save_model(tmp_path / "half", replace(model, profile=week), about)
        with pytest.raises(Invalid, match=r"it must have the shape \(7, 96\)"):
            put(engine, store, link, tmp_path / "half")

    def test_damaged_and_missing_artifacts(self, engine, store, link, artifact, tmp_path):
        shutil.copytree(artifact, tmp_path / "damaged")
        (tmp_path / "damaged" / "memory.npy").write_bytes(b"")
        with pytest.raises(Invalid, match=r"must be a sound artifact: memory\.npy has 0 bytes"):
            put(engine, store, link, tmp_path / "damaged")
        with pytest.raises(Invalid, match="there is no such folder"):
            put(engine, store, link, tmp_path / "nowhere")
        self.nothing_is_there(engine, store)

    def nothing_is_there(self, engine, store):
        with reading(engine) as session:
            assert session.scalars(select(ModelVersion)).all() == []
        assert not store.path("Ba/1").exists()


class TestNeitherHalf:
    def test_a_transaction_that_fails_leaves_no_artifact(self, engine, store, link, artifact):
        def fail_after_registering() -> None:
            with writing(engine) as session:
                register_model(session, store, link, artifact)
                assert store.path("Ba/1").exists()
                raise RuntimeError("the lights went out")

        with pytest.raises(RuntimeError, match="the lights went out"):
            fail_after_registering()
        assert not store.path("Ba/1").exists()
        assert put(engine, store, link, artifact) == (1, True)

    def test_a_copy_that_fails_leaves_no_row(self, engine, store, link, artifact, monkeypatch):
        def no_space(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("app.registry.store.copy_file", no_space)
        with pytest.raises(OSError, match="No space"):
            put(engine, store, link, artifact)
        TestRefused().nothing_is_there(engine, store)

    def test_a_later_rollback_of_the_same_session_takes_nothing_back(self, engine, store, link, artifact):
        with Session(engine.execution_options(writes=True)) as session:
            register_model(session, store, link, artifact)
            session.commit()
            session.execute(select(1))
            session.rollback()
        assert store.path("Ba/1").exists()
