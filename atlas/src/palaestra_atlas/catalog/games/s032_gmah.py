"""[32] GMAH: an upper seat per agent chooses subgoals, a lower level that was trained before walks to them.

Two walkers that look for a key, a door and a goal, in place of MiniGrid and Trash-Grid. Subgoals are listed by hand, as
in the authors' code; their mixer is not in it, so QMIX over joint choices of subgoals is a reconstruction.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import ScriptedPolicy, random_legal
from palaestra.envs.worlds import PlacesGrid
from palaestra.learning.joint_replay import JointReplay
from palaestra.learning.mixers import Monotonic
from palaestra.play.rollout import rollout
from palaestra.teams import OptionsEnv, options
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WALK, ALL = 14, 28
"""Iterations in which the lower level learns, and iterations of a run."""

QUICK = 15
"""Steps within which held-out episodes are to be over, of the 40 that training allows."""


def plain() -> dict[str, Any]:
    """The recipe of two levels: walkers learn to reach drawn subgoals, are frozen, and upper seats learn to choose."""
    upper = {"hidden": [64], "explore": 7, "least": 0.05}
    mixing = {"mixer": "monotonic", "clock": "inner_step", "gamma": 0.95, "rate": 2e-3, "steps": 60, "tau": 0.02}
    return {
        "name": "subgoals",
        "env": {
            "make": "native/places_grid",
            "options": {"walkers": 2},
            "workflow": "options(longest=12, adaptive=True)",
        },
        "policies": {
            "walker": {"kind": "mlp", "options": {"hidden": [64]}},
            "upper": {"kind": "q_network", "options": upper},
        },
        "team": {"walker_0": "walker", "walker_1": "walker", "*": "upper"},
        "credit": "standardise(return_to_go(gamma=0.8, over=('episode', 'agent', 'option')), over=())",
        "learn": {"lr": 0.003, "epochs": 4, "minibatch": 512, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "phases": [
            {"name": "walk", "until": WALK},
            {"name": "choose", "learn": {"kind": "value_decomposition", "freeze": "walker", "options": mixing}},
        ],
        "train": {"iterations": ALL, "groups": 32, "group_size": 1, "evaluate_every": ALL, "checkpoint_every": ALL},
        "evaluation": {"tasks": 100, "trials": 1, "look_tasks": 4, "look_trials": 1},
    }


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `subgoals.yaml`."""
    (folder / "subgoals.yaml").write_text(json.dumps(plain()))


def placed(cells: list[list[int]], places: list[list[int]], *, chain: bool = True, **further: Any) -> OptionsEnv:
    """Two levels on a grid with walkers and places in these cells."""

    def grid() -> PlacesGrid:
        return PlacesGrid(walkers=len(cells), places=len(places), chain=chain)

    env = OptionsEnv(grid, **further)
    env.reset(0)
    state = env.inner.state
    state.cells, state.places = np.array(cells), np.array(places)
    return env


@exact
def one_choice_per_option() -> None:
    """The card's options of 2, 3 and 1 steps, each with 1 on its last one: worth gamma, gamma^2 and 1."""
    env = placed([[0, 0]], [[0, 2], [3, 2], [3, 3]], gamma=0.9)
    env.inner.play = paid_when_taken(env.inner)
    walks = (("key", ["right"] * 2), ("door", ["down"] * 3), ("goal", ["right"]))
    earned, times = [], []
    for goal, moves in walks:
        results = [env.step({"upper-walker_0": goal})]
        times.append(results.pop().info["inner_step"])
        for move in moves:
            assert not results or set(results[-1].observations) == {"walker_0"}, "the subgoal is kept"
            results.append(env.step({"walker_0": move}))
        assert {each.info["subgoal"]["walker_0"] for each in results} == {goal}
        earned.append(sum(float(each.rewards["upper-walker_0"] or 0.0) for each in results))
    np.testing.assert_allclose(earned, [0.9, 0.81, 1.0])
    assert times == [0, 2, 5]


def paid_when_taken(grid: PlacesGrid) -> Any:
    """The grid's `play` with reward 1 for every place that is taken."""
    inner = grid.play

    def play(chosen: Any) -> Any:
        _, info = inner(chosen)
        return dict.fromkeys(grid.agents, float(grid.reached().any())), info

    return play


@exact
def own_subgoal_alone_is_paid() -> None:
    """1 - .9 k/K in step k if the own subgoal is reached; another place, the env's reward, pay nothing."""
    env = placed([[0, 0]], [[0, 1], [0, 2]], chain=False, longest=10)
    env.step({"upper-walker_0": "place 1"})
    paid = [env.step({"walker_0": "right"}).rewards["walker_0"] for _ in range(2)]
    np.testing.assert_allclose(paid, [0.0, 1 - 0.9 * 2 / 10])  # type: ignore[arg-type]
    env = placed([[0, 0]], [[0, 1]], chain=False)
    env.step({"upper-walker_0": "place 0"})
    result = env.step({"walker_0": "right"})
    np.testing.assert_allclose(result.rewards["walker_0"], 1 - 0.9 / 12)  # type: ignore[arg-type]
    np.testing.assert_allclose(result.rewards["upper-walker_0"], 1 - 0.9 / 40)  # type: ignore[arg-type]


