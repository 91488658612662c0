"""[24] OPTAGENT (arXiv 2510.18032): edges whose exchanges were graded well carry the debate.

Six simulated agents answer, take over the answer of one whom they hear or keep their own, and vote. Who is heard:
learned from noisy grades (the best two senders of each), all, two drawn anew, nobody; and learned from grades that say
nothing. The constants and the way of being convinced are ours. Left out: language models and feedback in words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.teamwork import EdgeScores
from palaestra_atlas.reproductions import Outcome, reproduction

CHANCE = np.array([0.75, 0.66, 0.57, 0.48, 0.39, 0.3])
MEMBERS, OPTIONS, QUESTIONS, TEAMS, HEARD, BLOCK = tuple("abcdef"), 3, 60, 30, 2, 5
NAMES = {name: at for at, name in enumerate(MEMBERS)}


def revised(said: np.ndarray, adjacency: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Answers after hearing, int[questions, members]: of one who was heard, or one's own, each equally often."""
    found = np.empty_like(said)
    for receiver in range(said.shape[1]):
        heard = np.append(np.flatnonzero(adjacency[:, receiver]), receiver)
        found[:, receiver] = said[np.arange(len(said)), rng.choice(heard, len(said))]
    return found


def right(said: np.ndarray) -> list[float]:
    """Chance that the vote on each question is, 0 being right; ties drawn."""
    count = (said[:, :, None] == np.arange(OPTIONS)).sum(1)
    best = count == count.max(1, keepdims=True)
    return list((best[:, 0] / best.sum(1)).tolist())


def debated(how: str, noise: float, rng: np.random.Generator) -> float:
    """Share of the second half of the questions that a team answers rightly; edges change every five questions."""
    scores, solved = EdgeScores(MEMBERS, eta=0.2), []
    for _ in range(QUESTIONS // BLOCK):
        said = np.where(rng.random((BLOCK, 6)) < CHANCE, 0, rng.integers(1, OPTIONS, (BLOCK, 6)))
        adjacency = np.full((6, 6), how == "all") & ~np.eye(6, dtype=bool)
        if how in ("drawn", "learned"):
            route = (scores if how == "learned" else EdgeScores(MEMBERS)).route(HEARD, rng)
            for to, senders in route.items():
                adjacency[[NAMES[each] for each in senders], NAMES[to]] = True
        if how == "learned":
            sender, receiver = np.nonzero(adjacency)
            grades = (said[:, sender] == 0) + noise * rng.normal(size=(BLOCK, len(sender)))
            names = {
                "sender": [MEMBERS[at] for at in sender] * BLOCK,
                "receiver": [MEMBERS[at] for at in receiver] * BLOCK,
            }
            scores.update(pl.DataFrame(names | {"quality": grades.ravel()}))
        solved += right(revised(said, adjacency, rng))
    return float(np.mean(solved[QUESTIONS // 2 :]))


@reproduction(
    24,
    claim="Edges learned from graded exchanges answer better than a full mesh, with 40 % of its messages, and "
    "better than drawn edges; where grades say nothing they are like drawn ones.",
    baseline="a full mesh, two drawn senders; grades without information; no messages, shown",
    criterion="learned .04 above the full mesh and above drawn edges; uninformative grades within .04 of drawn "
    "edges, over all seeds together (held on both fresh blocks)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """All ways, all teams."""
    ways = {"learned": ("learned", 0.5), "full": ("all", 0.0), "drawn": ("drawn", 0.0), "none": ("none", 0.0),
            "uninformed": ("learned", 1e6)}  # fmt: skip
    found = {
        name: float(np.mean([debated(how, noise, np.random.default_rng([seed, team])) for seed in seeds
                             for team in range(TEAMS)]))
        for name, (how, noise) in ways.items()
    }  # fmt: skip
    holds = found["learned"] >= max(found["full"], found["drawn"]) + 0.04
    holds &= abs(found["uninformed"] - found["drawn"]) <= 0.04
    return Outcome(found | {"messages": HEARD * 6.0, "messages_full": 30.0}, bool(holds))
