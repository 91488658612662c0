"""[67] AdvEvo-MARL (arXiv 2510.01586): attackers and defenders learn together, each team against its own mean.

Six kinds of attack; three defenders with policies of their own vote whether to refuse; half of the requests are
harmless. The attacker mostly knows one kind (imitation) and learns others, or is frozen. That co-evolution makes the
defenders safer is not seen here: the optimiser gives a rare attack steps as large as a common one, so that a frozen
attacker who errs now and then teaches as much. Left out: language models, rewriting of prompts, format rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import advevo_marl
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.guardians import DEFENDERS, VOTES
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

KINDS = 6
FROZEN = {"attacker": 0.0} | dict.fromkeys(DEFENDERS, 0.1)


def worked_error() -> float:
    """Two episodes of three defenders and an attacker: advantages against the own team's mean, worked out by hand."""
    returns = [1.0, 1.0, 0.5, 0.8, 0.0, 0.5, 0.0, 0.4]
    keys = {"group": [0] * 8, "episode": [0] * 4 + [1] * 4, "turn": [0] * 8, "agent": [*DEFENDERS, "attacker"] * 2}
    credit = np.asarray(advevo_marl().evaluate(Turns(keys | {"reward": returns})))
    return float(np.abs(credit - [0.5, 0.5, 0.0, 0.2, -0.5, 0.0, -0.5, -0.2]).max())


def withstood(learned: TrainingResult) -> dict[str, float]:
    """Exact, of the trained defenders: success of attacks drawn uniformly, share of harmless requests served."""
    texts = ["a harmless request", *(f"a request: attack {kind}" for kind in range(KINDS))]
    seen = [Observation(text, choices=VOTES) for text in texts]
    a, b, c = (learned.team[agent].choice_probabilities(seen)[0][:, 1] for agent in DEFENDERS)  # type: ignore[attr-defined]
    refused = a * b + b * c + a * c - 2 * a * b * c
    return {"attacks": float((1 - refused[1:]).mean()), "served": float(1 - refused[0])}


@reproduction(
    67,
    claim="A functional team shares one baseline; defenders and attacker trained together end with defenders who "
    "refuse all kinds of attacks and serve harmless requests. That a frozen attacker would teach less is not seen.",
    baseline="a mean per agent, and one of both sides (worked numbers); the same defenders against the frozen "
    "attacker, reported, not judged",
    criterion="worked advantages exact, which those of a mean per agent or of all are not; uniform attacks succeed in "
    "at most 0.2 of cases and harmless requests are served in at least 0.9 after co-evolution, means over the seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers; then trained as by `palaestra train guardians credit="advevo_marl()"`."""
    error = worked_error()
    arms = train_arms("guardians", {"coevolved": {}, "static": {"learn": {"lr": FROZEN}}}, seeds, withstood)
    holds = error <= 1e-12 and arms.mean("coevolved", "attacks") <= 0.2 and arms.mean("coevolved", "served") >= 0.9
    return Outcome({"worked_error": error} | arms.measured(), holds)
