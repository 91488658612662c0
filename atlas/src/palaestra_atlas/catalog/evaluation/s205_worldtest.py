"""[205] WorldTest (arXiv 2510.19788): what was explored without reward is what can be answered afterwards.

An agent fills a table of displacements by key and time, then predicts hidden frames, and notices a change by surprise.
Left out: the published worlds, language models.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.exact.change import change_score
from palaestra.envs.worlds.grid_world import KEYS, OPTIONS, ExploredGrid
from palaestra_atlas.reproductions import Outcome, exact, reproduction

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


def episode(test: str, explore: int, seed: int, agent: Explorer | None = None) -> float:
    """The score of one episode; of an agent that knows nothing, if none is given."""
    env, rng = ExploredGrid(test, explore=explore, history=False), np.random.default_rng(seed)
    seen = env.reset(seed)["explorer"]
    agent = agent or Explorer(6, rng)
    while seen.text.startswith("explore"):
        (place, time), key = read(seen), int(rng.integers(len(KEYS)))
        seen = env.step({"explorer": key}).observations["explorer"]
        if seen.text.startswith("explore"):
            agent.learn(place, time, key, read(seen)[0])
    return {"mask": masked, "change": change, "plan": planned}[test](env, agent, seen)


def planned(env: ExploredGrid, agent: Explorer, seen: Observation) -> float:
    """Go the shortest way to the goal in the world as it is known; any key where none is known."""
    while True:
        place, time = read(seen)
        words = seen.text.split()
        goal = np.array(words[words.index("goal") + 1].split(","), int)
        keys = way(agent, place, time, goal)
        key = keys[0] if keys else int(agent.rng.integers(len(KEYS)))
        result = env.step({"explorer": key})
        if not result.observations:
            return float(result.rewards["explorer"] or 0.0)
        seen = result.observations["explorer"]


def way(agent: Explorer, place: np.ndarray, time: int, goal: np.ndarray) -> list[int]:
    """Keys of a shortest way by what was seen; none if there is no such way."""
    start = (int(place[0]), int(place[1]), time % 10)
    known: dict[tuple[int, int, int], list[int]] = {start: []}
    waiting = deque([start])
    while waiting:
        x, y, now = at = waiting.popleft()
        if (x, y) == tuple(goal):
            return known[at]
        for key in range(len(KEYS)):
            then = agent.expect(np.array([x, y]), now, key)
            after = None if then is None else (int(then[0]), int(then[1]), (now + 1) % 10)
            if after is not None and after not in known:
                known[after] = [*known[at], key]
                waiting.append(after)
    return []


def mean_score(test: str, explore: int, episodes: int = 40) -> float:
    """Of so many episodes."""
    return float(np.mean([episode(test, explore, seed) for seed in range(episodes)]))


@exact
def exploring_pays_later() -> None:
    """Steps that are not paid tell what the test asks: most hidden frames after 60 of them, hardly any after none."""
    env = ExploredGrid("mask", explore=20, history=False)
    env.reset(0)
    assert all(env.step({"explorer": "a"}).rewards == {} for _ in range(19))
    explored, none = mean_score("mask", 60), mean_score("mask", 0)
    assert explored > 0.65, explored
    assert none < 0.5, none
    assert mean_score("change", 60, 10) > 0.8 > mean_score("change", 0, 10)


@exact
def fresh_worlds() -> None:
    """Every seed is a world of its own: what was learned of other worlds answers no more than chance does."""
    env = ExploredGrid("mask", explore=5)
    tasks = []
    for seed in range(20):
        env.reset(seed)
        tasks.append(env.task)
    assert len(set(tasks)) == 20
    veteran = Explorer(6, np.random.default_rng(0))
    for seed in range(100, 106):
        episode("mask", 100, seed, veteran)
    found = np.mean([episode("mask", 0, seed, veteran) for seed in range(60)])
    assert found < 0.6, found


@exact
def plausible_options() -> None:
    """The wrong options are other places within two cells of the right one, so that they might be."""
    for seed in range(20):
        env = ExploredGrid("mask", explore=0)
        (seen,) = env.reset(seed).values()
        options = np.array([each.split(":")[1].split(",") for each in seen.text.split(" then one of ")[1].split()], int)
        assert len({tuple(each) for each in options.tolist()}) == OPTIONS
        apart = np.abs(options[:, None] - options[None])
        near = np.minimum(apart, 6 - apart).max(-1) <= 2
        assert near.all(axis=1).any(), options.tolist()


@exact
def scored_by_time() -> None:
    """-1 before the change or without a word, 1 at it, less and less after it."""
    for said, score in WORKED.items():
        np.testing.assert_allclose(change_score(said, 20), score, atol=5e-4)
    assert [change_score(said, 20) for said in (18, 19, 20, None)] == [-1.0, 1.0, 1.0, -1.0]


@exact
def reaching_the_goal() -> None:
    """Who explored reaches the goal on a planned way, nearly always; keys at random mostly do not; no way back."""
    explored, random = mean_score("plan", 200, 25), mean_score("plan", 0, 25)
    assert explored > 0.9, explored
    assert random < 0.8, random
    env = ExploredGrid("plan", explore=0)
    (seen,) = env.reset(0).values()
    assert "reset" not in seen.legal


@exact
def resets_counted() -> None:
    """A reset leads back to where the world began, and is counted."""
    env = ExploredGrid("mask", explore=8, history=False)
    (first,) = env.reset(1).values()
    for action in ("a", "b", "reset"):
        (seen,) = env.step({"explorer": action}).observations.values()
    assert seen.text == first.text
    env.step({"explorer": "test"})
    info = env.step({"explorer": "option 1"}).info
    assert (info["explored"], info["resets"]) == (3, 1)


def explorer() -> Callable[[Request], str]:
    """Script: any key while exploring; then the option that its own record of the world says, else any."""

    def play(request: Request) -> str:
        *before, last = request.observation.text.splitlines()
        if last.startswith("explore"):
            return KEYS[int(request.rng.integers(len(KEYS)))]
        agent = Explorer(6, request.rng)
        places = [read(Observation(line.partition(" -> ")[0])) for line in before]
        for line, (place, time), (then, _) in zip(before, places, places[1:]):
            agent.learn(place, time, KEYS.index(line.rpartition(" -> ")[2]), then)
        return f"option {chosen(agent, last) + 1}"

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of an explorer in grid worlds, `explorer.yaml`."""
    made = {
        "name": "explorer",
        "env": {"make": "native/explored_grid", "options": {"test": "mask", "explore": 60}},
        "policies": {"explorer": {"kind": "script", "options": {"script": f"{__name__}:explorer"}}},
        "team": {"*": "explorer"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 80, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "explorer.yaml").write_text(json.dumps(made))


def masked(env: ExploredGrid, agent: Explorer, seen: Observation) -> float:
    """Choose the option that is expected, else any."""
    return float(env.step({"explorer": f"option {chosen(agent, seen.text) + 1}"}).rewards["explorer"] or 0.0)


def chosen(agent: Explorer, text: str) -> int:
    """Number of the option that is expected, else of any."""
    frames, options = text.split(" then one of ")
    x, _, time, key = frames[frames.rindex("(") + 1 : -1].split()
    expected = agent.expect(np.array(x.split(","), int), int(time), KEYS.index(key))
    places = [np.array(option.split(":")[1].split(","), int) for option in options.split()]
    fits = [n for n, place in enumerate(places) if expected is not None and (place == expected).all()]
    return fits[0] if fits else int(agent.rng.integers(OPTIONS))


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
