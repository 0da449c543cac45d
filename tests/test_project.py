"""Promises the project makes about itself."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pip
import pytest
import typer
from typer.testing import CliRunner

from app.cli import cli
from app.counts.importers.reader import layouts
from app.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def imports_under(folder: str) -> list[str]:
    names = []
    for path in python_files(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
    return names


def test_model_never_imports_app_tests_or_benchmarks():
    names = imports_under("model")
    assert "numpy" in names
    assert not [name for name in names if name.split(".")[0] in ("app", "tests", "benchmarks")]


def test_readme_documents_every_setting():
    text = "".join(path.read_text() for path in python_files("app", "model", "benchmarks", "tests/support"))
    settings = set(re.findall(r"FLOWCAST_[A-Z_]+", text))
    assert "FLOWCAST_TEST_DATA" in settings
    assert not [name for name in settings if name not in README]


def test_readme_documents_every_field_of_the_settings():
    assert not [name for name in Settings.model_fields if f"FLOWCAST_{name.upper()}" not in README]


def test_readme_documents_every_endpoint(openapi_document):
    paths = openapi_document["paths"]
    endpoints = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert len(endpoints) > 20
    assert not [endpoint for endpoint in endpoints if f"`{endpoint}`" not in README and f"`{endpoint}?" not in README]


def test_readme_documents_every_make_target():
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared
    assert not [target for target in declared[1].split() if f"make {target}" not in README]


def test_readme_documents_every_command_and_its_options():
    for command in typer.main.get_command(cli).commands.values():
        assert f"flowcast {command.name}" in README
        if command.name == "train":
            options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
            assert not [option for option in options if f"`{option}`" not in README and f"{option} " not in README]


def test_readme_documents_every_layout():
    assert not [name for name in layouts() if f"`{name}`" not in README]


def test_readme_documents_every_benchmark():
    runnable = [path.stem for path in python_files("benchmarks") if "__main__" in path.read_text()]
    assert runnable
    assert not [name for name in runnable if f"benchmarks.{name}" not in README]


def test_requirements_pin_versions_and_name_no_host():
    for path in (ROOT / "requirements").glob("*.txt"):
        for line in path.read_text().splitlines():
            assert re.fullmatch(r"#.*|-r [a-z0-9]+\.txt|[a-z0-9-]+==[0-9][\w.]*", line), f"{path.name}: {line}"


def test_changelog_has_an_entry_for_this_version():
    assert f"## {version('flowcast')}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.journey
def test_flowcast_command_tells_its_version_and_helps():
    command = Path(sys.executable).with_name("flowcast")
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"flowcast {version('flowcast')}\n"
    assert "Usage" in CliRunner().invoke(cli, []).stdout


@pytest.mark.journey
def test_make_setup_says_in_its_last_line_that_no_package_index_was_reached(tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    # An environment takes seconds to get a pip of its own; it has this one's instead, and nothing else.
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent" / "pip").symlink_to(Path(pip.__file__).parent)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = venv ] && set -- "$@" --without-pip\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    unreachable = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    refused = subprocess.run(
        ["make", "setup", f"PYTHON={python}"],
        cwd=tmp_path,
        env=os.environ | unreachable | {"PYTHONPATH": str(tmp_path / "lent")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "No matching distribution found" in refused.stderr
    assert "make: pip failed, see above; without a package index" in refused.stderr.splitlines()[-2]
    assert not (tmp_path / ".venv" / ".runs").exists()
