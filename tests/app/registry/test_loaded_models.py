"""Trained models in memory, which are loaded before they are needed."""

import pytest

from app.core.database import writing
from app.registry.activate import activate
from app.registry.loaded_models import LoadedModels
from app.registry.queries import ArtifactRef
from app.registry.register import register_model
from model.artifacts.artifact import read_artifact
from tests.support.databases import on_sqlite
from tests.support.waiting import wait_until

LINKS = 3


@pytest.fixture
def places(artifact, store):
    """Return places of copies of one artifact, for different links."""
    fingerprint = read_artifact(artifact).fingerprint
    for key in range(LINKS):
        store.add(artifact, f"{key}/1", fingerprint)
    return [ArtifactRef(key, 1, f"{key}/1", fingerprint, "KR") for key in range(LINKS)]


def never() -> bool:
    return False


def test_all_that_are_kept_are_loaded(store, places):
    models = LoadedModels(store, most=10)
    models.load_ahead(places, never)
    assert len(models) == LINKS
    few = LoadedModels(store, most=2)
    few.load_ahead(places, never)
    assert len(few) == 2
    kept = few.get(places[0])
    assert few.get(places[0]) is kept


def test_a_damaged_artifact_is_taken_note_of_and_the_others_are_loaded(store, places):
    (store.path(places[1].folder) / "memory.npy").write_bytes(b"")
    models = LoadedModels(store, most=10)
    models.load_ahead(places, never)
    assert len(models) == LINKS - 1
    assert "memory.npy" in models.damaged()[1, 1]


def test_it_ends_when_it_is_over(store, places):
    answers = iter([False, True])
    models = LoadedModels(store, most=10)
    models.load_ahead(places, lambda: next(answers))
    assert len(models) == 1


@on_sqlite
def test_a_service_loads_the_active_models_by_itself(engine, store, link, artifact, request):
    with writing(engine) as session:
        register_model(session, store, link, artifact)
        activate(session, store, link, 1)
    client = request.getfixturevalue("client")  # not before: the model has to be there when the service starts
    wait_until(lambda: "flowcast_loaded_models 1.0" in client.get("/metrics").text)
