"""Opening of count files: plain, gzip, zip with one or several members, or a stream such as standard input.

Compression is told by the first bytes and not by the name, so that it works on a pipe as well.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import os
import shutil
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

Source = str | os.PathLike[str] | IO[bytes]

LONGEST_LINE = 65_536  # bytes; the widest layout needs about a thousand
GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second opens an archive without members
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_8 = codecs.getincrementaldecoder("utf-8")
UNREADABLE = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, lzma.LZMAError)


class Part(NamedTuple):
    """One text: a file, or a member of an archive; ``rest`` gives a stream that follows the first line."""

    name: str
    first: bytes
    rest: Callable[[], AbstractContextManager[IO[bytes]]]


def open_parts(source: Source, stack: ExitStack) -> list[Part]:
    """Open a source and read the first line of each of its parts; ``stack`` closes what was opened."""
    name = _name(source)
    try:
        stream = _buffered(source, stack)
        if stream.peek(4)[:4] in ZIP:
            return list(_members(name, _archive(stream, stack)))
        text = stack.enter_context(_unpacked(stream)) if stream.peek(2)[:2] == GZIP else stream
    except UNREADABLE as fault:
        raise unreadable(name, fault) from fault
    return [Part(name, _first_line(name, text), lambda: nullcontext(text))]


def lines(part: Part, stack: ExitStack, *, pieces: bool = False) -> Iterator[bytes]:
    """Give a part's lines, of which overlong ones are cut just beyond the limit, or come in several pieces."""
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


def _unpacked(stream: IO[bytes]) -> io.BufferedReader:
    return _peekable(gzip.GzipFile(fileobj=stream))


def _archive(stream: io.BufferedReader, stack: ExitStack) -> zipfile.ZipFile:
    if stream.seekable():
        return stack.enter_context(zipfile.ZipFile(stream))
    # The list of members stands at the end of an archive: a pipe goes to disk first, not into memory.
    spool = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, spool)
    return stack.enter_context(zipfile.ZipFile(spool))


def _members(name: str, archive: zipfile.ZipFile) -> Iterator[Part]:
    members = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    if not members:
        raise CountFileError(f"{name} is an archive without members")
    for info in members:
        where = f"{name}/{info.filename}"
        with _member(archive, info) as stream:
            first = _first_line(where, stream)
        yield Part(where, first, partial(_after_first_line, archive, info, where))


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> io.BufferedReader:
    stream = _peekable(archive.open(info))
    return _unpacked(stream) if stream.peek(2)[:2] == GZIP else stream


def _after_first_line(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> IO[bytes]:
    stream = _member(archive, info)
    _piece(name, stream)
    return stream


def _first_line(name: str, stream: IO[bytes]) -> bytes:
    first = _piece(name, stream).removeprefix(BYTE_ORDER_MARK)
    if not first:
        raise CountFileError(f"{name} is empty")
    try:
        if b"\0" in first:
            raise ValueError
        UTF_8().decode(first)  # a first line without end may be cut within a character
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
