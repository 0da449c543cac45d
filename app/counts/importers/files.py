"""Opening of count files: plain, gzip, zip with one or several members, or a stream such as standard input.

Compression is told by the first bytes and not by the name, so that it works on a pipe as well. A member of an archive
may be packed with gzip; deeper it does not go. How much comes out is bounded by the rules of ``unpacking``.
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
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from app.counts.importers.record import CountFileError, shortened
from app.counts.importers.unpacking import Budget, Readable, Unpacked, members_of, open_archive

Unpack = Callable[[Readable, str], io.BufferedReader]
Source = str | os.PathLike[str] | IO[bytes]

LONGEST_LINE = 65_536  # bytes; the widest layout needs about a thousand
GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second opens an archive without members
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_8 = codecs.getincrementaldecoder("utf-8")
BUFFER = 65_536  # bytes unpacked at a time
# The last three: zipfile takes an archive at its word, and stumbles over names, places and lengths that cannot be.
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


class Part(NamedTuple):
    """One text: a file, or a member of an archive; ``rest`` gives a stream that follows the first line."""

    name: str
    first: bytes
    rest: Callable[[], AbstractContextManager[IO[bytes]]]


def open_parts(source: Source, stack: ExitStack, most_unpacked: int | None = None) -> list[Part]:
    """Open a source and read the first line of each of its parts; ``stack`` closes what was opened.

    What is packed may unpack to ``most_unpacked`` bytes, all of it together.
    """
    name = _name(source)
    try:
        stream = _buffered(source, stack)
        unpack = partial(_unpacked, budget=Budget(most_unpacked), packed=_size(stream))
        if stream.peek(4)[:4] in ZIP:
            return list(_members(name, _archive(name, stream, stack), unpack))
        text = stack.enter_context(unpack(gzip.GzipFile(fileobj=stream), name)) if _is_gzip(stream) else stream
    except UNREADABLE as fault:
        raise unreadable(name, fault) from fault
    return [Part(name, _first_line(name, text), lambda: nullcontext(text))]


def lines(part: Part, stack: ExitStack, *, pieces: bool = False) -> Iterator[bytes]:
    """Return a part's lines, of which overlong ones are cut just beyond the limit, or come in several pieces."""
    yield part.first
    try:
        stream = stack.enter_context(part.rest())
    except UNREADABLE as fault:
        raise unreadable(part.name, fault) from fault
    line = part.first
    while line:
        if not pieces and not line.endswith(b"\n"):
            _pass_over_line(part.name, stream)
        if line := _piece(part.name, stream):
            yield line


def unreadable(name: str, fault: BaseException) -> CountFileError:
    """Make the error for a file that cannot be opened or unpacked."""
    if isinstance(fault, EOFError):
        return CountFileError(f"{name} is truncated: its compressed data ends too early")
    why = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
    return CountFileError(f"{name} cannot be read: {shortened(' '.join(why.split()), 200)}")


def _name(source: Source) -> str:
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
    return str(getattr(source, "name", "the stream"))


def _buffered(source: Source, stack: ExitStack) -> io.BufferedReader:
    if isinstance(source, str | os.PathLike) and source != "-":
        return stack.enter_context(Path(source).open("rb"))
    stream = sys.stdin.buffer if isinstance(source, str | os.PathLike) else source
    buffered = _peekable(stream)
    stack.callback(buffered.detach)  # a stream that was handed in stays open
    return buffered


def _peekable(stream: Any) -> io.BufferedReader:
    return io.BufferedReader(stream)


def _is_gzip(stream: io.BufferedReader) -> bool:
    return stream.peek(2)[:2] == GZIP


def _size(stream: IO[bytes]) -> int | None:
    """Return the size of a file; None for a pipe."""
    if not stream.seekable():
        return None
    here = stream.tell()
    size = stream.seek(0, os.SEEK_END)
    stream.seek(here)
    return size


def _unpacked(stream: Readable, name: str, *, budget: Budget, packed: int | None) -> io.BufferedReader:
    return io.BufferedReader(Unpacked(stream, budget, name, packed), BUFFER)


def _archive(name: str, stream: io.BufferedReader, stack: ExitStack) -> zipfile.ZipFile:
    if stream.seekable():
        return stack.enter_context(open_archive(name, stream))
    # The list of members stands at the end of an archive: a pipe goes to disk first, not into memory.
    spool = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, spool)
    return stack.enter_context(open_archive(name, spool))


def _members(name: str, archive: zipfile.ZipFile, unpack: Unpack) -> Iterator[Part]:
    for where, info in members_of(name, archive):
        opened = partial(_member, archive, info, where, unpack)
        with opened() as stream:
            first = _first_line(where, stream)
        yield Part(where, first, partial(_after_first_line, opened, where))


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, unpack: Unpack) -> io.BufferedReader:
    stream = unpack(archive.open(info), name)
    return unpack(gzip.GzipFile(fileobj=stream), name) if _is_gzip(stream) else stream


def _after_first_line(opened: Callable[[], io.BufferedReader], name: str) -> IO[bytes]:
    stream = opened()
    _opening(name, stream)
    return stream


def _opening(name: str, stream: IO[bytes]) -> bytes:
    """Read the first line, and the second where the first is a lone brace or bracket, which says too little."""
    first = _piece(name, stream).removeprefix(BYTE_ORDER_MARK)
    return first + _piece(name, stream) if first.strip() in (b"{", b"[") else first


def _first_line(name: str, stream: IO[bytes]) -> bytes:
    first = _opening(name, stream)
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


def _piece(name: str, stream: IO[bytes]) -> bytes:
    """Read a line, or the piece of an overlong one that goes just beyond the limit."""
    try:
        return stream.readline(LONGEST_LINE + 1)
    except UNREADABLE as fault:
        raise unreadable(name, fault) from fault


def _pass_over_line(name: str, stream: IO[bytes]) -> None:
    while (piece := _piece(name, stream)) and not piece.endswith(b"\n"):
        pass
