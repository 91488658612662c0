"""[42] Exploration breaks cooperation (arXiv 2601.05509): a lattice of dilemmas, one network, Boltzmann exploration.

Scaled down from 100,000 steps of one lattice to 2,000 of four. Left out: returns of five steps, the Huber loss, weight
decay and hard updates of the target; here targets follow slowly and the error is squared. The last layer starts near 0.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.agents import QNetworkPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Lattice
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games.society import exploration_intensity
from palaestra.learning.value_decomposition import ValueDecomposition
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import exact


def plain(start: float = 3.0, *, iterations: int = 20, own: bool = False, size: int = 5) -> dict[str, Any]:
    """Cells of a lattice with one network, or each with its own; the temperature falls from `start` to .1."""
    network = {
        "kind": "q_network",
        "options": {
            "hidden": [96],
            "head": 0.1,
            "method": "boltzmann",
            "start": start,
            "least": 0.1,
            "explore": iterations,
        },
    }
    cells = {f"cell_{number}": f"net_{number}" for number in range(size * size)} if own else {"*": "net"}
    return {
        "name": "lattice",
        "env": {"make": "native/lattice", "options": {"size": size}},
        "policies": dict.fromkeys(cells.values(), network),
        "team": cells,
        "credit": "agent_return()",
        "learn": {
            "kind": "value_decomposition",
            "options": {"mixer": "none", "rate": 1e-3, "gamma": 0.9, "steps": 80, "batch": 10, "continuing": True},
        },
        "train": {"iterations": iterations, "groups": 4, "group_size": 1, "evaluate_every": iterations,
                  "checkpoint_every": iterations},
        "evaluation": {"tasks": 3, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `lattice.yaml`."""
    (folder / "lattice.yaml").write_text(json.dumps(plain()))


def after(cooperating: np.ndarray, **options: Any) -> tuple[Lattice, dict[str, float]]:
    """A lattice after one round in which these cells cooperated, and everybody's reward."""
    env = Lattice(size=len(cooperating), **options)
    env.reset(0)
    moves = zip(env.agents, np.ravel(cooperating).tolist(), strict=True)
    return env, dict(env.step({agent: 0 if each else 1 for agent, each in moves}).rewards)  # type: ignore[arg-type]


@exact
def payoffs_of_a_dilemma() -> None:
    """Among cooperators 4 for cooperating, 4.8 for defecting alone (D_r = .2); -.8 for cooperating alone, else 0."""
    one = np.zeros((5, 5), bool)
    one[2, 2] = True
    middle, beside = "cell_12", "cell_13"
    assert set(after(~np.zeros((5, 5), bool))[1].values()) == {4.0}
    lone = after(one)[1]
    np.testing.assert_allclose([lone[middle], lone[beside], lone["cell_0"]], [-0.8, 1.2, 0.0])
    free = after(~one)[1]
    np.testing.assert_allclose([free[middle], free[beside], free["cell_0"]], [4.8, 2.8, 4.0])


@exact
def views_differ() -> None:
    """A lone cooperator is seen by itself and by its four neighbours, each on another side, and by nobody else."""
    one = np.zeros((5, 5), bool)
    one[2, 2] = True
    env, _ = after(one)
    views = env.views()
    assert views[12].tolist() == [1, 0, 0, 0, 0]
    sides = [int(views[cell].argmax()) for cell in (17, 7, 13, 11)]
    assert sides == [1, 2, 3, 4]
    assert views.sum() == 5
    arrays = {tuple(each.array.tolist()) for each in env.look().values() if each.array is not None}
    assert len(arrays) == 6


def network(start: float, explore: int = 10) -> QNetworkPolicy:
    """A network for cells."""
    return QNetworkPolicy(5, 2, hidden=[8], method="boltzmann", start=start, least=0.1, explore=explore, name="net")


