"""[50] Advantage alignment (arXiv 2511.19405): minding the other's advantage turns defection into a trigger strategy.

The recipe `dilemma`: the iterated prisoner's dilemma (payoffs 3, 0, 5, 1, over 5), 12 rounds, one table of logits in
both seats that sees the last round. Without alignment it learns to defect; with it, to cooperate with those who do.
Left out: language models, the buffer of past agents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.credit import advantage_alignment
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.dilemma import MOVES
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS = {
    "aligned": {"credit": "advantage_alignment()"},
    "selfish": {"credit": "advantage_alignment(beta=0.0)"},
}
SCALE, ROUNDS = 5.0, 12


def worked_error() -> float:
    """Three rounds worked out by hand: largest deviation of both forms of the weight."""
    one, other = [1, -1, 0.5], [0.5, 2, -1]
    keys = {"group": [0] * 6, "episode": [0] * 6, "turn": [0, 0, 1, 1, 2, 2], "agent": ["x", "y"] * 3}
    turns = Turns(keys | {"a": np.ravel([one, other], order="F")})
    released = advantage_alignment(advantage="a", flavour="code").evaluate(turns)
    inclusive = advantage_alignment(advantage="a", inclusive=True).evaluate(turns)
    gaps = np.asarray(released)[::2] - [1, -0.19, 0.5405], np.asarray(inclusive)[::2] - [1.25, -1.1, 0.295]
    return float(np.abs(gaps).max())


def cooperation(policy: Policy) -> dict[str, float]:
    """Chance to cooperate in the first round and after each outcome of the last (own move, the other's)."""
    seen = {"start": "the first round"}
    seen |= {f"{a[0]}{b[0]}": f"last round: I {a}, they {b}" for a in MOVES for b in MOVES}
    shown = [Observation(text, choices=MOVES) for text in seen.values()]
    chances = policy.choice_probabilities(shown)[0][:, 0]  # type: ignore[attr-defined]
    return dict(zip(seen, chances.tolist(), strict=True))


@reproduction(
    50,
    claim="Crediting what helps an opponent with whom one has done well turns learned defection into cooperation.",
    baseline="β = 0: the same group baseline, each player for itself",
    criterion="worked credit to 1e-9; mean payoff of a round over the last 20 iterations >= 2.3 by the defaults (β = "
    "0.5) and <= 1.3 with β = 0 in every seed; the aligned policy cooperates after defection of the other less often "
    "than after cooperation of both, by 0.5",
    seeds=(20, 21, 22),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, both arms, and the strategy that was learned."""
    error = worked_error()

    def payoff(learned: object) -> dict[str, float]:
        earned = np.mean(learned.curve("reward")[-20:]) * SCALE / ROUNDS  # type: ignore[attr-defined]
        chances = cooperation(learned.team.policies["player"])  # type: ignore[attr-defined]
        return {"payoff": float(earned)} | {f"cooperates_{name}": chance for name, chance in chances.items()}

    arms = train_arms("dilemma", ARMS, seeds, payoff)
    aligned, selfish = arms.values["aligned"], arms.values["selfish"]
    measured = {"worked_error": error, "lowest_aligned": float(aligned["payoff"].min())} | arms.measured()
    trigger = arms.mean("aligned", "cooperates_cc") - arms.mean("aligned", "cooperates_cd")
    holds = error <= 1e-9 and aligned["payoff"].min() >= 2.3 and selfish["payoff"].max() <= 1.3 and trigger >= 0.5
    return Outcome(measured, bool(holds))
