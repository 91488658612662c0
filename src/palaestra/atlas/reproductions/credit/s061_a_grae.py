"""[61] A-GRAE (arXiv 2602.05548): group-relative advantages are symmetric; A-GRAE breaks that.

The identities are exact. Exploration is looked at on bandits with several right answers, where the fair question is how
much of them is alive when the chance of a right one is the same: more than with GRPO, also with GRPO of the same size
in every batch (a control the paper lacks), but no more than with GRPO in steps of a tenth, which only takes longer.
Left out: language models, on which the paper's gains were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.bandits import success, train
from palaestra.atlas.reproductions.tabular import compare
from palaestra.credit import a_grae, absolute, grpo, mean, ratio

GROUP, ITERATIONS, RATE, GOAL = 8, 200, 1.0, 0.95
TASKS, ANSWERS, RIGHT_ANSWERS = 4, 20, 4
RIGHT = np.tile(np.arange(ANSWERS) < RIGHT_ANSWERS, (TASKS, 1))


def groups() -> tuple[Turns, np.ndarray]:
    """A group for every number of successes from 1 to 7 among 8, and those numbers."""
    number = np.repeat(np.arange(1, GROUP), GROUP)
    episode = np.tile(np.arange(GROUP), GROUP - 1)
    table = {"group": number, "episode": episode, "turn": episode * 0, "agent": ["answerer"] * len(number)}
    return Turns(table | {"reward": (episode < number).astype(float)}), np.arange(1, GROUP)


def identities() -> dict[str, float]:
    """Errors of Σ|Â| = 2G√(p(1 - p)), of the balance of both signs, and of A-GRAE's formula with ω = 1/2."""
    turns, number = groups()
    plain = np.asarray(grpo(ddof=0, eps=0.0).evaluate(turns)).reshape(GROUP - 1, GROUP)
    ours = np.asarray(a_grae(ddof=0, eps=0.0).evaluate(turns)).reshape(GROUP - 1, GROUP)
    p = number[:, None] / GROUP
    weighted = plain * (0.25 / np.sqrt(p) + 0.25 / np.sqrt(1 - p))
    return {
        "total_error": float(np.abs(np.abs(plain).sum(axis=1) - 2 * GROUP * np.sqrt(p * (1 - p))[:, 0]).max()),
        "balance_error": float(np.abs(plain.sum(axis=1)).max()),
        "formula_error": float(np.abs(ours - np.where(plain > 0, weighted / 2, weighted)).max()),
    }


def spread(credit: Signal, seeds: Sequence[int], iterations: int) -> np.ndarray:
    """Entropy over the right answers, nats, when a run's chance of a right one first reaches the goal; one per seed."""
    policies = train(credit, RIGHT, seeds, iterations=iterations, group=GROUP, rate=RATE)
    reached = success(policies, RIGHT) >= GOAL
    first = policies[reached.argmax(axis=0), np.arange(len(seeds))][..., :RIGHT_ANSWERS]
    share = first / first.sum(axis=-1, keepdims=True)
    entropy = -(share * np.log(share)).sum(axis=-1).mean(axis=-1)
    return np.asarray(np.where(reached.any(axis=0), entropy, np.nan))


@reproduction(
    61,
    claim="Group-relative advantages weigh both signs alike and favour groups that half succeed; A-GRAE's weights "
    "change both, and when 95% is reached more of the right answers are still alive.",
    baseline="GRPO; GRPO scaled to A-GRAE's mean size in each batch; GRPO with a tenth of the size",
    criterion="identities equal to 1e-9; entropy over right answers higher by > 2 standard errors than with GRPO and "
    "than with GRPO of equal size (steps of a tenth keep as much, which is reported)",
    seeds=tuple(range(10)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The identities, then the four arms."""
    errors = identities()
    measured, holds = dict(errors), max(errors.values()) <= 1e-9
    size = ratio(mean(absolute(a_grae()), over=()), mean(absolute(grpo()), over=()))
    ours = spread(a_grae(), seeds, ITERATIONS)
    measured["entropy_a_grae"] = float(ours.mean())
    for name, credit, longer in (("grpo", grpo(), 1), ("equal_size", size * grpo(), 1), ("tenth", 0.1 * grpo(), 5)):
        theirs = spread(credit, seeds, longer * ITERATIONS)
        gain, error = compare(ours, theirs)
        measured |= {f"entropy_{name}": float(theirs.mean()), f"standard_error_{name}": error}
        holds &= gain > 2 * error or name == "tenth"
    return Outcome(measured, holds)
