"""How long it takes to collect prescribed samples of a tabular world: `palaestra analyze 'collect(10)' world.csv`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.play.coverage import CoveragePlanner, Method, collect


def world_of(rows: pl.DataFrame) -> tuple[list[object], list[object], np.ndarray]:
    """(states, actions, chances[states, actions, states]) of a Markov process in rows `state, action, after, chance`.

    Raises:
        InputError: the chances of a state and action do not add up to 1, or are negative.
    """
    states = sorted({*rows["state"], *rows["after"]})
    actions = sorted(set(rows["action"]))
    at = ({name: place for place, name in enumerate(names)} for names in (states, actions))
    of_state, of_action = at
    chances = np.zeros((len(states), len(actions), len(states)))
    index = (
        rows["state"].replace_strict(of_state).to_numpy(),
        rows["action"].replace_strict(of_action).to_numpy(),
        rows["after"].replace_strict(of_state).to_numpy(),
    )
    np.add.at(chances, index, rows["chance"].to_numpy().astype(float))
    wrong = np.argwhere((np.abs(chances.sum(2) - 1) > 1e-6) | (chances < 0).any(2))
    if len(wrong):
        state, action = wrong[0]
        raise InputError(
            f"world: chances of state {states[state]!r} and action {actions[action]!r} add up to "
            f"{chances[state, action].sum():g}; every action of every state needs chances from 0 that add up to 1"
        )
    return states, actions, chances


@ANALYSES.register("collect")
def collected(
    need: int = 10, *, method: Method = "planner", repeats: int = 10, seed: int = 0, most: int = 100_000
) -> Analysis:
    """Returns a function (WORLD, [NEEDS] files) -> one-row table: steps until all state-actions have `need` samples.

    Columns of WORLD: state, action, after, chance.

    NEEDS has `state, action, need`; pairs that are not in it need nothing. Without it each pair needs `need`. The
    planner does not see the chances. The walk begins in the first row's state.
    """

    def answer(world: Path, needs: Path | None = None) -> pl.DataFrame:
        rows = table(world, "state", "action", "after", "chance")
        states, actions, chances = world_of(rows)
        wanted = np.full(chances.shape[:2], float(need))
        if needs is not None:
            wanted[:] = 0
            for state, action, number in (
                table(needs, "state", "action", "need").select("state", "action", "need").rows()
            ):
                if state not in states or action not in actions:
                    raise InputError(f"{needs}: the world has no state {state!r} with an action {action!r}")
                wanted[states.index(state), actions.index(action)] = number
        steps, counts = [], []
        for number in range(repeats):
            planner = CoveragePlanner(wanted, seed=seed + number, method=method)
            steps.append(collect(chances, planner, start=states.index(rows["state"][0]), seed=seed + number, most=most))
            counts.append(planner.counts.sum(2))
        visited = np.mean(counts, axis=0)
        return pl.DataFrame([{
            "method": method, "states": len(states), "actions": len(actions), "need": float(wanted.sum()),
            "steps": float(np.mean(steps)), "median": float(np.median(steps)), "longest": max(steps),
            "unfinished": sum(each >= most for each in steps), "unneeded": float(visited[wanted == 0].sum()),
        }])  # fmt: skip

    return answer
