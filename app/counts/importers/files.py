"""Open count files: plain, gzip, zip with one or several members, or a stream such as standard input.

Compression is recognised by the first bytes and not by the name, so that it works on a pipe as well. A member of an
archive may be compressed with gzip, but may not be an archive. ``unpacking`` bounds how many bytes are unpacked.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from app.core.errors import shortened
from app.counts.importers.record import CountFileError
from app.counts.importers.unpacking import Budget, members_of, open_archive

Source = str | os.PathLike[str] | IO[bytes]

LONGEST_LINE = 65_536  # bytes; the widest layout needs about a thousand
GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second opens an archive without members
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_8 = codecs.getincrementaldecoder("utf-8")
# The last three: zipfile does not check names, positions and lengths of an archive before it uses them.
UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    zlib.error,
    zipfile.BadZipFile,
    struct.error,
    UnicodeError,
    OverflowError,
)


class FilePart(NamedTuple):
    """One text: a file, or a member of an archive; ``rest`` opens what follows the first line."""

    name: str
    first: bytes
    rest: Callable[[], AbstractContextManager[IO[bytes]]]


def open_parts(source: Source, name: str, stack: ExitStack, most_unpacked: int | None = None) -> list[FilePart]:
    """Open a source and read the first line of each of its parts; ``stack`` closes what was opened.

    Messages call the source by ``name``. What is packed may unpack to ``most_unpacked`` bytes, all of it together.
    """
    with _readable(name):
        stream = _buffered(source, stack)
        budget = Budget(most_unpacked, _size(stream))
        if stream.peek(4)[:4] in ZIP:
            archive = _archive(name, stream, stack)
            return [_member(where, info, archive, budget) for where, info in members_of(name, archive)]
        if _is_gzip(stream):
            stream = stack.enter_context(budget.unpack(gzip.GzipFile(fileobj=stream, mode="rb"), name))
        return [FilePart(name, _checked_opening(name, stream), lambda: nullcontext(stream))]


def lines_of(part: FilePart, *, pieces: bool = False) -> Iterator[bytes]:
    """Return a part's lines, of which overlong ones are cut just beyond the limit, or come in several pieces."""
    yield part.first
    with _readable(part.name), part.rest() as stream:
        line = part.first
        while line:
            while not pieces and line and not line.endswith(b"\n"):
                line = _piece(stream)
            if line := _piece(stream):
                yield line


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise ``CountFileError`` where a file cannot be opened or unpacked."""
    try:
        yield
    except EOFError as fault:
        raise CountFileError(f"{name} is truncated: its compressed data ends too early") from fault
    except UNREADABLE as fault:
        why = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
        raise CountFileError(f"{name} cannot be read: {shortened(' '.join(why.split()), 200)}") from fault


def name_of(source: Source) -> str:
    """Return the name of a source for messages."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
    return str(getattr(source, "name", "the stream"))


def _buffered(source: Source, stack: ExitStack) -> io.BufferedReader:
    if isinstance(source, str | os.PathLike) and source != "-":
        return stack.enter_context(Path(source).open("rb"))
    stream = sys.stdin.buffer if isinstance(source, str | os.PathLike) else source
    buffered = io.BufferedReader(cast(Any, stream))
    stack.callback(buffered.detach)  # a stream that was handed in stays open
    return buffered


def _is_gzip(stream: io.BufferedReader) -> bool:
    return stream.peek(2)[:2] == GZIP


def _size(stream: IO[bytes]) -> int | None:
    """Return the size of a file; None for a pipe."""
    if not stream.seekable():
        return None
    position = stream.tell()
    size = stream.seek(0, os.SEEK_END)
    stream.seek(position)
    return size


def _archive(name: str, stream: io.BufferedReader, stack: ExitStack) -> zipfile.ZipFile:
    if stream.seekable():
        return stack.enter_context(open_archive(name, stream))
    # The list of members stands at the end of an archive: a pipe goes to disk first, not into memory.
    spool = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, spool)
    return stack.enter_context(open_archive(name, spool))


def _member(name: str, info: zipfile.ZipInfo, archive: zipfile.ZipFile, budget: Budget) -> FilePart:
    def opened() -> io.BufferedReader:
        stream = budget.unpack(archive.open(info), name)
        return budget.unpack(gzip.GzipFile(fileobj=stream, mode="rb"), name) if _is_gzip(stream) else stream

    def rest() -> io.BufferedReader:
        stream = opened()
        _opening(stream)
        return stream

    with opened() as stream:
        return FilePart(name, _checked_opening(name, stream), rest)


def _opening(stream: IO[bytes]) -> bytes:
    """Read the first line, and the second where the first is a lone brace or bracket, which any layout may have."""
    first = _piece(stream).removeprefix(BYTE_ORDER_MARK)
    return first + _piece(stream) if first.strip() in (b"{", b"[") else first


def _checked_opening(name: str, stream: IO[bytes]) -> bytes:
    with _readable(name):
        first = _opening(stream)
    if not first:
        raise CountFileError(f"{name} is empty")
    if first.startswith((GZIP, *ZIP)):
        raise CountFileError(f"{name} is an archive within an archive; unpack it first")
    try:
        if b"\0" in first:
            raise ValueError
        UTF_8().decode(first, final=len(first) <= LONGEST_LINE)  # a longer one may be cut within a character
    except ValueError:
        raise CountFileError(f"{name} is binary, or text other than UTF-8; it starts with {first[:16]!r}") from None
    return first


def _piece(stream: IO[bytes]) -> bytes:
    """Read a line, or the piece of an overlong one that goes just beyond the limit."""
    return stream.readline(LONGEST_LINE + 1)
