"""Defaults of the commands that train: the same in the command, in its plan and in its documentation."""

import inspect
import re
from pathlib import Path

import pytest

from app.commands.evaluate import evaluate_command
from app.commands.train import train_command
from app.evaluation.plan import EvaluationPlan
from model.link_model.training_plan import TrainingPlan

COMMANDS = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
TRAIN = {"lags": 45, "neighbors": 20, "held_out_days": 7}
EVALUATE = {"train_days": 22, "test_days": 3, "protocol": "paper", "lags": 45, "seed": 0}


@pytest.mark.parametrize(
    ("heading", "command", "defaults"), [("Train", train_command, TRAIN), ("Evaluate", evaluate_command, EVALUATE)]
)
def test_a_command_has_the_documented_defaults(heading, command, defaults):
    parameters = inspect.signature(command).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
    section = COMMANDS.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    documented = {}
    for options, values in re.findall(r"^\| (`--.+?) \| (.*?) \|", section, re.MULTILINE):
        documented |= dict(zip(options.split(", "), values.split(", "), strict=False))
    shown = {name: documented[f"`--{name.replace('_', '-')}`"].strip("`") for name in defaults}
    assert shown == {name: str(value) for name, value in defaults.items()}


def test_a_plan_has_the_defaults_of_its_command():
    plan = TrainingPlan()
    assert (plan.algorithm, plan.lags, plan.n_neighbors, plan.held_out_days) == ("KR_SML", 45, 20, 7)
    assert (plan.horizons, plan.level) == (4, 0.9)
    evaluation = EvaluationPlan()
    assert {name: getattr(evaluation, name) for name in EVALUATE} == EVALUATE
    assert (evaluation.links, evaluation.sample, evaluation.first_day) == (None, None, None)
    assert (evaluation.neighbors_of("KR"), evaluation.neighbors_of("KR_SML")) == (8, 20)
