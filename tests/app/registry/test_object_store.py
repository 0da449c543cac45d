"""Artifacts in a bucket of a real S3 server, and their local copies."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from app.core.database import reading, writing
from app.core.errors import Conflict
from app.forecasts.compute import Forecaster
from app.links.queries import LinkInfo
from app.registry import bucket as bucket_module
from app.registry.activate import activate
from app.registry.bucket import Bucket
from app.registry.cleanup import remove_old_versions, sweep_store
from app.registry.loaded_models import LoadedModels
from app.registry.object_store import MEGABYTE, ObjectStore
from app.registry.queries import ArtifactRef
from app.registry.register import register_model
from app.registry.store import ArtifactUnreachable, ModelStore, StoreUnreachable
from app.training.network_stage import NetworkTraining
from app.training.train_links import train_links
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.folder import MANIFEST
from model.artifacts.link_models import load_model
from model.artifacts.network_models import network_folder, network_of
from tests.support.artifacts import city_series, copy_with_about
from tests.support.buckets import SECRET, bucket_server
from tests.support.databases import on_sqlite
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.journey  # the bucket is a server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with bucket_server(tmp_path_factory.mktemp("s3")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def shared_bucket(server):
    """Return a bucket that tests share, because opening it takes as long as a test."""
    return Bucket(server.make_bucket(f"models-{uuid.uuid4().hex[:12]}") + "/city")


@pytest.fixture
def bucket(shared_bucket):
    """Return an empty bucket."""
    shared_bucket.remove(shared_bucket.list())
    return shared_bucket


@pytest.fixture
def address(bucket):
    return bucket.address


@pytest.fixture
def open_at(bucket, tmp_path):
    """Return the store of another machine, with its own cache."""
    return lambda machine="one", megabytes=100: ObjectStore(bucket, tmp_path / machine, megabytes)


@pytest.fixture
def fingerprint(artifact):
    return read_artifact(artifact).fingerprint


def objects(server, address):
    return sorted(path.partition("/city/")[2] for path in server.files().find(address.removeprefix("s3://")))


def damage_object(server, address, name, content=b"something else"):
    server.files().pipe_file(f"{address.removeprefix('s3://')}/{name}", content)


class TestRoundTrip:
    def test_bit_for_bit_and_mapped_from_the_copy(self, artifact, fingerprint, open_at, server, address):
        open_at("one").add(artifact, "Ba/1", fingerprint)
        assert objects(server, address) == sorted(f"Ba/1/{file.name}" for file in artifact.iterdir())
        folder = open_at("two").fetch("Ba/1", fingerprint)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
            file.name: file.read_bytes() for file in artifact.iterdir()
        }
        assert not list(folder.parent.glob(".*"))
        memory = read_artifact(folder, fingerprint=fingerprint).arrays["memory"]
        assert isinstance(memory, np.memmap)
        assert Path(memory.filename).parent == folder
        assert open_at("two").size("Ba/1") == sum(file.stat().st_size for file in artifact.iterdir())

    def test_what_an_earlier_writer_left_is_replaced(self, artifact, fingerprint, open_at, server, address):
        damage_object(server, address, "Ba/1/older.npy")
        damage_object(server, address, f"Ba/1/{MANIFEST}")
        open_at("one").add(artifact, "Ba/1", fingerprint)
        assert objects(server, address) == sorted(f"Ba/1/{file.name}" for file in artifact.iterdir())
        load_model(open_at("two").fetch("Ba/1", fingerprint), fingerprint=fingerprint)

    def test_processes_that_fetch_the_same_at_once_all_have_it(self, artifact, fingerprint, open_at, address, tmp_path):
        open_at("one").add(artifact, "Ba/1", fingerprint)
        script = (
            "import sys; from pathlib import Path\n"
            "from app.registry.bucket import Bucket; from app.registry.object_store import ObjectStore\n"
            "from model.artifacts.artifact import read_artifact\n"
            f"store = ObjectStore(Bucket({address!r}), Path({str(tmp_path / 'shared')!r}), 100)\n"
            f"store.fetch('Ba/1', {fingerprint!r}); print('ready', flush=True); sys.stdin.readline()\n"
            f"for _ in range(5): read_artifact(store.fetch('Ba/1', {fingerprint!r}, anew=True))\n"
        )
        pipe, store = subprocess.PIPE, open_at("shared")
        other = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        for _ in range(5):
            read_artifact(store.fetch("Ba/1", fingerprint, anew=True))
        _, errors = other.communicate(timeout=WAIT_SECONDS)
        assert (other.returncode, errors) == (0, "")
        assert [path.name for path in (tmp_path / "shared" / "Ba").iterdir()] == ["1"]


class TestDamage:
    def place(self, fingerprint):
        return ArtifactRef(1, 1, "Ba/1", fingerprint, "KR")

    @pytest.mark.parametrize("how", ["flipped", "cut short", "gone"])
    def test_a_damaged_copy_is_fetched_again(self, artifact, fingerprint, open_at, how):
        store = open_at()
        store.add(artifact, "Ba/1", fingerprint)
        file = store.path("Ba/1") / "memory.npy"
        whole = file.read_bytes()
        if how == "gone":
            file.unlink()
        else:
            file.write_bytes(whole[:-1] + (bytes([whole[-1] ^ 1]) if how == "flipped" else b""))
        loaded = LoadedModels(store, most=10).get(self.place(fingerprint))
        assert file.read_bytes() == whole
        assert loaded.version == 1

    def test_an_artifact_damaged_in_the_store_is_reported(self, artifact, fingerprint, open_at, server, address):
        open_at("one").add(artifact, "Ba/1", fingerprint)
        damage_object(server, address, "Ba/1/memory.npy", (artifact / "memory.npy").read_bytes()[:-1] + b"?")
        models = LoadedModels(open_at("two"), most=10)
        with pytest.raises(DamagedArtifact, match=r"memory\.npy was changed") as refused:
            models.get(self.place(fingerprint))
        assert not isinstance(refused.value, ArtifactUnreachable)
        assert "memory.npy was changed" in models.damaged()[1, 1]
        assert not open_at("two").path("Ba/1").exists()
        damage_object(server, address, f"Ba/1/{MANIFEST}")
        with pytest.raises(DamagedArtifact, match="its fingerprint is"):
            open_at("two").fetch("Ba/1", fingerprint)
        server.files().rm(f"{address.removeprefix('s3://')}/Ba/1/{MANIFEST}")
        with pytest.raises(DamagedArtifact, match=r"manifest\.json is missing"):
            open_at("two").fetch("Ba/1", fingerprint)

    def test_a_manifest_that_leads_elsewhere_is_refused(self, artifact, open_at, server, address, tmp_path):
        manifest = (artifact / MANIFEST).read_bytes().replace(b'"memory.npy"', b'"../../memory.npy"')
        damage_object(server, address, f"Ba/1/{MANIFEST}", manifest)
        with pytest.raises(DamagedArtifact, match="not allowed"):
            open_at().fetch("Ba/1", hashlib.sha256(manifest).hexdigest())
        assert not list(tmp_path.rglob("memory.npy"))

    def test_a_removed_copy_is_served_from_memory_and_a_changed_one_is_not(self, artifact, fingerprint, open_at):
        store = open_at()
        store.add(artifact, "Ba/1", fingerprint)
        models = LoadedModels(store, most=10)
        loaded = models.get(self.place(fingerprint))
        shutil.rmtree(store.path("Ba/1"))
        assert models.get(self.place(fingerprint)) is loaded
        store.fetch("Ba/1", fingerprint)
        assert models.get(self.place(fingerprint)) is not loaded


class TestUnreachable:
    @pytest.fixture
    def no_server(self, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setattr(bucket_module, "ATTEMPTS", 1)

    @pytest.fixture
    def bucket(self, bucket):
        """The same, by a connection of its own: it fails, and is remembered to."""
        return Bucket(bucket.address)

    @on_sqlite
    def test_copies_are_served_and_others_are_out_of_reach(
        self, artifact, fingerprint, open_at, no_server, caplog, engine
    ):
        store = open_at()
        ModelStore(store.root).add(artifact, "Ba/1", fingerprint)  # a copy from before
        models = LoadedModels(store, most=10)
        assert models.get(ArtifactRef(1, 1, "Ba/1", fingerprint, "KR")).version == 1
        with pytest.raises(ArtifactUnreachable, match="is out of reach: EndpointConnectionError"):
            models.get(ArtifactRef(1, 2, "Ba/2", fingerprint, "KR"))
        with reading(engine) as session:
            link = LinkInfo(1, "Ba", "", "Europe/Berlin", 15, None)
            request = Forecaster(models).request(session, link, 0, (ArtifactRef(1, 2, "Ba/2", fingerprint, "KR"),))
        assert request.loaded is None
        assert request.reason.text.startswith("the artifact of version 2 is out of reach: the model store s3://")
        assert SECRET not in caplog.text

    def test_a_bucket_that_does_not_exist_is_named(self, artifact, fingerprint, server, tmp_path):
        store = ObjectStore(Bucket("s3://nowhere-to-be-found/city"), tmp_path / "cache", 100)
        message = "the model store s3://nowhere-to-be-found/city is out of reach: The specified bucket does not exist"
        with pytest.raises(StoreUnreachable, match=message):
            store.add(artifact, "Ba/1", fingerprint)
        assert not store.path("Ba/1").exists()
        with pytest.raises(StoreUnreachable, match=message):
            store.fetch("Ba/1", fingerprint)

    @on_sqlite
    def test_nothing_is_registered_activated_or_swept(
        self, engine, link, artifact, open_at, no_server, monkeypatch, address, tmp_path
    ):
        with pytest.raises(StoreUnreachable), writing(engine) as session:
            register_model(session, open_at(), link, artifact)
        monkeypatch.undo()
        with writing(engine) as session:
            register_model(session, ObjectStore(Bucket(address), tmp_path / "two", 100), link, artifact)
        unreachable = ObjectStore(Bucket("s3://nowhere-to-be-found"), tmp_path / "two", 100)
        message = r"version 1 .* is not activated; the model store .* is out of reach"
        with pytest.raises(Conflict, match=message), writing(engine) as session:
            activate(session, unreachable, link, 1)
        assert sweep_store(engine, unreachable) == []


@on_sqlite
class TestRegistry:
    def test_row_and_objects_go_together(
        self, engine, link, artifact, second_artifact, open_at, server, address, tmp_path
    ):
        store, other = open_at(), tmp_path / "other"
        other.mkdir()
        for folder in (artifact, second_artifact):
            with writing(engine) as session:
                registered = register_model(session, store, link, folder)
                activate(session, store, link, registered.version)
        assert store.places() == ["Ba/1", "Ba/2"]
        with reading(engine) as session:
            assert session.connection().exec_driver_sql("SELECT min(size_bytes) FROM trained_models").scalar() > 1000
        damage_object(server, address, "Ba/1/memory.npy", b"short")
        message = r"its artifact is damaged: memory\.npy has 5 bytes in the store"
        with pytest.raises(Conflict, match=message), writing(engine) as session:
            activate(session, store, link, 1)
        with writing(engine) as session:
            assert not register_model(session, store, link, artifact).new  # which mends it
        with writing(engine) as session:
            activate(session, store, link, 1)
        more = [copy_with_about(artifact, folder / "Ba", gaps=i) for i, folder in enumerate((tmp_path, other), 7)]
        with pytest.raises(ZeroDivisionError), writing(engine) as session:
            1 / (register_model(session, store, link, more[0]).version - 3)
        assert store.places() == ["Ba/1", "Ba/2"]
        for folder in more:
            with writing(engine) as session:
                register_model(session, store, link, folder)
        with writing(engine) as session:
            assert remove_old_versions(session, store, link.link_key, 1) == [3]
        assert store.places() == ["Ba/1", "Ba/2", "Ba/4"]
        assert not store.path("Ba/3").exists()

    def test_what_is_swept(self, engine, link, artifact, open_at, server, address, fingerprint, monkeypatch):
        store = open_at()
        for version in (1, 2, 3):
            store.add(artifact, f"Ba/{version}", fingerprint)
        with writing(engine) as session:
            session.connection().exec_driver_sql(
                "INSERT INTO trained_models (link_key, version, state, algorithm, folder, fingerprint, rank, "
                "trained_from, trained_to, about, created_at) VALUES "
                f"({link.link_key}, 2, 'active', 'KR', 'Ba/2', '{fingerprint}', 1, '2025-01-01', '2025-01-02', '{{}}', "
                "'2025-01-02')"
            )
        damage_object(server, address, "elsewhere.txt")
        assert sweep_store(engine, store) == []  # it was written just now
        monkeypatch.setattr("app.registry.cleanup.LEFT_AFTER_SECONDS", -60.0)
        damage_object(server, address, "Ba/1/notes.txt")
        assert sweep_store(engine, store) == []  # Ba/1 holds more than an artifact, Ba/3 is newer than the database
        server.files().rm(f"{address.removeprefix('s3://')}/Ba/1/notes.txt")
        assert sweep_store(engine, store) == ["Ba/1"]
        assert store.places() == ["Ba/2", "Ba/3"]
        assert "elsewhere.txt" in objects(server, address)


class TestNetworks:
    @pytest.fixture
    def links(self, tmp_path):
        """Return two artifacts of one network."""
        folder = tmp_path / "network"
        how = NetworkTraining.of("NETWORK", {"held_out_days": 4, "max_iter": 1, "mu": (1e-3,)})
        series = city_series(2)
        outcomes = list(train_links(series, folder, how, jobs=1))
        assert {outcome.state for outcome in outcomes} == {"trained"}, outcomes
        return [folder / one.link_id for one in series]

    def test_a_network_comes_along_once_and_is_fetched_with_its_links(self, links, open_at, server, address):
        one, two = open_at("one"), open_at("two")
        prints = [read_artifact(folder).fingerprint for folder in links]
        network = network_of(links[0])
        for i, folder in enumerate(links):
            one.add(folder, f"L{i}/1", prints[i])
        assert one.networks() == [f".networks/{network}"]
        assert one.networks_referred_to() == {network}
        wanted = [(f"L{i}/1", prints[i]) for i in range(2)]
        two.fetch_many(wanted)
        for place, fingerprint in wanted:
            load_model(two.path(place), fingerprint=fingerprint)
        assert network_folder(two.path("L0/1"), network) == two.path(f".networks/{network}")
        (two.path(f".networks/{network}") / "memory.npy").write_bytes(b"")
        models = LoadedModels(two, most=10)
        assert models.get(ArtifactRef(1, 1, "L0/1", prints[0], "KR")).version == 1
        assert not one.is_old(f".networks/{network}", 60.0)
        assert one.is_old(f".networks/{network}", -60.0)
        one.remove(f".networks/{network}")
        assert one.networks() == []
        with pytest.raises(DamagedArtifact, match=r"its network .* is damaged: manifest\.json is missing"):
            open_at("three").fetch("L0/1", prints[0])


class TestCache:
    def test_copies_used_longest_ago_are_removed_and_those_of_late_stay(self, artifact, fingerprint, open_at):
        store = open_at()
        for version in (1, 2, 3, 4):
            store.add(artifact, f"Ba/{version}", fingerprint)
        megabytes = 1.5 * store.size("Ba/1") / MEGABYTE
        now = time.time()
        for version in (1, 2, 3):
            folder = open_at("two").fetch(f"Ba/{version}", fingerprint)
            os.utime(folder, (now, now - 86_400 / version))  # the third was used last
        kept = read_artifact(open_at("two").path("Ba/1"))
        two = open_at("two", megabytes)  # each one looks when it first fetches something
        two.fetch("Ba/4", fingerprint)
        assert sorted(path.name for path in two.root.glob("Ba/*")) == ["4"]
        assert len(kept.arrays["memory"].tobytes()) > 0  # mapped arrays stay readable
        for version in (1, 2):
            open_at("two", megabytes).fetch(f"Ba/{version}", fingerprint)
        assert sorted(path.name for path in two.root.glob("Ba/*")) == ["1", "2", "4"]
