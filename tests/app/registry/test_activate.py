"""One active version at any moment, forwards and back."""

from datetime import UTC, datetime, timedelta

import pytest

from app.core.database import reading, writing
from app.core.errors import Conflict, NotFound
from app.registry.activate import activate
from app.registry.queries import active_models, find_version, newest_candidates, once_active
from app.registry.register import register_model
from app.registry.tables import ModelVersion

NOW = datetime(2025, 9, 30, 12, tzinfo=UTC)


@pytest.fixture
def activate_version(engine, store, link, artifact, second_artifact):
    """Register two candidates."""
    for folder in (artifact, second_artifact):
        with writing(engine) as session:
            register_model(session, store, link, folder)

    def choose(version, hours=0):
        with writing(engine) as session:
            activate(session, store, link, version, now=NOW + timedelta(hours=hours))

    return choose


def states(engine, link):
    with reading(engine) as session:
        rows = [find_version(session, link.link_key, version) for version in (1, 2)]
        return [(row.state, row.activated_at, row.retired_at) for row in rows]


class TestActivate:
    def test_the_active_one_is_retired_and_the_other_takes_its_place(self, engine, link, activate_version):
        activate_version(1)
        assert states(engine, link) == [("active", NOW, None), ("candidate", None, None)]
        activate_version(2, hours=1)
        later = NOW + timedelta(hours=1)
        assert states(engine, link) == [("retired", NOW, later), ("active", later, None)]
        with reading(engine) as session:
            assert [place.version for place in active_models(session, [link.link_key])[link.link_key]] == [2]
            assert [place.version for place in once_active(session, link.link_key)] == [1]

    def test_rolling_back_is_the_same_call(self, engine, link, activate_version):
        for hours, version in enumerate((1, 2, 1)):
            activate_version(version, hours)
        one, two = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
        assert states(engine, link) == [("active", two, None), ("retired", one, two)]

    def test_activating_the_active_one_changes_nothing(self, engine, link, activate_version):
        activate_version(1)
        activate_version(1, hours=1)
        assert states(engine, link)[0] == ("active", NOW, None)

    def test_the_newest_candidate_of_each_link_is_known(self, engine, link, activate_version):
        with reading(engine) as session:
            assert newest_candidates(session) == {link.link_key: [2]}
        with writing(engine) as session:
            find_version(session, link.link_key, 1).algorithm = "KR_SML"
            session.flush()
            assert newest_candidates(session) == {link.link_key: [1, 2]}  # one of each algorithm
            find_version(session, link.link_key, 1).algorithm = "KR"
        activate_version(2)
        with reading(engine) as session:
            assert newest_candidates(session) == {link.link_key: [1]}  # the only one
        with writing(engine) as session:
            row = find_version(session, link.link_key, 1)
            facts = {name: getattr(row, name) for name in ("rank", "trained_from", "trained_to", "about", "created_at")}
            new = {"version": 3, "state": "candidate", "algorithm": "KR_SML", "folder": "x", "fingerprint": "f" * 64}
            session.add(ModelVersion(link_key=link.link_key, **new, **facts))
            session.flush()
            assert newest_candidates(session) == {link.link_key: [3]}  # not one that is older than the active one


class TestRefused:
    def test_a_version_that_does_not_exist(self, activate_version):
        with pytest.raises(NotFound, match="link 'Ba' has no trained model of version 7"):
            activate_version(7)

    def test_a_damaged_artifact_leaves_the_active_one_in_place(self, engine, store, link, activate_version):
        activate_version(1)
        (store.path("Ba/2") / "manifest.json").unlink()
        with pytest.raises(Conflict, match=r"version 2 of link 'Ba' is not activated.*manifest\.json is missing"):
            activate_version(2, hours=1)
        assert [state for state, _, _ in states(engine, link)] == ["active", "candidate"]
