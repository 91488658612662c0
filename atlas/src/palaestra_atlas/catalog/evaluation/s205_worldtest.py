"""[205] WorldTest (arXiv 2510.19788): what was explored without reward is what can be answered afterwards.

An agent fills a table of displacements by key and time, then predicts hidden frames, and notices a change by surprise.
Left out: planning (scored in the env), the published worlds, language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.exact.change import change_score
from palaestra.envs.worlds.grid_world import KEYS, OPTIONS, ExploredGrid
from palaestra_atlas.reproductions import Outcome, reproduction

EXPLORATION, EPISODES = (0, 12, 50, 100, 300), 120
WORKED = {21: 0.9989, 25: 0.9673, 30: 0.8917, 40: 0.710, 60: 0.441, 100: 0.247}


class Explorer:
    """Counts what each key does at each time of ten; says what it expects, or None where it never looked."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self.rng = size, rng
        self.table: dict[tuple[int, int], np.ndarray] = {}

    def expect(self, place: np.ndarray, time: int, key: int) -> np.ndarray | None:
        """Where `key` leads."""
        step = self.table.get((key, time % 10))
        return None if step is None else (place + step) % self.size

    def learn(self, place: np.ndarray, time: int, key: int, then: np.ndarray) -> None:
        """What was seen."""
        self.table[key, time % 10] = (then - place) % self.size


def read(seen: Observation) -> tuple[np.ndarray, int]:
    """Place and time, from the text."""
    words = seen.text.split()
    at = words.index("at")
    return np.array(words[at + 1].split(","), int), int(words[at + 3])


def episode(test: str, explore: int, seed: int) -> float:
    """The score of one episode."""
    env, rng = ExploredGrid(test, explore=explore, history=False), np.random.default_rng(seed)
    seen = env.reset(seed)["explorer"]
    agent = Explorer(6, rng)
    while seen.text.startswith("explore"):
        (place, time), key = read(seen), int(rng.integers(len(KEYS)))
        seen = env.step({"explorer": key}).observations["explorer"]
        if seen.text.startswith("explore"):
            agent.learn(place, time, key, read(seen)[0])
    return masked(env, agent, seen) if test == "mask" else change(env, agent, seen)


def masked(env: ExploredGrid, agent: Explorer, seen: Observation) -> float:
    """Choose the option that is expected, else any."""
    frames, options = seen.text.split(" then one of ")
    x, _, time, key = frames[frames.rindex("(") + 1 : -1].split()
    expected = agent.expect(np.array(x.split(","), int), int(time), KEYS.index(key))
    places = [np.array(option.split(":")[1].split(","), int) for option in options.split()]
    fits = [n for n, place in enumerate(places) if expected is not None and (place == expected).all()]
    chosen = fits[0] if fits else int(agent.rng.integers(OPTIONS))
    return float(env.step({"explorer": f"option {chosen + 1}"}).rewards["explorer"] or 0.0)


def change(env: ExploredGrid, agent: Explorer, seen: Observation) -> float:
    """Walk at random until something surprises."""
    while True:
        (place, time), key = read(seen), int(agent.rng.integers(len(KEYS)))
        result = env.step({"explorer": key})
        if not result.observations:
            return float(result.rewards["explorer"] or 0.0)
        seen = result.observations["explorer"]
        expected = agent.expect(place, time, key)
        if expected is not None and (expected != read(seen)[0]).any():
            return float(env.step({"explorer": "changed"}).rewards["explorer"] or 0.0)


@reproduction(
    205,
    claim="The more of a world was explored without reward, the better its hidden frames are predicted and its changes "
    "noticed.",
    baseline="no exploration; chance is 1/4",
    criterion="worked scores to 3 decimals; both scores rise with exploration (0.02 of slack), 100 steps beat none by "
    "at least 0.2",
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked scores, then both tests after more and more exploration."""
    error = max(abs(change_score(said, 20) - score) for said, score in WORKED.items())
    measured, holds = {"worked_error": error}, error < 1e-3
    for test in ("mask", "change"):
        scores = [
            np.mean([episode(test, explore, 1000 * seeds[0] + n) for n in range(EPISODES)]) for explore in EXPLORATION
        ]
        measured |= {f"{test}_after_{explore}": float(s) for explore, s in zip(EXPLORATION, scores, strict=True)}
        holds &= bool((np.diff(scores) > -0.02).all() and scores[3] - scores[0] >= 0.2)
    return Outcome(measured, bool(holds))
