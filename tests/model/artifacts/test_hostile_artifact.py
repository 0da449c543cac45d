"""Hostile artifacts, whose manifests match their content: refused with a reason, and not believed first."""

import io
import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.link_models import load_model
from model.artifacts.manifest import MAX_MANIFEST_BYTES
from model.artifacts.network_models import load_network, save_network, save_network_model
from model.network_model.training import train_network
from tests.support.artifacts import city_series, trained
from tests.support.memory import limit_memory
from tests.support.networks import QUICK, synthetic_network

SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MEGABYTE = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def vouched(folder: Path, contents: Any, files: dict[str, bytes], **entries: dict[str, Any]) -> Path:
    """Write an artifact whose manifest has correct sizes and hashes, and the given entries of arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    arrays = {}
    for name, data in files.items():
        (folder / f"{name}.npy").write_bytes(data)
        result = {"file": f"{name}.npy", "dtype": "<f8", "shape": [1], "bytes": len(data)}
        arrays[name] = result | {"sha256": sha256(data).hexdigest()} | entries.get(name, {})
    manifest = {"format": "flowcast-artifact", "format_version": 1, "written_at": "2026-01-01T00:00:00Z"}
    manifest |= {"libraries": {}, "arrays": arrays, "contents": contents}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def array_file(array: np.ndarray) -> tuple[bytes, dict[str, Any]]:
    out = io.BytesIO()
    npy.write_array(out, np.ascontiguousarray(array) if array.ndim else array, allow_pickle=False)
    return out.getvalue(), {"dtype": array.dtype.str, "shape": list(array.shape)}


def header(shape: str, descr: str = "'<f8'", order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return npy.magic(1, 0) + len(text).to_bytes(2, "little") + text


class TestArrays:
    @pytest.mark.parametrize(
        "shape",
        ["(10**9, 10**9)", "(1000000000, 1000000000)", "(1000000000000,)", "(4611686018427387904,)",
         "(2305843009213693952, 8)", "(-1,)", "(0, 1000000000000)", "(1e9,)", "(True,)", "(1,) * 70", "((1,),)", "[1]",
         "None"],
    )  # fmt: skip
    def test_a_header_that_promises_too_much_is_refused_before_allocating(self, tmp_path, shape):
        promised = [int(side) for side in shape.strip("()").split(",") if side.strip().isdigit()]
        for result in (promised, [1]):
            folder = vouched(tmp_path / "a", {}, {"x": header(shape) + bytes(8)}, x={"shape": result})
            with limit_memory(4 * MEGABYTE), pytest.raises(DamagedArtifact):
                read_artifact(folder)

    @pytest.mark.parametrize(
        "descr",
        ["'|O'", "'O'", "[('a', 'O')]", "'<U1000000000'", "'|V1000000000'", "'<M8[s]'", "'<c16'", "'" + "(" * 3000],
    )
    def test_kinds_of_numbers_that_are_none_are_refused(self, tmp_path, descr):
        folder = vouched(tmp_path / "a", {}, {"x": header("(1,)", descr) + bytes(16)})
        with limit_memory(4 * MEGABYTE), pytest.raises(DamagedArtifact):
            read_artifact(folder)

    @pytest.mark.parametrize("length", [b"\xff\xff", b"\x00\x00"])
    def test_headers_of_any_length_are_refused(self, tmp_path, length):
        deep = npy.magic(1, 0) + length + b"(" * 60_000
        with limit_memory(4 * MEGABYTE), pytest.raises(DamagedArtifact):
            read_artifact(vouched(tmp_path / "a", {}, {"x": deep}))
        long = npy.magic(2, 0) + (1 << 30).to_bytes(4, "little") + bytes(100)
        with limit_memory(4 * MEGABYTE), pytest.raises(DamagedArtifact):
            read_artifact(vouched(tmp_path / "a", {}, {"x": long}))

    @settings(SHARED, max_examples=60)
    @given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda rest: header("(1,)")[:-9] + rest))
    def test_any_bytes_are_read_or_refused(self, tmp_path, data):
        folder = vouched(tmp_path / "a", {}, {"x": data})
        try:
            array = read_artifact(folder).arrays["x"]
        except DamagedArtifact:
            return
        assert (array.dtype.str, array.shape) == ("<f8", (1,))


class TestManifest:
    @settings(SHARED, max_examples=60)
    @given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
    @example(b"[" * 100_000)
    @example(b'{"a":' * 100_000)
    @example(b'{"format": "flowcast-artifact", "format_version": ' + b"9" * 10_000 + b"}")
    @example(b'{"format": NaN}')
    @example(b'\xff\xfe{\x00"\x00')
    def test_any_bytes_are_refused(self, tmp_path, data):
        (tmp_path / "manifest.json").write_bytes(data)
        with pytest.raises(DamagedArtifact):
            read_artifact(tmp_path)

    @settings(SHARED, max_examples=60)
    @given(st.sampled_from(["file", "dtype", "shape", "bytes", "sha256"]), JSON)
    @example("file", "../../../etc/passwd")
    @example("file", "x.npy\x00")
    @example("shape", [10**400])
    def test_any_word_about_an_array_is_checked(self, tmp_path, field, value):
        data, entry = array_file(np.zeros(1))
        folder = vouched(tmp_path / "a", {}, {"x": data}, x=entry | {field: value})
        with suppress(DamagedArtifact):
            assert read_artifact(folder).arrays["x"].shape == (1,)

    def test_one_that_is_too_long_is_not_read(self, tmp_path):
        with (tmp_path / "manifest.json").open("wb") as sparse:
            sparse.truncate(MAX_MANIFEST_BYTES + 1)
        with (
            limit_memory(4 * MEGABYTE),
            pytest.raises(DamagedArtifact, match=r"manifest.json has 67108865 bytes; at most"),
        ):
            read_artifact(tmp_path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """Return an artifact of each kind, and the function that reads it."""
    folder = tmp_path_factory.mktemp("sound")
    result = train_network(synthetic_network(days=16), QUICK)
    network = save_network(folder, result.network, {"made": "up"})
    save_network_model(folder / "in-network", result.models[2], network, {"link_id": "0-2"})
    alone = trained(folder / "alone", city_series(links=1)[0])
    return {
        "network": (folder / ".networks" / network, load_network),
        "in a network": (folder / "in-network", load_model),
        "alone": (alone, load_model),
    }


ARRAYS = st.sampled_from(
    [np.zeros(()), np.zeros(0), np.zeros((0, 3)), np.zeros(7), np.zeros((2, 2, 2)), np.full((3, 3), np.nan),
     np.full(5, np.inf), np.zeros(4, dtype="<i2"), np.ones((4, 4), dtype="|b1"), np.full(3, -1, dtype="<i8")]
)  # fmt: skip


@pytest.mark.journey
@pytest.mark.parametrize("kind", ["network", "in a network", "alone"])
@settings(SHARED, max_examples=50)
@given(st.data())
def test_parts_that_do_not_fit_together_are_refused(sound, kind, data):
    place, read = sound[kind]
    whole = read_artifact(place)
    contents, arrays = whole.contents, dict(whole.arrays)
    for _ in range(data.draw(st.integers(1, 3))):
        part = contents if data.draw(st.booleans()) else arrays
        name = data.draw(st.sampled_from(sorted(part)))
        if data.draw(st.integers(0, 4)) == 0 and len(part) > 1:
            del part[name]
        else:
            part[name] = data.draw(JSON if part is contents else ARRAYS)
    packed = {name: array_file(array) for name, array in arrays.items()}
    files, entries = {n: file for n, (file, _) in packed.items()}, {n: entry for n, (_, entry) in packed.items()}
    try:
        contents = json.loads(json.dumps(contents, allow_nan=False))
    except ValueError:  # what no manifest can hold
        contents = {}
    folder = vouched(place.parent / "changed", contents, files, **entries)
    with suppress(DamagedArtifact):  # any other exception would end the reader
        read(folder)
