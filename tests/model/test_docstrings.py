"""The examples in the docstrings of ``model``."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import model

MODULES = [module.name for module in pkgutil.walk_packages(model.__path__, "model.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_show(name):
    assert doctest.testmod(import_module(name)).failed == 0


@pytest.mark.journey
def test_estimators_have_an_example():
    with_examples = {name for name in MODULES if doctest.testmod(import_module(name)).attempted}
    assert {"model.estimators.kr", "model.estimators.kr_sml"} <= with_examples
