"""Artifacts in the store: whole, at their place, and nowhere else."""

import pytest

from app.registry.store import ModelStore, place_of
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.link_models import load_model


class TestAdd:
    def test_the_copy_is_the_artifact(self, artifact, tmp_path):
        store, fingerprint = ModelStore(tmp_path), read_artifact(artifact).fingerprint
        store.add(artifact, "Ba/1", fingerprint)
        load_model(store.path("Ba/1"), fingerprint=fingerprint)
        assert sorted(path.name for path in store.path("Ba/1").iterdir()) == sorted(
            path.name for path in artifact.iterdir()
        )
        assert not list((tmp_path / "Ba").glob(".*"))

    def test_what_was_left_at_its_place_is_replaced(self, artifact, second_artifact, tmp_path):
        store = ModelStore(tmp_path)
        store.add(second_artifact, "Ba/1", read_artifact(second_artifact).fingerprint)
        store.add(artifact, "Ba/1", read_artifact(artifact).fingerprint)
        assert read_artifact(store.path("Ba/1")).fingerprint == read_artifact(artifact).fingerprint

    def test_another_artifact_than_was_checked_is_not_taken(self, artifact, second_artifact, tmp_path):
        store = ModelStore(tmp_path)
        with pytest.raises(DamagedArtifact, match="fingerprint"):
            store.add(artifact, "Ba/1", read_artifact(second_artifact).fingerprint)
        assert not store.path("Ba/1").exists()

    def test_files_beside_the_arrays_stay_behind(self, artifact, tmp_path):
        store = ModelStore(tmp_path / "models")
        source = tmp_path / "Ba"
        source.mkdir()
        for file in artifact.iterdir():
            (source / file.name).write_bytes(file.read_bytes())
        (source / "notes.txt").write_text("mine")
        store.add(source, "Ba/1", read_artifact(source).fingerprint)
        assert not (store.path("Ba/1") / "notes.txt").exists()


class TestPlaces:
    @pytest.mark.parametrize("link_id", ["0970-7", ".", "..", "...", ".hidden", "a.b:c_d-e", "-", "x" * 64])
    def test_every_link_has_a_place_of_its_own_inside(self, link_id, tmp_path):
        store = ModelStore(tmp_path / "store")
        folder = store.path(place_of(link_id, 12))
        assert (tmp_path / "store") in folder.resolve().parents
        assert folder.name == "12"
        assert not folder.parent.name.startswith(".")

    @pytest.mark.parametrize("place", ["", "/1", "../1", "Ba", "Ba/../1", "Ba/0", "/etc/1", "a/b/1", ".x/1", "Ba/1\n"])
    def test_what_leads_elsewhere_is_refused(self, place, tmp_path):
        with pytest.raises(ValueError, match="is refused"):
            ModelStore(tmp_path).path(place)


class TestRemove:
    def test_removes_the_artifact_and_an_empty_folder(self, artifact, tmp_path):
        store, fingerprint = ModelStore(tmp_path), read_artifact(artifact).fingerprint
        for version in (1, 2):
            store.add(artifact, f"Ba/{version}", fingerprint)
        store.remove("Ba/1")
        assert [path.name for path in (tmp_path / "Ba").iterdir()] == ["2"]
        store.remove("Ba/2")
        store.remove("Ba/2")
        assert not list(tmp_path.iterdir())
