"""The key of a first start."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, text

from app.core.database import is_sqlite, writing
from app.keys.caller import ALL_SCOPES
from app.keys.issue import issue_key, key_id_in
from app.keys.queries import valid_admin_keys
from app.settings import Settings, Switch

FIRST_KEY_LOCK = 5_121_403_660_915_210_427  # any number, the same in every process


class FirstKey(NamedTuple):
    """Where the first key went: to be shown on a terminal, into a file, or nowhere because there is one already."""

    shown: str | None = None
    file: Path | None = None


def make_first_key(engine: Engine, settings: Settings, *, terminal: bool) -> FirstKey:
    """Make a key with every scope where no admin key exists; of several processes that start at once, one does."""
    if settings.auth is Switch.OFF or settings.admin_key is not None:
        return FirstKey()
    with writing(engine) as session:
        if not is_sqlite(engine):  # where writers do not wait for each other anyway
            session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": FIRST_KEY_LOCK})
        if valid_admin_keys(session, datetime.now(UTC)):
            return FirstKey()
        key = issue_key(session, name="first start", scopes=ALL_SCOPES).key
        if terminal:
            return FirstKey(shown=key)
        write_secret(settings.admin_key_file, key)  # before the commit: a key that nobody can read is not made
    return FirstKey(file=settings.admin_key_file.absolute())


def write_secret(file: Path, key: str) -> None:
    """Write a key into a file that its owner alone can read; an old key there is replaced, anything else is not."""
    if file.exists() and key_id_in(file.read_text(errors="replace").strip()) is None:
        raise FileExistsError(f"{file} exists and holds no key; it will not be overwritten")
    write_private(file, key)


def write_private(file: Path, line: str) -> None:
    """Write a line into a file, in one step, that its owner alone can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(line + "\n")
    part.replace(file)