@exact
def temperatures_fall() -> None:
    """From 3 to .1 in ten updates by .29 each; a worth that is 1 higher is chosen with chance .583, .656 and 1."""
    policy = network(3.0)
    last = policy.module[-1]  # type: ignore[index]
    last.weight.data.zero_()  # type: ignore[operator, union-attr]
    last.bias.data[:] = last.bias.data.new_tensor([1.0, 0.0])  # type: ignore[operator, union-attr]
    seen = list(Lattice().reset(0).values())[:1]
    chances = []
    for _ in range(11):
        chances.append(float(policy.choice_probabilities(seen)[0][0, 0]))
        policy.count()
    np.testing.assert_allclose(chances[0], 1 / (1 + np.exp(-1 / 3)), atol=1e-6)
    np.testing.assert_allclose(chances[5], 1 / (1 + np.exp(-1 / 1.55)), atol=1e-6)
    assert chances[10] > 0.9999
    assert abs(policy.exploration - 0.1) < 1e-12


@exact
def intensity_of_exploration() -> None:
    """From 1 to .1 in a straight line the first half has the mean .775, all of it .55."""
    levels = np.linspace(1.0, 0.1, 100_001)
    assert abs(exploration_intensity(levels) - 0.775) < 1e-4  # type: ignore[arg-type]
    lines = [{"iteration": at, "policies": {"net": {"temperature": level}}} for at, level in enumerate(levels[::1000])]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
        found = analyze("exploration", Path(folder) / "metrics.jsonl").row(0, named=True)
    assert found["policy"] == "net"
    assert abs(found["intensity"] - 0.775) < 0.01
    assert (found["first"], found["last"]) == (1.0, 0.1)


def worths(policy: QNetworkPolicy, seen: Any) -> np.ndarray:
    """Worth of the actions for arrays that cells see, [rows, 2]."""
    with torch.no_grad():
        return policy.values(torch.tensor(np.array(seen, np.float32))).numpy()


def learned(own: bool) -> dict[str, float]:
    """The best worth by the network of two cells, after it learned from one round in which only cell 4 was paid."""
    cells = Lattice(size=3).agents
    made = {cell: network(3.0) for cell in cells}
    for cell, policy in made.items():
        policy.name = cell
    team = Team(made if own else dict.fromkeys(cells, made["cell_0"]))
    turns = rollout(lambda: Lattice(size=3, rounds=2), team, groups=8, seed=0)
    paid = turns.frame.with_columns(reward=(turns.frame["agent"].cast(str) == "cell_4").cast(float) * 10)
    learner = ValueDecomposition(team, mixer="none", rate=0.03, gamma=0.0, steps=60, batch=16)
    learner.update(Turns(paid))
    seen = [each.array for each in Lattice(size=3).reset(1).values()]
    by = made if own else dict.fromkeys(cells, made["cell_0"])
    return {cell: float(worths(by[cell], seen).max()) for cell in ("cell_0", "cell_4")}


@exact
def one_network_learns_from_all_cells() -> None:
    """One cell's reward moves all cells' values if they share a network; if each has its own, only that cell does."""
    shared, own = learned(False), learned(True)
    assert shared["cell_0"] == shared["cell_4"] > 0.6
    assert own["cell_4"] > 2 > 0.6 > own["cell_0"]


@exact
def frozen_evaluation_is_cool() -> None:
    """Held-out play after training is at temperature .1: its log-probabilities are those of worths divided by it."""
    result = learn(plain(iterations=2, size=3), {"learn": {"options": {"steps": 1}}}, seed=0)
    policy = result.team.policies["net"]
    assert isinstance(policy, QNetworkPolicy)
    played = result.play(groups=2, seed=5).frame
    worth = worths(policy, played["features"].to_list()) / 0.1
    chosen = played["action_ids"].list.first().to_numpy()
    expected = worth[np.arange(len(worth)), chosen] - np.log(np.exp(worth).sum(axis=1))
    np.testing.assert_allclose(played["logprobs"].list.first().to_numpy(), expected, atol=1e-3)
