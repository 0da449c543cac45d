import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.artifacts.artifact import DamagedArtifact, NewerArtifact, read_artifact, remove_leftovers, write_artifact
from tests.support.waiting import WAIT_SECONDS, wait_until

# Its children start without importing anything anew, and none of this process's threads is in them.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])

NOON = datetime(2006, 10, 22, 12, tzinfo=UTC)
CONTENTS = {"estimator": "KR_SML", "lags": [1, 2, 96], "accuracy": {"rmse": 17.25}, "link": "Königsstraße"}
ARRAYS = {"windows": np.arange(12.0).reshape(3, 4), "counts": np.array([3, 1, 2], dtype=np.int32)}
DTYPES = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "0970-7"


@pytest.fixture
def written(folder: Path) -> Path:
    write_artifact(folder, CONTENTS, ARRAYS, written_at=NOON)
    return folder


def edit(folder: Path, **fields: Any) -> None:
    """Change fields of the manifest, or remove them with None."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in manifest.items() if value is not None}))


def edit_entry(folder: Path, **fields: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(folder, arrays={"windows": manifest["arrays"]["windows"] | fields})


def vouch_for(folder: Path, **fields: Any) -> None:
    """Update the manifest to match a changed windows.npy, as an attacker would."""
    raw = (folder / "windows.npy").read_bytes()
    edit_entry(folder, bytes=len(raw), sha256=sha256(raw).hexdigest(), **fields)


def hidden(parent: Path) -> list[str]:
    return [path.name for path in parent.iterdir() if path.name.startswith(".")]


class TestRoundTrip:
    def test_contents_and_arrays_come_back(self, folder: Path):
        fingerprint = write_artifact(folder, CONTENTS, ARRAYS)
        artifact = read_artifact(folder, fingerprint=fingerprint)
        assert artifact.contents == CONTENTS
        assert artifact.fingerprint == fingerprint == sha256((folder / "manifest.json").read_bytes()).hexdigest()
        assert artifact.arrays.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(artifact.arrays[name], array, strict=True)

    @pytest.mark.parametrize("order", ["<", ">"])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype_in_either_byte_order_is_stored_little_endian(self, folder: Path, dtype: str, order: str):
        given = np.array([[0, 1, 100], [7, 0, 1]]).astype(np.dtype(dtype).newbyteorder(order))
        write_artifact(folder, {}, {"a": given})
        back = read_artifact(folder).arrays["a"]
        assert back.dtype == np.dtype(dtype).newbyteorder("<")
        np.testing.assert_array_equal(back, given)

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 5, 2), (1, 1, 1, 1)])
    @pytest.mark.parametrize("dtype", ["bool", "f8"])
    def test_scalars_and_empty_arrays_keep_their_shape(self, folder: Path, shape: tuple[int, ...], dtype: str):
        write_artifact(folder, {}, {"a": np.ones(shape, dtype=dtype)})
        back = read_artifact(folder).arrays["a"]
        np.testing.assert_array_equal(back, np.ones(shape, dtype=dtype), strict=True)
        assert not back.flags.writeable

    def test_special_floats_come_back_bit_for_bit(self, folder: Path):
        floats = np.array([0x7FF8000000000001, 0xFFF0000000000000, 1 << 63, 1], dtype=np.uint64).view(np.float64)
        write_artifact(folder, {}, {"a": floats})
        assert read_artifact(folder).arrays["a"].tobytes() == floats.tobytes()

    @pytest.mark.parametrize("view", [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(20.0)[::-3]])
    def test_other_layouts_are_stored_in_c_order(self, folder: Path, view: np.ndarray):
        write_artifact(folder, {}, {"a": view})
        back = read_artifact(folder).arrays["a"]
        assert back.flags.c_contiguous
        np.testing.assert_array_equal(back, view)

    def test_arrays_are_memory_mapped_and_read_only(self, written: Path):
        for array in read_artifact(written).arrays.values():
            assert isinstance(array, np.memmap)
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True

    def test_no_arrays_at_all(self, folder: Path):
        write_artifact(folder, {}, {})
        artifact = read_artifact(folder)
        assert (artifact.contents, artifact.arrays) == ({}, {})

    def test_npy_files_are_numpys_own(self, written: Path):
        np.testing.assert_array_equal(np.load(written / "windows.npy", allow_pickle=False), ARRAYS["windows"])


def json_values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)

    return st.recursive(leaves, nest, max_leaves=12)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


class TestManifest:
    @pytest.mark.journey
    @settings(max_examples=60, deadline=None)
    @given(contents=st.dictionaries(st.text(), json_values(LEAVES), max_size=5))
    def test_any_json_comes_back_the_same(self, contents: dict[str, Any], tmp_path_factory: pytest.TempPathFactory):
        folder = tmp_path_factory.mktemp("json") / "a"
        write_artifact(folder, contents, {})
        back = read_artifact(folder).contents
        assert back == contents
        assert repr(back) == repr({key: back[key] for key in sorted(contents)})  # sorted keys
        assert json.dumps(back, sort_keys=True) == json.dumps(contents, sort_keys=True)  # 1, 1.0 and True differ

    def test_fields(self, written: Path):
        manifest = json.loads((written / "manifest.json").read_text())
        assert manifest["format"] == "flowcast-artifact"
        assert manifest["format_version"] == 1
        assert manifest["written_at"] == "2006-10-22T12:00:00Z"
        assert manifest["libraries"].keys() == {"python", "numpy", "scipy", "scikit-learn", "flowcast"}
        assert manifest["libraries"]["numpy"] == np.__version__
        assert manifest["libraries"]["flowcast"] == version("flowcast")
        raw = (written / "counts.npy").read_bytes()
        assert manifest["arrays"]["counts"] == {
            "file": "counts.npy",
            "dtype": "<i4",
            "shape": [3],
            "bytes": len(raw),
            "sha256": sha256(raw).hexdigest(),
        }

    def test_is_the_same_for_the_same_arguments_in_any_order(self, tmp_path: Path):
        reverse = [dict(reversed(mapping.items())) for mapping in (CONTENTS, ARRAYS)]
        sydney = NOON.astimezone(timezone(timedelta(hours=10)))
        first = write_artifact(tmp_path / "a", CONTENTS, ARRAYS, written_at=NOON)
        assert write_artifact(tmp_path / "b", *reverse, written_at=sydney) == first
        assert write_artifact(tmp_path / "c", CONTENTS, ARRAYS, written_at=NOON + timedelta(seconds=1)) != first

    def test_fingerprint_changes_with_any_bit_of_any_array(self, tmp_path: Path):
        changed = ARRAYS | {"windows": np.nextafter(ARRAYS["windows"], np.inf)}
        first = write_artifact(tmp_path / "a", CONTENTS, ARRAYS, written_at=NOON)
        assert write_artifact(tmp_path / "b", CONTENTS, changed, written_at=NOON) != first

    def test_unknown_fields_of_a_later_flowcast_are_ignored(self, written: Path):
        edit(written, colour="blue")
        assert read_artifact(written).contents == CONTENTS


def endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


class TestRefusedBeforeWriting:
    @pytest.mark.parametrize(
        ("contents", "reason"),
        [
            ({"accuracy": {"rmse": [1.0, float("nan")]}}, r"contents\.accuracy\.rmse\[1\] is nan"),
            ({"a": float("-inf")}, r"contents\.a is -inf"),
            ({"a": np.float64("nan")}, r"contents\.a is .*nan"),
            ({"a": {3: "x"}}, r"contents\.a has the key 3"),
            ({"a": [0, {None: 1}]}, r"contents\.a\[1\] has the key None"),
            ({"a": np.int64(3)}, r"contents\.a is of type int64"),
            ({"a": np.arange(3)}, r"contents\.a is of type ndarray"),
            ({"a": {1, 2}}, r"contents\.a is of type set"),
            ({"a": b"x"}, r"contents\.a is of type bytes"),
            ({"a": NOON}, r"contents\.a is of type datetime"),
            ({"a": 1 << 20_000}, r"contents\.a is an integer of 20001 bits"),
            ({"a": "\ud800"}, r"contents\.a holds half a surrogate pair"),
            ({"\ud800": 1}, r"contents: the key '\\ud800' holds half"),
            ({"a": endless()}, "deeper than 100 levels"),
        ],
    )
    def test_contents_that_are_not_json(self, folder: Path, contents: Any, reason: str):
        with pytest.raises(ValueError, match=reason):
            write_artifact(folder, contents, ARRAYS)
        assert not list(folder.parent.iterdir())

    def test_contents_that_are_no_mapping(self, folder: Path):
        with pytest.raises(ValueError, match="contents is of type list; it must be a mapping"):
            write_artifact(folder, [1], ARRAYS)  # type: ignore[arg-type]
        assert not folder.exists()

    @pytest.mark.parametrize("name", ["", "A", "1a", "_a", "a-b", "a.b", "../a", "a/b", "a\n", "ä", "a" * 65, 3])
    def test_names_of_arrays(self, folder: Path, name: Any):
        with pytest.raises(ValueError, match="is refused as the name of an array"):
            write_artifact(folder, {}, {name: np.ones(1)})
        assert not list(folder.parent.iterdir())

    @pytest.mark.parametrize("dtype", ["O", "U3", "S3", "f2", "c16", "M8[s]", "m8[s]", "V4", "i4,f8", np.longdouble])
    def test_dtypes(self, folder: Path, dtype: Any):
        with pytest.raises(ValueError, match="array a has dtype"):
            write_artifact(folder, {}, {"a": np.zeros(2, dtype=dtype)})
        assert not list(folder.parent.iterdir())

    @pytest.mark.parametrize("array", [[1.0], 1.0, np.float64(1), np.ma.masked_less(np.arange(3), 2)])
    def test_what_is_not_a_plain_array(self, folder: Path, array: Any):
        with pytest.raises(ValueError, match="must be a plain NumPy array"):
            write_artifact(folder, {}, {"a": array})

    def test_a_time_without_a_zone(self, folder: Path):
        with pytest.raises(ValueError, match="must have a time zone"):
            write_artifact(folder, {}, {}, written_at=datetime(2006, 10, 22))
        assert not folder.exists()


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def truncate(path: Path, by: int = 1) -> None:
    os.truncate(path, path.stat().st_size - by)


class TestRefusedWhenRead:
    def refuse(self, folder: Path, reason: str, **options: Any) -> DamagedArtifact:
        with pytest.raises(DamagedArtifact, match=reason) as refusal:
            read_artifact(folder, **options)
        assert str(folder) in str(refusal.value)
        return refusal.value

    def test_no_folder(self, folder: Path):
        self.refuse(folder, "there is no such folder")
        folder.write_text("a file")
        self.refuse(folder, "there is no such folder")

    def test_no_manifest(self, written: Path):
        (written / "manifest.json").unlink()
        self.refuse(written, r"manifest\.json is missing")

    @pytest.mark.parametrize("raw", [b"", b"{", b"\xff{}", b'{"a": NaN}', b"[" * 100_000, b"{} {}"])
    def test_manifest_that_is_not_json(self, written: Path, raw: bytes):
        (written / "manifest.json").write_bytes(raw)
        self.refuse(written, r"manifest\.json is not JSON, or cut short")

    def test_manifest_cut_short_anywhere(self, written: Path):
        whole = (written / "manifest.json").read_bytes()
        for length in range(0, len(whole) - 2, 7):
            (written / "manifest.json").write_bytes(whole[:length])
            self.refuse(written, "not JSON, or cut short")

    @pytest.mark.parametrize("raw", ["{}", "[]", "3", '{"format": "other", "format_version": 1}'])
    def test_manifest_of_something_else(self, written: Path, raw: str):
        (written / "manifest.json").write_text(raw)
        self.refuse(written, "is not a flowcast-artifact's")

    def test_newer_format(self, written: Path):
        edit(written, format_version=2)
        refusal = self.refuse(written, r"written by a newer Flowcast \(format 2; this one reads up to 1\)")
        assert isinstance(refusal, NewerArtifact)

    @pytest.mark.parametrize("number", [0, -1, True, "1", 1.0, None])
    def test_format_version_that_is_no_number_from_1(self, written: Path, number: Any):
        edit(written, format_version=number)
        assert not isinstance(self.refuse(written, "has format_version"), NewerArtifact)

    @pytest.mark.parametrize("field", ["written_at", "libraries", "arrays", "contents"])
    def test_field_missing_or_of_the_wrong_type(self, written: Path, field: str):
        edit(written, **{field: 3})
        self.refuse(written, f"has no {field}, or one of the wrong type")
        edit(written, **{field: None})
        self.refuse(written, f"has no {field}, or one of the wrong type")

    def test_array_file_missing(self, written: Path):
        (written / "counts.npy").unlink()
        self.refuse(written, r"counts\.npy is missing")

    @pytest.mark.parametrize("verify", [True, False])
    def test_array_file_cut_short_or_too_long(self, written: Path, verify: bool):
        truncate(written / "windows.npy")
        self.refuse(written, r"windows\.npy has 223 bytes; 224 were written", verify=verify)
        with (written / "windows.npy").open("ab") as file:
            file.write(b"xx")
        self.refuse(written, r"windows\.npy has 225 bytes; 224 were written", verify=verify)

    @pytest.mark.journey
    def test_any_bit_of_an_array_file_changed(self, written: Path):
        for at in range((written / "windows.npy").stat().st_size):
            flip(written / "windows.npy", at)
            self.refuse(written, r"windows\.npy (was changed|is not a NumPy array file)")
            flip(written / "windows.npy", at)
        assert read_artifact(written).contents == CONTENTS

    def test_without_verify_a_changed_number_is_not_noticed(self, written: Path):
        flip(written / "windows.npy", -1)
        assert read_artifact(written, verify=False).arrays["windows"][2, 3] != ARRAYS["windows"][2, 3]

    def test_two_array_files_swapped(self, folder: Path):
        write_artifact(folder, {}, {"a": np.zeros(3), "b": np.ones(3)})
        (folder / "a.npy").rename(folder / "c")
        (folder / "b.npy").rename(folder / "a.npy")
        (folder / "c").rename(folder / "b.npy")
        self.refuse(folder, r"a\.npy was changed")

    @pytest.mark.parametrize("verify", [True, False])
    def test_dtype_that_disagrees(self, written: Path, verify: bool):
        edit_entry(written, dtype="<i8")
        self.refuse(written, "windows.npy does not have the header of an array of dtype <i8", verify=verify)

    @pytest.mark.parametrize("verify", [True, False])
    def test_shape_that_disagrees(self, written: Path, verify: bool):
        edit_entry(written, shape=[4, 3])
        self.refuse(written, r"does not have the header of an array of dtype <f8, shape \[4, 3\]", verify=verify)

    def test_pickled_array_is_never_unpickled(self, written: Path):
        marker = written.parent / "unpickled"
        trap = np.empty(1, dtype=object)
        trap[0] = PickleWithSideEffect(marker)
        np.save(written / "windows.npy", trap, allow_pickle=True)
        vouch_for(written, shape=[1])
        self.refuse(written, r"windows\.npy does not have the header")
        edit_entry(written, dtype="|O")
        self.refuse(written, r"has the dtype '\|O', which is not allowed")
        (written / "windows.npy").write_bytes(pickle.dumps(PickleWithSideEffect(marker)))
        vouch_for(written, dtype="<f8")
        self.refuse(written, r"windows\.npy is not a NumPy array file")
        assert not marker.exists()
        pickle.loads((written / "windows.npy").read_bytes())
        assert marker.exists()  # the trap works

    def test_other_kinds_of_files_the_manifest_vouches_for(self, written: Path):
        with (written / "windows.npy").open("wb") as file:
            np.savez(file, windows=ARRAYS["windows"])
        vouch_for(written)
        self.refuse(written, r"windows\.npy is not a NumPy array file")
        (written / "windows.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': oops}\n ")
        vouch_for(written)
        self.refuse(written, r"windows\.npy does not have the header")

    def test_fortran_order_and_bytes_after_the_array_the_manifest_vouches_for(self, written: Path):
        np.save(written / "windows.npy", np.asfortranarray(ARRAYS["windows"]))
        vouch_for(written)
        self.refuse(written, "and C order")
        np.save(written / "windows.npy", ARRAYS["windows"])
        with (written / "windows.npy").open("ab") as file:
            file.write(b"more")
        vouch_for(written)
        self.refuse(written, r"not one array of shape \[3, 4\] and nothing else")

    @pytest.mark.parametrize(
        "name",
        ["../outside.npy", "/{parent}/outside.npy", "sub/a.npy", "..", ".", "", "a\0.npy", ".a.npy", "a\\b.npy", 3],
    )
    def test_file_name_that_leads_elsewhere(self, written: Path, name: Any):
        outside = written.parent / "outside.npy"
        (written / "windows.npy").rename(outside)
        file = name.format(parent=written.parent) if isinstance(name, str) else name
        edit_entry(written, file=file)
        self.refuse(written, "array 'windows' has the file .*, which is not allowed")

    @pytest.mark.parametrize("file", ["windows.npy", "manifest.json"])
    def test_symbolic_link(self, written: Path, file: str):
        (written / file).rename(written.parent / file)
        (written / file).symlink_to(written.parent / file)
        self.refuse(written, f"{file} is a symbolic link")

    def test_folder_in_place_of_a_file(self, written: Path):
        (written / "windows.npy").unlink()
        (written / "windows.npy").mkdir()
        self.refuse(written, r"windows\.npy is not a file")

    @pytest.mark.parametrize(
        "wrong",
        [{"shape": [-1]}, {"shape": "3"}, {"shape": [True]}, {"bytes": "224"}, {"sha256": "x"}, {"dtype": ">f8"}],
    )
    def test_an_entry_that_cannot_have_been_written(self, written: Path, wrong: dict[str, Any]):
        edit_entry(written, **wrong)
        self.refuse(written, f"array 'windows' has the {next(iter(wrong))} .* which is not allowed")

    def test_entries_without_a_sound_name_or_fields(self, written: Path):
        edit(written, arrays={"../x": {}})
        self.refuse(written, "has the name '../x', which is not allowed")
        edit(written, arrays={"x": 3})
        self.refuse(written, "array 'x' has the file None")

    def test_another_fingerprint_than_expected(self, written: Path):
        expected = read_artifact(written).fingerprint
        read_artifact(written, fingerprint=expected)
        write_artifact(written, CONTENTS | {"lags": [1]}, ARRAYS, written_at=NOON)
        self.refuse(written, f"its fingerprint is [0-9a-f]{{64}}; {expected} was expected", fingerprint=expected)

    def test_refusal_survives_the_way_between_processes(self, folder: Path):
        refusal = self.refuse(folder, "no such folder")
        assert str(pickle.loads(pickle.dumps(refusal))) == str(refusal)


class PickleWithSideEffect:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


class TestReplacing:
    def test_an_old_artifact_is_replaced_with_all_its_files(self, written: Path):
        before = read_artifact(written)
        fingerprint = write_artifact(written, {"new": True}, {"b": np.ones(1)})
        assert read_artifact(written).fingerprint == fingerprint
        assert {path.name for path in written.iterdir()} == {"manifest.json", "b.npy"}
        assert not hidden(written.parent)
        np.testing.assert_array_equal(before.arrays["windows"], ARRAYS["windows"])  # a reader keeps what it mapped

    def test_damaged_artifact_can_be_replaced(self, written: Path):
        (written / "manifest.json").unlink()
        write_artifact(written, CONTENTS, ARRAYS)
        assert read_artifact(written).contents == CONTENTS

    def test_what_is_not_an_artifact_is_left_alone(self, folder: Path):
        folder.mkdir()
        (folder / "thesis.tex").write_text("years of work")
        with pytest.raises(FileExistsError, match=r"holds thesis\.tex"):
            write_artifact(folder, {}, {})
        assert (folder / "thesis.tex").exists()
        shutil.rmtree(folder)
        folder.write_text("a file")
        with pytest.raises(FileExistsError, match="is not a folder"):
            write_artifact(folder, {}, {})
        folder.unlink()
        folder.symlink_to(folder.parent)
        with pytest.raises(FileExistsError, match="is not a folder"):
            write_artifact(folder, {}, {})
        assert not hidden(folder.parent)

    def test_error_while_writing_leaves_the_old_artifact_and_nothing_else(
        self, written: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def interrupted(descriptor: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_artifact(written, {}, {})
        assert read_artifact(written).contents == CONTENTS
        assert not hidden(written.parent)

    def test_every_file_and_folder_is_synced_before_the_rename(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        steps: list[str] = []
        sync, rename = os.fsync, Path.rename
        monkeypatch.setattr(
            os, "fsync", lambda fd: (steps.append(str(Path(f"/proc/self/fd/{fd}").readlink())), sync(fd))
        )
        monkeypatch.setattr(Path, "rename", lambda self, to: (steps.append("rename"), rename(self, to)))
        write_artifact(folder, CONTENTS, ARRAYS)
        names = [Path(step).name for step in steps]
        assert names == ["windows.npy", "counts.npy", "manifest.json", "new", "rename", folder.parent.name]

    def test_relative_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        write_artifact(Path("a"), CONTENTS, ARRAYS)
        assert read_artifact(Path("a")).contents == CONTENTS
        for name in ("..", "/"):
            with pytest.raises(ValueError, match="does not end in a name"):
                write_artifact(Path(name), {}, {})


def numbered(folder: Path, n: int, size: int) -> None:
    write_artifact(folder, {"n": n}, {f"a{i}": np.full(size, n) for i in range(4)})


def check_whole(folder: Path) -> int:
    """Read all of an artifact that `numbered` wrote, and return its number."""
    artifact = read_artifact(folder)
    n = artifact.contents["n"]
    assert len(artifact.arrays) == 4
    assert all((array == n).all() for array in artifact.arrays.values())
    return int(n)


def write_until(over: Any, folder: Path, first: int) -> None:
    for n in range(first, sys.maxsize):
        numbered(folder, n, 2_000)
        if over.is_set():
            return


def write_some(folder: Path, first: int, last: int) -> None:
    for n in range(first, last):
        numbered(folder, n, 2_000)


def write_and_die(folder: Path, n: int, step: int) -> None:
    """Write an artifact, and exit before the step-th call of the file system."""
    left = step

    def count_down(event: str, _: Any) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "fcntl.flock"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_down)
    numbered(folder, n, 10)


def hold(folder: Path, ready: Any) -> None:
    from model.artifacts.folder import replace_folder

    with replace_folder(folder):
        ready.set()
        signal.pause()  # until it is killed


@pytest.mark.journey
class TestKilledWriters:
    @pytest.mark.parametrize("old", [True, False])
    def test_at_every_step_leaves_the_old_artifact_or_the_new_one(self, folder: Path, old: bool):
        seen = set()
        for step in range(200):
            if old:
                numbered(folder, 0, 10)
            writer = PROCESSES.Process(target=write_and_die, args=(folder, 1, step))
            writer.start()
            writer.join(WAIT_SECONDS)
            assert len(hidden(folder.parent)) <= 1
            with suppress(DamagedArtifact):  # absent: between the renames, or not yet there
                check_whole(folder)
            remove_leftovers(folder.parent)
            assert not hidden(folder.parent)
            seen.add(check_whole(folder) if folder.exists() else None)
            shutil.rmtree(folder, ignore_errors=True)
            if writer.exitcode == 0:
                break
            assert writer.exitcode == -signal.SIGKILL
        assert writer.exitcode == 0
        assert step > 10
        assert seen == ({0, 1} if old else {None, 1})


@pytest.mark.journey
class TestManyProcesses:
    def test_two_writers_and_a_reader_never_see_a_damaged_artifact(self, folder: Path):
        numbered(folder, 0, 2_000)
        over, seen = PROCESSES.Event(), set()
        writers = [PROCESSES.Process(target=write_until, args=(over, folder, first)) for first in (1, 1_000_001)]
        for writer in writers:
            writer.start()

        def seen_many_of_both() -> bool:
            seen.add(check_whole(folder))
            return min(sum(0 < n < 1_000_000 for n in seen), sum(n > 1_000_000 for n in seen)) >= 10

        wait_until(seen_many_of_both)
        over.set()
        for writer in writers:
            writer.join(WAIT_SECONDS)
        assert [writer.exitcode for writer in writers] == [0, 0]
        check_whole(folder)
        assert not hidden(folder.parent)

    def test_threads_of_one_process(self, folder: Path):
        threads = [threading.Thread(target=write_some, args=(folder, a, a + 10)) for a in (0, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert check_whole(folder) in (9, 109)
        assert not hidden(folder.parent)


class TestRemoveLeftovers:
    @pytest.mark.journey
    def test_living_writer_is_left_alone_and_a_dead_one_is_not(self, folder: Path):
        ready = PROCESSES.Event()
        writer = PROCESSES.Process(target=hold, args=(folder, ready))
        writer.start()
        assert ready.wait(WAIT_SECONDS)
        try:
            assert remove_leftovers(folder.parent) == []
            (name,) = hidden(folder.parent)
            assert f"{writer.pid}-" in name
        finally:
            writer.kill()
            writer.join(WAIT_SECONDS)
        assert remove_leftovers(folder.parent) == [folder.parent / name]
        assert not hidden(folder.parent)

    def test_touches_nothing_else(self, written: Path):
        parent = written.parent
        for name in (".git", ".hidden.writing", "a.1-0123abcd.writing"):
            (parent / name).mkdir()
        (parent / ".a.1-0123abcd.writing").write_text("a file")
        (parent / ".b.1-0123abcd.writing").symlink_to(written)
        before = sorted(parent.rglob("*"))
        assert remove_leftovers(parent) == []
        assert sorted(parent.rglob("*")) == before

    def test_no_such_parent(self, tmp_path: Path):
        assert remove_leftovers(tmp_path / "missing") == []

    def test_old_artifact_deleted_on_purpose_does_not_come_back(self, written: Path):
        work = written.parent / f".{written.name}.1-0123abcd.writing"
        work.mkdir()
        written.rename(work / "old-000000")  # its writer died after the new one was in place
        assert remove_leftovers(written.parent) == [work]
        assert not written.exists()

    def test_old_artifact_is_put_back_only_where_nothing_newer_is(self, written: Path):
        work = written.parent / f".{written.name}.1-0123abcd.writing"
        (work / "new").mkdir(parents=True)
        written.rename(work / "old-000000")
        shutil.copytree(work, work.with_name(work.name.replace("1-", "2-")))
        write_artifact(written, {"newer": True}, {})
        assert len(remove_leftovers(written.parent)) == 2
        assert read_artifact(written).contents == {"newer": True}
