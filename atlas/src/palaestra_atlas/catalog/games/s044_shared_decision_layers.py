"""[44] Layers of decision that tasks share, learned on two tasks and carried over to a third one that looks different.

Known by its abstract; the parts are the card's reconstruction. Left out: SMAC and Google Research Football.
"""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import SplitMLPPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import by_task
from palaestra.envs.worlds import HiddenRoles
from palaestra.envs.worlds.mixture import Mixture
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout
from palaestra.runs.inline import TrainingResult, learn
from palaestra.runs.saved_policies import adopted
from palaestra_atlas.reproductions import exact, reached
from palaestra_atlas.verification.measures import Left

SIGHTS = {"first": 8, "second": 10, "third": 12}
"""Features that the two players see of each task."""
LEARNED, NEW = ("first", "second"), ("third",)
ACTIONS = 8


def task(name: str) -> dict[str, Any]:
    """A task: the same decisions for all, but three numbers are shown in a code of its own."""
    code = list(SIGHTS).index(name) + 1
    numbers = {"players": 2, "roles": 1, "features": 3, "units": 12, "actions": ACTIONS, "world": 1}
    return {**numbers, "joint": True, "sight": SIGHTS[name], "code": code}


def plain(names: Sequence[str], rate: float, iterations: int, entropy: float, **options: Any) -> dict[str, Any]:
    """Some of the tasks at once, with own front layers."""
    widths = {name: SIGHTS[name] for name in names}
    shared = {"keys": list(names), "own": ["front"], "widths": widths, "hidden": [256, 32]}
    return {
        "name": "-".join(names),
        "env": {
            "make": "native/mixture",
            "options": {
                "own_seats": True,
                "parts": {name: {"make": "native/hidden_roles", "options": task(name)} for name in names},
            },
        },
        "policies": {"players": {"kind": "split_mlp", "options": shared | options}},
        "team": {"*": "players"},
        "credit": "by_task('reward')",
        "learn": {"lr": rate, "terms": ["surrogate()", f"entropy({entropy})"]},
        "train": {
            "iterations": iterations, "groups": 64, "group_size": 1,
            "evaluate_every": iterations, "checkpoint_every": iterations,
        },
        "evaluation": {"tasks": 8, "trials": 1},
    }  # fmt: skip


def pretrained(seed: int) -> TrainingResult:
    """Both first tasks learned at once."""
    return learn(plain(LEARNED, 0.005, 200, 0.15), seed=seed)


def transfer(folder: Path) -> dict[str, Any]:
    """The third task, by a team that takes over the trunk in `folder`."""
    return plain(NEW, 0.01, 80, 0.2, trunk=str(folder), freeze=True)


def recipe(seed: int, folder: Path) -> None:
    """Trains on two tasks, into the folder `tasks`, and writes the recipe of the third one, `third.yaml`."""
    pretrained(seed).team.save(folder / "tasks")
    (folder / "third.yaml").write_text(json.dumps(transfer(Path("tasks"))))


def log_iterations_to(field: str, level: float) -> Callable[[Left], list[float]]:
    """Natural logarithm of the iterations before a metric of training has the level, per seed.

    A difference of two is the logarithm of their ratio.
    """

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            lines = (seed / "metrics.jsonl").read_text().splitlines()
            found.append(math.log(max(reached([json.loads(line)[field] for line in lines], level), 1)))
        return found

    return measured


def policy(*names: str, **options: Any) -> SplitMLPPolicy:
    """A network for some of the tasks, with a front layer for each."""
    widths = {name: SIGHTS[name] for name in names}
    given: dict[str, Any] = {"keys": names, "own": ["front"], "widths": widths, "hidden": (4, 8), "name": "players"}
    return SplitMLPPolicy(8, ACTIONS, **given | options)


def played(players: SplitMLPPolicy, names: Sequence[str] = LEARNED, groups: int = 8) -> Turns:
    """Play of these tasks, with credit."""
    parts = {name: {"make": "native/hidden_roles", "options": task(name)} for name in names}
    seats = dict.fromkeys(Mixture(parts, own_seats=True).agents, players)
    turns = rollout(lambda: Mixture(parts, own_seats=True), Team(seats), groups=groups, seed=0)
    return turns.with_column(advantage=by_task("reward").evaluate(turns))


def parameters(players: SplitMLPPolicy) -> dict[str, torch.Tensor]:
    """A copy of all."""
    return {name: each.detach().clone() for name, each in players.layers.named_parameters()}


