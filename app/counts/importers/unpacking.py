"""Bounds on the size of unpacked files, checked while they are unpacked, because an archive may state wrong sizes."""

from __future__ import annotations

import io
import stat
import zipfile
from typing import IO, Any, cast

from app.core.errors import shortened
from app.counts.importers.record import CountFileError

MEGABYTE = 1 << 20
MOST_MEMBERS = 1000
LONGEST_DIRECTORY = MEGABYTE  # bytes of an archive's list of members; a thousand of them take a tenth of it
# A day of zeros packs 100 to 1; gzip and zip reach 1000 to 1 on what means nothing.
LARGEST_RATIO = 250
UNSUSPICIOUS = 64 * MEGABYTE  # unpacked bytes up to which any ratio will do
BUFFER = 65_536  # bytes unpacked at a time
Packed = IO[bytes] | io.BufferedIOBase  # whose read() unpacks
PACKINGS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others unpack any amount at once, past every bound


class Budget:
    """A bound on the bytes that all parts of one source unpack to; ``packed`` is its size, if that is known."""

    def __init__(self, most: int | None, packed: int | None) -> None:
        self._most, self._packed = most, packed
        self._unpacked = 0

    def unpack(self, stream: Packed, name: str) -> io.BufferedReader:
        """Return the unpacked bytes of a stream, which are accounted for as they are read."""
        return io.BufferedReader(_Unpacked(stream, self, name), BUFFER)

    def spend(self, size: int, name: str) -> None:
        """Account for unpacked bytes; raise ``CountFileError`` for too many."""
        self._unpacked += size
        if self._most is None:
            return
        if self._unpacked > self._most:
            most = f"{self._most // MEGABYTE} MB, which FLOWCAST_MAX_UNPACKED_MEGABYTES allows"
            raise CountFileError(f"{name} unpacks to more than the {most}")
        if self._packed is not None and self._unpacked > max(UNSUSPICIOUS, LARGEST_RATIO * self._packed):
            raise CountFileError(f"{name} unpacks to more than {LARGEST_RATIO} times its size; no file of counts does")


class _Unpacked(io.RawIOBase):
    def __init__(self, stream: Packed, budget: Budget, name: str) -> None:
        self._stream, self._budget, self._name = stream, budget, name

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes and account for them."""
        data = self._stream.read(len(buffer))
        self._budget.spend(len(data), self._name)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close what is unpacked, too."""
        if not self.closed:
            self._stream.close()
        super().close()


class _Archived:
    """An archive's bytes as zipfile reads them: its list of members at once, of which each takes a kB of memory."""

    def __init__(self, name: str, stream: IO[bytes]) -> None:
        self._name, self._stream = name, stream
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, size: int = -1) -> bytes:
        """Read, but never much at once."""
        data = self._stream.read(size if 0 <= size <= LONGEST_DIRECTORY else LONGEST_DIRECTORY + 1)
        if len(data) > LONGEST_DIRECTORY:
            raise _too_many_members(self._name)
        return data


def open_archive(name: str, stream: IO[bytes]) -> zipfile.ZipFile:
    """Open an archive, unless its list of members is too long to be read."""
    return zipfile.ZipFile(cast("IO[bytes]", _Archived(name, stream)))


def members_of(name: str, archive: zipfile.ZipFile) -> list[tuple[str, zipfile.ZipInfo]]:
    """List the files of an archive with their names for messages; none is ever written to disk."""
    found = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    if not found:
        raise CountFileError(f"{name} is an archive without members")
    if len(found) > MOST_MEMBERS:
        raise _too_many_members(name)
    members = [(f"{name}/{printable(info.filename)}", info) for info in found]
    for where, info in members:
        if stat.S_ISLNK(info.external_attr >> 16):
            raise CountFileError(f"{where} is a symbolic link; it must be a file")
        if info.compress_type not in PACKINGS:
            raise CountFileError(f"{where} is packed by method {info.compress_type}; it must be stored or deflated")
    return members


def _too_many_members(name: str) -> CountFileError:
    return CountFileError(f"{name} has more than {MOST_MEMBERS} members; split it")


def printable(name: str) -> str:
    """Return a name of unknown origin with its control characters replaced, for terminals and logs."""
    return shortened("".join(letter if letter.isprintable() else "\ufffd" for letter in name), 200)
