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
from typing import Any

import pip
import pytest
import typer
from typer.testing import CliRunner

from app.cli import cli
from app.core.errors import ProblemType
from app.counts.importers.reader import layouts
from app.settings import Settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


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


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_setting_is_documented():
    page = (DOCS / "settings.md").read_text()
    files = [*python_files("app", "model", "benchmarks", "tests/support"), ROOT / "docker-compose.yml"]
    settings = set(re.findall(r"FLOWCAST_[A-Z_]+", "".join(path.read_text() for path in files)))
    assert {"FLOWCAST_TEST_DATA", "FLOWCAST_PUBLISH_ADDRESS"} <= settings
    settings |= {f"FLOWCAST_{name.upper()}" for name in Settings.model_fields}
    assert not [name for name in settings if f"`{name}`" not in page]


def test_defaults_of_settings_are_documented():
    page = (DOCS / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `FLOWCAST_(\w+)` \|\s*`?([^|`]*?)`?\s*\|", page, re.MULTILINE))
    defaults = {name.upper(): field.default for name, field in Settings.model_fields.items()}
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value or "") for name, value in defaults.items()}
    off = {name: "0" for name, value in defaults.items() if value == 0}
    assert {name: rows[name] for name in shown} == shown | off


def test_every_endpoint_is_documented(openapi_document):
    page = (DOCS / "api.md").read_text()
    paths = openapi_document["paths"]
    endpoints = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert len(endpoints) > 20
    assert not [endpoint for endpoint in endpoints if f"`{endpoint}`" not in page]


def test_every_make_target_is_documented():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared
    assert not [target for target in declared[1].split() if f"make {target}" not in page]


def commands(group: Any, name: str = "flowcast") -> Iterator[tuple[str, Any]]:
    """Return every command of the command line with its name."""
    for sub in (group.get_command(None, one) for one in group.list_commands(None)):
        if hasattr(sub, "list_commands"):
            yield from commands(sub, f"{name} {sub.name}")
        else:
            yield f"{name} {sub.name}", sub


def test_every_command_and_its_options_are_documented():
    page = (DOCS / "commands.md").read_text()
    found = dict(commands(typer.main.get_command(cli)))
    assert len(found) > 15
    assert not [name for name in found if name not in page]
    parameters = [parameter for command in found.values() for parameter in command.params]
    shown = {option for one in parameters if not getattr(one, "hidden", False) for option in one.opts}
    options = [option for option in shown if option.startswith("--")]
    assert len(options) > 40
    assert not [option for option in options if not re.search(rf"{option}(?![\w-])", page)]


def test_every_layout_is_documented():
    page = (DOCS / "count-files.md").read_text()
    assert not [name for name in layouts() if f"`{name}`" not in page]


def test_every_benchmark_is_documented():
    page = (DOCS / "benchmarks.md").read_text()
    runnable = [path.stem for path in python_files("benchmarks") if "__main__" in path.read_text()]
    assert runnable
    assert not [name for name in runnable if f"benchmarks.{name}" not in page]


def test_requirements_pin_versions_and_name_no_host():
    for path in (ROOT / "requirements").glob("*.txt"):
        for line in path.read_text().splitlines():
            assert re.fullmatch(r"#.*|-r [a-z0-9]+\.txt|[a-z0-9-]+==[0-9][\w.]*", line), f"{path.name}: {line}"


def test_changelog_has_an_entry_for_this_version():
    assert f"## {version('flowcast')}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.journey
def test_flowcast_command_shows_its_version_and_help():
    command = Path(sys.executable).with_name("flowcast")
    output = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert output.stdout == f"flowcast {version('flowcast')}\n"
    assert "Usage" in CliRunner().invoke(cli, []).stdout


@pytest.mark.journey
def test_make_setup_ends_with_a_line_on_an_unreachable_index(tmp_path):
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


def test_every_type_of_problem_is_documented():
    page = (DOCS / "api.md").read_text()
    rows = re.findall(r"^\| `(/problems/[a-z-]+)` \| (\d+) \| (.+?) \| .+ \|$", page, re.MULTILINE)
    assert rows == [(one.uri, str(one.status), one.when) for one in ProblemType]
