"""The order of packages: each imports only packages before it, so that there are no cycles."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ORDER = [
    "model.error_measures",
    "model.estimators",
    "model.link_model",
    "model.network_model",
    "model.aggregation",
    "model.artifacts",
    "app.core",
    "app.settings",
    "app.http",
    "app.keys",
    "app.links",
    "app.counts",
    "app.registry",
    "app.forecasts",
    "app.accuracy",
    "app.health",
    "app.training",
    "app.events",
    "app.maintenance",
    "app.worker",
    "app.server",
    "app.dashboard",
    "app.main",
    "app.evaluation",
    "app.demo",
    "app.commands",
    "app.cli",
    "app.__main__",
]
TOP = {"app", "model"}  # the packages themselves, which hold no code of their own


def package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of the project that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in ("app", "model"))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("app", "model"):
            # ``from app import main`` imports app.main; ``from model import KR`` imports model.
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if package(name) in ORDER else node.module for name in named)


def files() -> Iterator[tuple[str, Path]]:
    for top in ("app", "model"):
        for path in sorted((ROOT / top).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if "." in module:
                yield package(module), path


def test_every_package_has_a_place_in_the_order():
    assert {name for name, _ in files()} == set(ORDER)


def test_packages_import_only_what_comes_before_them():
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for name, path in files()
        for module in imports(path)
        if module not in TOP and package(module) != name and ORDER.index(package(module)) > ORDER.index(name)
    ]
    assert not wrong
