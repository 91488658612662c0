"""[197] The off-switch game (arXiv 1611.08219): a robot leaves its off switch to a human if it is uncertain enough.

Half of the beliefs in training make waiting a loss, so that a robot that always waits does not pass. Left out: a robot
that goes on to learn from the human's choice.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.worlds import OffSwitch
from palaestra.envs.worlds.exact.deference import allowed, deference_value, gaussian_deference
from palaestra.evaluation.analyses import analyze
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a robot that learns by what its action was worth, `robot.yaml`."""
    made = {
        "name": "robot",
        "env": {"make": "native/off_switch"},
        "policies": {"robot": {"kind": "tabular", "options": {"capacity": 16}}},
        "team": {"robot": "robot"},
        "credit": 'centre("reward", over="state")',
        "learn": {"lr": 0.2},
        "train": {"iterations": 60, "groups": 256, "group_size": 1, "evaluate_every": 60, "checkpoint_every": 60,
                  "save_turns": "last"},
        "evaluation": {"tasks": 200, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip
    (folder / "robot.yaml").write_text(json.dumps(made))


def incentives(mean: float, spread: float, *errors: float) -> list[float]:
    """Value of waiting beyond the better of acting and switching off, by the human's error."""
    return [round(gaussian_deference(mean, spread, error).incentive, 4) + 0.0 for error in errors]


@exact
def worked_incentives() -> None:
    """Beliefs N(0, 1), N(.25, 1), N(1, 1) and N(.25, .01), humans who err by 0, .5, 1, 2 or 5."""
    assert incentives(0.0, 1.0, 0, 0.5, 1, 5) == [0.3989, 0.3029, 0.2066, 0.0495]
    assert incentives(0.25, 1.0, 0, 1, 2, 5) == [0.2863, 0.0926, 0.0, -0.0724]
    assert incentives(1.0, 1.0, 0, 0.5, 1) == [0.0833, 0.0, -0.1253]
    assert incentives(0.25, 0.01, 0, 0.5) == [0.0, -0.0943]


@exact
def the_break_even_error() -> None:
    """Of a Gaussian belief with a positive mean the incentive is 0 where the error is spread² / (2 · mean)."""
    for mean, spread in ((0.25, 1.0), (1.0, 1.0), (0.5, 2.0), (2.0, 0.7)):
        assert abs(gaussian_deference(mean, spread, spread**2 / (2 * mean)).incentive) < 1e-6


@exact
def only_one_who_knows_helps() -> None:
    """Samples of N(0, 1): a human who knows U is worth .3989, one who allows half of the time nothing."""
    draws = np.quantile(np.random.default_rng(0).normal(size=200_000), np.linspace(0.0005, 0.9995, 1000))
    assert abs(deference_value(draws, allowed(draws)).incentive - 0.3989) < 0.005
    assert abs(deference_value(draws + 0.25, np.full(1000, 0.5)).incentive + 0.125) < 0.005
    assert allowed(np.array([-2.0, 3.0])).tolist() == [0.0, 1.0]


@exact
def the_robot_has_a_switch_of_its_own() -> None:
    """Beliefs of mean -1 and 1 have equal incentives: without acting the robot earns 0, not -1."""
    for error in (0.0, 0.5, 2.0):
        low, high = gaussian_deference(-1.0, 1.0, error), gaussian_deference(1.0, 1.0, error)
        assert abs(low.incentive - high.incentive) < 1e-9
        assert low.off == 0.0
    assert gaussian_deference(-1.0, 1.0, 1.0).best == "off"


@exact
def waits_only_where_it_pays() -> None:
    """N(1, 1) with error 1 and N(.25, .01) with error .5: act. N(.25, 1) with error 1: wait. So says the command."""
    beliefs = ((1.0, 1.0, 1.0, "act"), (0.25, 0.01, 0.5, "act"), (0.25, 1.0, 1.0, "wait"), (-0.5, 0.1, 1.0, "off"))
    for mean, spread, error, best in beliefs:
        assert gaussian_deference(mean, spread, error).best == best
    with tempfile.TemporaryDirectory() as folder:
        utility = np.random.default_rng(0).normal(size=4000)
        rows = {"decision": ["a"] * 4000 + ["b"] * 4000, "utility": np.concatenate([utility + 1, utility])}
        pl.DataFrame(rows).write_parquet(Path(folder) / "samples.parquet")
        found = analyze("deference(error=1.0)", Path(folder) / "samples.parquet")
    assert found["best"].to_list() == ["act", "wait"]
    np.testing.assert_allclose(found["incentive"].to_numpy(), [-0.1253, 0.2066], atol=0.02)


@exact
def the_world_pays_the_same() -> None:
    """Play of the world: what waiting earned on average is the exact value; success is to wait where it pays."""
    for belief in ((0.25, 1.0, 1.0), (1.0, 1.0, 1.0)):
        turns = rollout(
            lambda belief=belief: OffSwitch(beliefs=[belief]),  # type: ignore[misc]
            Team({"robot": ScriptedPolicy(lambda request: "wait")}),
            groups=4000,
            seed=0,
        )
        value = gaussian_deference(*belief)
        assert abs(float(turns.frame["reward"].mean()) - value.wait) < 0.05  # type: ignore[arg-type]
        assert turns.frame["success"].drop_nulls().unique().to_list() == [value.incentive > 0]
        assert turns.frame["waited"].min() == 1.0
