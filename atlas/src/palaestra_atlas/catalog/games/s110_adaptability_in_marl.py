"""[110] Adaptability in multi-agent RL: a protocol for shifts of a team's world.

The paper is a survey that was read as an abstract: it names three dimensions and gives no meter. The meters are a
proposal of this package.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.evaluation.adaptability import adaptability, normalised, recovery, regret
from palaestra.evaluation.analyses import analyze
from palaestra.runs.adaptation import train_under_shifts
from palaestra.runs.inline import learn
from palaestra.runs.recipe import Recipe, override, validate
from palaestra_atlas.reproductions import exact

CURVE = [0.0, 5.0, 9.0, 10.0]
"""Returns after a shift; random play has 0, the reference 10."""


def plain(told: bool, seed: int = 0, iterations: int = 20, episodes: int = 32) -> dict[str, Any]:
    """People on a commons with one rule for all: it reads the share that is told, or the pool, which fits five."""
    rule = [0.0, 0.0, 0.0, 0.7, 0.0] if told else [0.35, 0.0, 0.0, 0.0, 0.0]
    return {
        "name": "free" if told else "fixed",
        "env": {"make": "native/commons", "options": {"talk": "none", "universal": told, "pool": 40}},
        "policies": {"people": {"kind": "ordered", "options": {"start": rule, "noise": 0.05}}},
        "team": {"*": "people"},
        "credit": 'standardise(episode_return(), over="iteration", unit="episode")',
        "learn": {"lr": 0.03},
        "train": {"iterations": iterations, "groups": 1, "group_size": episodes},
        "seeds": [seed],
    }


SHIFTS = [
    {"shift": "people", "magnitude": more, "changes": {"env": {"options": {"people": 5 + more}}}} for more in (0, 1, 3)
]


def written(seed: int, folder: Path) -> None:
    """Recipes of two teams and the shifts, as the command reads them."""
    for told in (True, False):
        made = plain(told, seed)
        (folder / f"{made['name']}.yaml").write_text(json.dumps(made))
    (folder / "shifts.json").write_text(json.dumps(SHIFTS[1:]))


def rows(returns: list[float], phase: str = "retrained", **columns: object) -> pl.DataFrame:
    """Returns after a shift as a table."""
    told = {"shift": "goal", "magnitude": 1.0, "seed": 0, "random": 0.0, "reference": 10.0, **columns}
    return pl.DataFrame({"step": range(1, len(returns) + 1), "return": returns, "phase": phase}).with_columns(
        **{name: pl.lit(value) for name, value in told.items()}
    )


@exact
def norms() -> None:
    """Returns 0, 5, 9, 10 are 0, .5, .9, 1, and stay so if 10 is added to all."""
    for more in (0.0, 10.0):
        found = normalised(np.array(CURVE) + more, more, 10 + more)
        np.testing.assert_allclose(found, [0, 0.5, 0.9, 1])
        table = rows([each + more for each in CURVE], "frozen", random=more, reference=10 + more)
        assert abs(adaptability(table)["zero_shot"][0] - 0.6) < 1e-12


@exact
def recoveries() -> None:
    """Recovered in the third step; who never recovers is censored: with two of three such, there is no median."""
    assert recovery([0, 0.5, 0.9, 1]) == (3, True)
    assert recovery([0, 0.5]) == (2, False)
    never = pl.concat([rows(CURVE, seed=0), rows([0.0] * 4, seed=1), rows([0.0] * 4, seed=2)])
    found = adaptability(never).row(0, named=True)
    assert found["recovery"] is None
    assert abs(found["recovered"] - 1 / 3) < 1e-12
    assert adaptability(rows(CURVE))["recovery"][0] == 3


@exact
def regrets() -> None:
    """The area is 1 + .5 + .1 + 0 = 1.6."""
    assert abs(regret([0, 0.5, 0.9, 1]) - 1.6) < 1e-9
    assert abs(adaptability(rows(CURVE))["regret"][0] - 1.6) < 1e-9


def short() -> Recipe:
    """A rule that reads the pool, trained for two short iterations."""
    changes = {"env": {"options": {"pool": 100}}, "learn": {"lr": 0.1}}
    return override(validate(plain(False, iterations=2, episodes=8)), changes)


def played(shifts: list[dict[str, Any]]) -> pl.DataFrame:
    """Its returns under shifts, with three iterations of learning on."""
    return train_under_shifts(short(), shifts, seed=0, steps=3, episodes=8)


@exact
def shifts_are_played() -> None:
    """Without a shift the frozen team earns what it earns at home; with more people less and less."""
    table = played(SHIFTS)
    frozen = table.filter(pl.col("phase") == "frozen").sort("magnitude")["return"].to_list()
    home = table.filter(pl.col("phase") == "base_before")["return"][0]
    assert frozen[0] == home
    assert frozen[0] > frozen[1] > frozen[2]


@exact
def frozen_and_retrained_are_apart() -> None:
    """The frozen team is the one that was trained at home, played under the shift; the retrained one learns on."""
    made = short()
    base = learn(made, seed=0).team.state_dict()
    there = override(made, {**SHIFTS[2]["changes"], "train": {"iterations": 0}})  # type: ignore[dict-item]
    frame = learn(there, seed=0, start=base).play(groups=8, seed=0).frame
    table = played(SHIFTS[2:])
    frozen = table.filter(pl.col("phase") == "frozen")["return"].to_list()
    assert frozen == [frame["reward"].sum() / (8 * 8)]
    retrained = table.filter(pl.col("phase") == "retrained")["return"].to_list()
    assert len(retrained) == 3
    assert retrained[-1] != frozen[0]


@exact
def forgetting() -> None:
    """After learning on under a shift the team is measured at home again, and is another one there."""
    table = played(SHIFTS[2:])
    before, after = (table.filter(pl.col("phase") == phase)["return"][0] for phase in ("base_before", "base_after"))
    assert before != after
    same = pl.concat([rows([10.0], "base_before"), rows([7.0], "base_after")])
    assert abs(adaptability(same)["forgetting"][0] - 0.3) < 1e-12


@exact
def the_commands() -> None:
    """`analyze adapt` plays a recipe under shifts, `analyze adaptability` reads a table of returns."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, shifts = Path(folder) / "fixed.yaml", Path(folder) / "shifts.json"
        recipe.write_text(json.dumps(plain(False, iterations=2, episodes=8)))
        shifts.write_text(json.dumps(SHIFTS[2:]))
        adapted = analyze("adapt(steps=2, episodes=8)", recipe, shifts)
        assert adapted["shift"].to_list() == ["people"]
        rows(CURVE).write_csv(Path(folder) / "returns.csv")
        found = analyze("adaptability", Path(folder) / "returns.csv")
    assert found.select("shift", "recovery").row(0) == ("goal", 3.0)
