"""Whether another machine would train as this one does."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import app
import model

PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "distributed")


@lru_cache
def code_facts() -> dict[str, str]:
    """Name what training depends on here: Flowcast's version and code, Python, and the packages that compute."""
    digest = hashlib.sha256()
    for package in (app, model):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for file in sorted(root.rglob("*.py")):
            digest.update(f"{package.__name__}/{file.relative_to(root).as_posix()}\n".encode())
            digest.update(file.read_bytes())
    facts = {"flowcast": version("flowcast"), "its code": digest.hexdigest()[:12], "Python": platform.python_version()}
    return facts | {package: version(package) for package in PACKAGES}


def difference(theirs: Mapping[str, str]) -> str:
    """Say in what another machine differs from this one, both values; empty where it does not."""
    ours = code_facts()
    return ", ".join(
        f"{name} is {theirs.get(name, 'missing')} there and {ours[name]} here"
        for name in ours
        if theirs.get(name) != ours[name]
    )