@exact
def all_choose_anew_when_the_situation_changes() -> None:
    """A walker whose subgoal somebody else took: with `adaptive` it chooses again at once, else it keeps it."""
    for adaptive in (True, False):
        env = placed([[0, 0], [5, 0]], [[0, 1], [5, 5]], chain=False, adaptive=adaptive)
        env.step({"upper-walker_0": "place 0", "upper-walker_1": "place 0"})
        seen = env.step({"walker_0": "right", "walker_1": "right"}).observations
        assert seen["upper-walker_0"].legal == ("place 1",)
        assert seen["upper-walker_1"].legal == (("place 1",) if adaptive else ("place 0",))


@exact
def what_follows_is_discounted_by_duration() -> None:
    """Joint choices at times 0, 2 and 5 of an episode: replay knows durations 2 and 3, the last one is over."""
    rows = pl.DataFrame(
        {
            "group": [0] * 6, "episode": [0] * 6, "turn": [0, 0, 3, 3, 7, 7], "agent": ["a", "b"] * 3,
            "features": [[0.0]] * 6, "action_ids": [[0]] * 6, "reward": [0.0] * 6, "inner_step": [0, 0, 2, 2, 5, 5],
        }
    )  # fmt: skip
    replay = JointReplay(10, {"a": 1, "b": 1}, {"a": 2, "b": 2})
    replay.add(rows, "reward", clock="inner_step")
    assert replay.columns["duration"][:2].tolist() == [2.0, 3.0]
    assert replay.columns["over"][:3].tolist() == [False, False, True]


@exact
def mixed_worth_never_falls_with_a_seats_worth() -> None:
    """The slope of the mixed worth in each seat's worth is not negative, and for some states it is positive."""
    import torch

    torch.manual_seed(0)
    mixed = Monotonic(2, 3)
    own = torch.randn(200, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(mixed(own, torch.randn(200, 3)).sum(), own)
    assert (slope >= 0).all()
    assert (slope > 0).any()


@exact
def walkers_learn_first_and_are_frozen_then() -> None:
    """In two iterations of each phase: at first only the walkers' network changes, then only the upper seats'."""
    from palaestra.runs.inline import learn

    small = plain()
    small["train"] |= {"iterations": 4, "groups": 2}
    small["phases"][0]["until"] = 2
    seen: list[dict[str, list[np.ndarray]]] = []

    def note(iteration: int, team: Team) -> dict[str, float]:
        seen.append({name: numbers(team, name) for name in ("walker", "upper")})
        return {}

    learn(small, seed=0, after_iteration=note)
    moved = [
        {name: any((one != two).any() for one, two in zip(old[name], new[name], strict=True)) for name in old}
        for old, new in itertools.pairwise(seen)
    ]
    learning = [[name for name, changed in each.items() if changed] for each in moved]
    assert learning == [["walker"], ["upper"], ["upper"]], learning


def numbers(team: Team, name: str) -> list[np.ndarray]:
    """Copies of the parameters of a policy."""
    return [each.detach().numpy().copy() for each in team.policies[name].module.parameters()]  # type: ignore[attr-defined]


def quick(team: Team, seed: int) -> float:
    """Share of 200 new episodes in which a team takes all places within `QUICK` steps."""
    env = options(functools.partial(PlacesGrid, walkers=2, horizon=QUICK), longest=12, adaptive=True)
    turns = rollout(env, team, groups=200, seed=10_000 + seed).frame
    return float(turns.group_by("group").agg(pl.col("success").cast(float).max())["success"].mean())  # type: ignore[arg-type]


def under(upper: ScriptedPolicy, trained: Team) -> Team:
    """The trained walkers under other upper seats."""
    return Team({each: upper if each.startswith("upper") else trained[each] for each in trained})


@reproduction(
    32,
    claim="Upper seats that learn from the env's reward choose subgoals better than chance, for frozen walkers.",
    baseline="The same walkers under uniform random subgoals; subgoals in the order of the task are measured too.",
    criterion=f"Share of new episodes that are over within {QUICK} steps: at least .15 higher in the mean over seeds.",
    seeds=(0, 1),
    slow=True,
    name="choice",
)
def choice(seeds: Sequence[int]) -> Outcome:
    """Train both levels, then play under three kinds of upper seats."""
    numbered = iter(seeds)

    def measure(trained: TrainingResult) -> dict[str, float]:
        seed = next(numbered)
        order = ScriptedPolicy(lambda request: request.observation.legal[0], name="order")
        return {
            "learned": quick(trained.team, seed),
            "drawn": quick(under(random_legal(), trained.team), seed),
            "in_order": quick(under(order, trained.team), seed),
        }

    found = train_arms(plain(), {"two_levels": {}}, seeds, measure).values["two_levels"]
    measured = {name: float(each.mean()) for name, each in found.items()}
    return Outcome(measured, measured["learned"] - measured["drawn"] >= 0.15)
