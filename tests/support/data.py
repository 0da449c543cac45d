"""The folder of test data that is not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT = Path(__file__).parents[2] / ".." / "shared" / "data"


class MissingData(Exception):
    """Raised if data is not found."""


def running_in_ci() -> bool:
    """Return whether this is a CI run, where nothing may be skipped."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def data_directory(name: str, given: Path | None = None) -> Path:
    """Return a folder of data: the given one, or one below ``FLOWCAST_TEST_DATA`` or beside the project."""
    folder = given or Path(os.environ.get("FLOWCAST_TEST_DATA") or DEFAULT).resolve() / name
    if not folder.is_dir():
        raise MissingData(f"no data at {folder}; set FLOWCAST_TEST_DATA to the folder that holds {name}/")
    return folder
