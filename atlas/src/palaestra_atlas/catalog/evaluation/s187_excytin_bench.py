"""[187] ExCyTIn-Bench (arXiv 2507.14201): credit for the way to an answer pays where the answer is far.

An evidence tree, the lock that ends with the first wrong number: at each level one of four leads is right. The recipe
`world` with groups of 16, paid for the answer alone or with path credit; how many iterations until four of five
episodes succeed. Three levels deep the answer alone is enough and path credit gains nothing, nor does it on a small
connected graph, where a random walk already finds the answer (the card's run).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.envs.worlds import Investigation, Lock
from palaestra.envs.worlds.exact.investigation import incident, questions, shares
from palaestra.rewards.paths import path_credit
from palaestra_atlas.reproductions import Outcome, exact, reached, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ITERATIONS, GOAL = {3: 60, 4: 90, 5: 150}, 0.8
"""By depth; who does not get there counts with all of them."""
CREDIT = {"path": 0.4, "answer": 0.0}
WORKED = {(1, 1, 1, 0): 0.624, (0, 0, 1, 0): 0.4, (1, 1, 0, 0): 0.224, (1, 0, 1, 0): 0.464, (0, 0, 0, 1): 1.0}


CHAIN = {
    "alert-0": ("url:0", "ip:1"), "alert-1": ("ip:1", "file:2"), "alert-2": ("file:2", "account:3", "host:4"),
    "alert-3": ("account:3", "url:5", "ip:6"),
}  # fmt: skip
"""Four alerts in a row, each of which shares one entity with the next."""


@exact
def worked_credits() -> None:
    """1 for the answer, else γ^i for the i-th step back; so pays a lock that ends at the wrong number."""
    for steps, credit in WORKED.items():
        np.testing.assert_allclose(float(path_credit(list(steps))), credit, atol=1e-9)
    env = Lock(steps=4, ends=True, gamma=0.4)
    env.reset(0)
    for number in env.right[0, :2]:
        env.step({"opener": f"turn to {number}"})
    paid = env.step({"opener": f"turn to {(env.right[0, 2] + 1) % 4}"}).rewards["opener"]
    np.testing.assert_allclose(paid, 0.4**3 + 0.4**2, atol=1e-9)  # type: ignore[arg-type]


@exact
def later_steps_weigh_more() -> None:
    """The step just before the answer is worth .4, the first of three .064."""
    late, early = path_credit([[0, 0, 1, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose([late, early], [0.4, 0.064], atol=1e-9)


@exact
def far_apart() -> None:
    """Told is what is farthest from the other alert, asked what is far from the first one, on a shortest path."""
    asked = {(each.start_alert, each.end_alert): each for each in questions(CHAIN, 50, np.random.default_rng(0))}
    question = asked["alert-0", "alert-3"]
    assert question.start == ("url:0",)
    assert question.path == ("alert-0", "ip:1", "alert-1", "file:2", "alert-2", "account:3", "alert-3", question.answer)
    assert question.answer in ("url:5", "ip:6")
    assert question.solution == ("ip:1", "file:2", "account:3", question.answer)


@exact
def nothing_given_away() -> None:
    """No question names its answer or a step of its solution."""
    for seed in range(20):
        graph = incident(8, 14, np.random.default_rng(seed))
        for question in questions(graph, 100, np.random.default_rng(seed)):
            assert not set(question.start) & set(question.solution), question
            assert question.answer not in graph[question.start_alert]


@exact
def root_of_frequency() -> None:
    """Of 100, 25 and 4 paths of lengths 3, 5, 7 one takes 10, 5 and 2 of 17; what is left is of the longest."""
    assert shares({3: 100, 5: 25, 7: 4}, 17) == {3: 10, 5: 5, 7: 2}
    assert shares({3: 100, 5: 25, 7: 4}, 19) == {3: 11, 5: 5, 7: 3}
    graph = incident(8, 14, np.random.default_rng(1))
    every, few = (questions(graph, m, np.random.default_rng(0)) for m in (1000, 12))
    counts = {length: sum(len(each.path) == length for each in every) for length in {len(each.path) for each in every}}
    found = {length: sum(len(each.path) == length for each in few) for length in counts}
    assert found == shares(counts, 12)


@exact
def only_by_queries() -> None:
    """The question shows no row of the tables; queries do, at most 25 of them, and none that would write."""
    env = Investigation()
    (seen,) = env.reset(3).values()
    question = env.state.question
    hidden = {each for entities in env._incident(env.state.number).values() for each in entities} - set(question.start)
    assert not [each for each in hidden if each in seen.text]
    query = f"SELECT entity FROM evidence WHERE alert = '{question.end_alert}'"
    (seen,) = env.step({"analyst": query}).observations.values()
    assert question.answer in seen.text
    result = env.step({"analyst": "DELETE FROM evidence"})
    assert not result.info["valid"]["analyst"]
    for _ in range(22):
        result = env.step({"analyst": "SELECT 1"})
    assert result.observations
    result = env.step({"analyst": "SELECT 1"})
    assert result.terminated
    assert not result.observations


def iterations_needed(level: float = GOAL) -> Measure:
    """Iterations until that share of a window of episodes is right, per seed; all of them if never."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            lines = [json.loads(line) for line in (seed / "metrics.jsonl").read_text().splitlines()]
            found.append(float(reached([line["success"] for line in lines], level)))
        return found

    return measured


def setting(depth: int, gamma: float) -> dict[str, Any]:
    """What an arm changes in the recipe `world`."""
    options = {"steps": depth, "ends": True, "gamma": gamma}
    train = {"iterations": ITERATIONS[depth], "groups": 1, "group_size": 16}
    return {"env": {"make": "native/lock", "options": options}, "train": train}


def needed(learned: TrainingResult) -> dict[str, float]:
    """Iterations to the goal."""
    return {"iterations": reached(learned.curve(), GOAL)}


@reproduction(
    187,
    claim="Credit for the way to the answer shortens learning where the way is long, the more so the longer it is.",
    baseline="the answer alone, right or wrong",
    criterion="worked credits; the ratio of iterations to 80 % success, answer alone over path credit, grows with the "
    "depth 3, 4, 5, is above 1 at 4 and at least 2 at 5 (means over seeds; over three at first, of which one fresh "
    "block had 1.95 at 5)",
    seeds=tuple(range(9)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked credits, then both rewards at three depths."""
    error = max(abs(float(path_credit(list(steps))) - credit) for steps, credit in WORKED.items())
    measured, ratios = {"worked_error": error}, []
    for depth in ITERATIONS:
        arms = train_arms("world", {name: setting(depth, gamma) for name, gamma in CREDIT.items()}, seeds, needed)
        path, answer = (arms.mean(name, "iterations") for name in CREDIT)
        measured |= {f"iterations_path_{depth}": path, f"iterations_answer_{depth}": answer}
        ratios.append(answer / path)
    grows = bool((np.diff(ratios) > 0).all())
    return Outcome(measured, error < 1e-9 and grows and ratios[1] > 1 and ratios[2] >= 2)
