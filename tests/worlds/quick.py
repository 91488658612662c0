"""A recipe whose seeds take a second each, a run of it, and the command line in a process of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from palaestra.runs import recipe

load, validate = (functools.partial(function, trust=True) for function in (recipe.load, recipe.validate))
"""QUICK names modules of the tests, which are our own."""

QUICK: dict[str, Any] = {
    "name": "quick",
    "description": "two tables learn to understand each other",
    "env": {"make": "signalling:Signalling"},
    "policies": {"guide": {"kind": "tabular"}, "seeker": {"kind": "tabular"}},
    "team": {"guide": "guide", "seeker": "seeker"},
    "warm_start": {"script": "signalling:mumbler", "groups": 40, "steps": 10, "lr": 0.1},
    "credit": "grpo(agent_return())",
    "learn": {"lr": 0.2},
    "train": {"iterations": 6, "groups": 8, "group_size": 4, "evaluate_every": 3, "checkpoint_every": 2},
    "evaluation": {
        "tasks": 12,
        "trials": 2,
        "look_tasks": 6,
        "look_trials": 1,
        "controls": {
            "random": {"policies": {"guide": {"kind": "random"}, "seeker": {"kind": "random"}}, "note": "no idea"},
            "scripted": {"script": "signalling:mumbler", "options": {"clarity": 1.0}},
            "idle": {"train": {"learn": {"lr": 0.0}}, "note": "learns nothing"},
        },
    },
    "seeds": 2,
}


class Trained(NamedTuple):
    """What `palaestra train` left behind."""

    recipe: Path
    directory: Path
    stdout: str
    stderr: str


def go_on(text: str, directory: Path) -> None:
    """A run of a recipe that is there perhaps, one seed at a time."""
    from palaestra.interface import library

    library.train(validate(yaml.safe_load(text)), directory, resume=True, jobs=1)


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start the command line in a process of its own, which finds the modules that this one finds."""
    return subprocess.Popen(
        [sys.executable, "-m", "palaestra.interface.cli", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a signal to its group, as a terminal sends it, does not reach the tests
    )
