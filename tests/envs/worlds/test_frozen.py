"""Every native world, with the settings of `test_worlds`, shows, tells and pays what it did in the same random play.

What that should be is worked out elsewhere: games played move by move, exact references, the worked numbers of
reproductions. Here a bound, a sign or a default that those leave out is seen. A case of `frozen.json` is named by the
world and its options, and holds columns of the play: see `tests.frozen_values`. A new world, or one that plays
otherwise on purpose, is written by `python -m tests.envs.worlds.test_frozen`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.envs.worlds.test_worlds import SETTINGS
from tests.frozen_values import differences, write

from palaestra.envs import ENVS, make
from palaestra.envs.protocol import Action, Observation

FROZEN = Path(__file__).with_name("frozen.json")
EPISODES, STEPS, ROWS, LONG = 10, 50, 3, 60
"""Of each case; rows are kept of each column, beside its mean, and so many letters of a text."""


def reply(seen: Observation, rng: np.random.Generator) -> Action:
    """A legal one at random, now and then none that is; where any text is, a word of what was shown."""
    options = seen.legal or ("yes", "0", "1", *seen.text.split())
    return options[rng.integers(len(options))] if rng.random() < 0.95 else "none of these"


def play(world: str, options: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Columns of so many episodes, in order: what seats see, are paid and are told."""
    env, rng = make(f"native/{world}", **options)(), np.random.default_rng(0)
    found: dict[str, list[Any]] = {"steps": []}

    def note(name: str, value: object) -> None:
        for key, each in leaves(name, value):
            found.setdefault(key, []).append(each)

    for seed in range(EPISODES):
        seen, steps = env.reset(seed), 0
        note("task", env.task)
        while seen and sum(found["steps"]) + steps < STEPS:
            for agent, each in seen.items():
                note(f"{agent} sees", each.text)
                note(f"{agent} may", list(each.legal))
                note(f"{agent} array", each.array)
            result, steps = env.step({agent: reply(each, rng) for agent, each in seen.items()}), steps + 1
            note("paid", dict(result.rewards))
            note("over", result.terminated - result.truncated)
            note("told", dict(result.info))
            seen = result.observations
        found["steps"].append(steps)
    return found


def leaves(name: str, value: object) -> Iterator[tuple[str, Any]]:
    """Numbers and words in it, named by where they are; of an array its size and two sums, of a long text its ends."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(f"{name} {key}", each)
    elif isinstance(value, np.ndarray):
        flat = value.ravel().astype(float)
        yield f"{name} size", len(flat)
        yield f"{name} sum", float(flat.sum())
        yield f"{name} turned", float(flat @ np.cos(np.arange(len(flat))))
    elif isinstance(value, (list, tuple)) and not all(isinstance(each, str) for each in value):
        for place, each in enumerate(value):
            yield from leaves(f"{name} {place}", each)
    elif isinstance(value, (bool, int, float, np.number, np.bool_)):
        yield name, float(value)
    elif value is not None:
        text = " ".join(value) if isinstance(value, (list, tuple)) else str(value)
        yield name, text if len(text) <= LONG else f"{text[: LONG // 2]} … {text[-LONG // 2 :]}"
        if not isinstance(value, list) and (
            numbers := [float(each) for each in re.findall(r"\d+(?:\.\d+)?", text) if len(each) < 12]
        ):
            yield f"{name} numbers", float(np.dot(numbers, np.cos(np.arange(len(numbers)))))


TRIED = {world for world, _, _ in SETTINGS}
OTHERS = sorted({name.removeprefix("native/") for name in ENVS if name.startswith("native/")} - TRIED)
PLAYED: list[tuple[str, Any]] = [
    *((world, options) for world, options, _ in SETTINGS), *((world, {}) for world in OTHERS)
]  # fmt: skip
CASES = {f"{world} {options or ''}".strip(): partial(play, world, options) for world, options in PLAYED}
WORLDS = sorted({name.split()[0] for name in CASES})


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_shows_tells_and_pays_what_it_did(world: str) -> None:
    assert not (other := differences(FROZEN, CASES, world, ROWS)), f"{world}: {other}"


if __name__ == "__main__":
    write(FROZEN, CASES, ROWS)