@exact
def codes_hide_the_same_decisions() -> None:
    """Both tasks pay the same actions for the same numbers, which they show in 8 and in 10 features."""
    one, other = HiddenRoles(**task("first")), HiddenRoles(**task("second"))
    one.reset(3), other.reset(3)
    for _ in range(one.rounds):
        for action in map(str, range(ACTIONS)):
            tried = [copy.deepcopy(each).step({"player_0": action, "player_1": action}) for each in (one, other)]
            assert tried[0].rewards == tried[1].rewards
        seen = [np.asarray(each.look()["player_0"].array) for each in (one, other)]
        assert [each.size for each in seen] == [8, 10]
        for each in (one, other):
            each.step({"player_0": "0", "player_1": "0"})


@exact
def one_set_of_decision_layers() -> None:
    """Learning on one task moves the decision layers that the other tasks share."""
    players = policy(*LEARNED)
    assert players.groups() == {0: list(LEARNED)}
    turns = played(players)
    first = turns.filter(pl.col("agent").cast(str).str.starts_with("first."))
    rows = turns.frame.filter(turns.frame["agent"].cast(str).str.starts_with("second."))
    before = players.score(rows).logprobs.detach().clone()
    PolicyGradient(Team({"a": players}), lr=0.1).update(first)
    assert (players.score(rows).logprobs.detach() - before).abs().max() > 1e-3


@exact
def own_layers_of_perception() -> None:
    """Fronts read 8 and 10 features and are learned apart; without own fronts different sizes are refused."""
    players = policy(*LEARNED)
    before = parameters(players)["weights.0"]
    turns = played(players)
    first = turns.filter(pl.col("agent").cast(str).str.starts_with("first."))
    PolicyGradient(Team({"a": players}), lr=0.1).update(first)
    moved = (parameters(players)["weights.0"] - before).abs().amax((1, 2))
    assert len(moved) == 2
    assert moved[0] > 1e-3
    assert moved[1] == 0
    with pytest.raises(InputError, match="'front' in own"):
        policy(*LEARNED, own=[])


@exact
def the_trunk_is_carried_over() -> None:
    """It acts on features of the front as it did before; frozen it stays, and only the front learns."""
    source, new = policy(*LEARNED, seed=1), policy(*NEW, seed=2)
    new.adopt(source, freeze=True)
    for layer in (1, 2):
        assert torch.equal(new.layers.weights[layer][0], source.layers.weights[layer][0])
        assert torch.equal(new.layers.biases[layer][0], source.layers.biases[layer][0])
    before = parameters(new)
    PolicyGradient(Team({"a": new}), lr=0.1).update(played(new, NEW))
    moved = {name: not torch.equal(each, before[name]) for name, each in parameters(new).items()}
    assert {name for name, each in moved.items() if each} == {"weights.0", "biases.0"}
    with pytest.raises(InputError, match="other sizes"):
        policy(*NEW, hidden=(4, 9)).adopt(source)


@exact
def a_run_gives_its_trunk() -> None:
    """The option `trunk` of a recipe takes over the shared layers of a run."""
    with tempfile.TemporaryDirectory() as folder:
        source = policy(*LEARNED, seed=1)
        Team({"a": source}).save(Path(folder) / "tasks")
        new = adopted(policy(*NEW, seed=2), trunk=str(Path(folder) / "tasks"), freeze=False)
    assert torch.equal(new.layers.weights[1], source.layers.weights[1])
    assert len(new.parameters()) == 6


@exact
def tasks_weigh_the_same() -> None:
    """Of 2 and 6 turns, the weights are 2 and 2/3, so that absolute credit sums to the same in both tasks."""
    turns = Turns({"part": ["a"] * 2 + ["b"] * 6, "reward": [0.0, 1.0] + [0.0, 1.0] * 3})
    credit = np.asarray(by_task("reward").evaluate(turns))
    spread = [np.std([0, 1], ddof=1), np.std([0, 1] * 3, ddof=1)]
    np.testing.assert_allclose(np.abs(credit) * np.repeat(spread, [2, 6]) / 0.5, [2] * 2 + [2 / 3] * 6, rtol=1e-5)


@exact
def scales_of_rewards_do_not_matter() -> None:
    """Rewards of one task times 100, plus 7, leave everybody's credit as it was."""
    part, reward = ["a"] * 3 + ["b"] * 3, np.array([0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    scaled = np.where(np.array(part) == "b", 100 * reward + 7, reward)
    plainly, other = (
        np.asarray(by_task("reward").evaluate(Turns({"part": part, "reward": paid}))) for paid in (reward, scaled)
    )
    np.testing.assert_allclose(other, plainly, atol=1e-5)
