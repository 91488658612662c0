"""[50] Advantage alignment (arXiv 2511.19405): minding the other's advantage turns defection into a trigger strategy.

The recipe `dilemma`: the iterated prisoner's dilemma (payoffs 3, 0, 5, 1, over 5), 12 rounds, one table of logits in
both seats that sees the last round. Without alignment it learns to defect; with it, to cooperate with those who do.
Left out: language models, the buffer of past agents.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.agents import Team, fixed
from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.credit import advantage_alignment, alignment_weight
from palaestra.envs.openspiel import openspiel
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.dilemma import MOVES
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS = {
    "aligned": {"credit": "advantage_alignment()"},
    "selfish": {"credit": "advantage_alignment(beta=0.0)"},
}
SCALE, ROUNDS = 5.0, 12


A = np.array([[1, -1, 0.5], [0.5, 2, -1]])
"""The card's advantages of both players in three rounds."""


def three_rounds(**columns: np.ndarray) -> Turns:
    """Two players who act at once, one episode."""
    keys = {"group": [0] * 6, "episode": [0] * 6, "turn": [0, 0, 1, 1, 2, 2], "agent": ["x", "y"] * 3}
    return Turns(keys | {name: np.ravel(each, order="F") for name, each in columns.items()})


@exact
def card() -> None:
    """The card's weights and credit of the first player: exclusive, as released, and inclusive."""
    turns = three_rounds(a=A)
    forms: list[tuple[dict[str, Any], list[float], list[float]]] = [
        ({}, [0, 0.9, -0.09], [1, -0.1, 0.545]),
        ({"flavour": "code"}, [0, 0.81, -0.081], [1, -0.19, 0.5405]),
        ({"inclusive": True}, [1, -0.1, 0.41], [1.25, -1.1, 0.295]),
    ]
    for options, weight, credit in forms:
        found = np.nan_to_num(np.asarray(alignment_weight("a", **options).evaluate(turns)))[::2]
        np.testing.assert_allclose(found, weight, atol=1e-9)
        found = np.asarray(advantage_alignment(advantage="a", **options).evaluate(turns))[::2]
        np.testing.assert_allclose(found, credit, atol=1e-9)


@exact
def own_baseline() -> None:
    """Without alignment: discounted returns less those of the group's other episodes at the round, per player."""
    rng = np.random.default_rng(0)
    episode, turn, seat = (axis.ravel() for axis in np.indices((4, 3, 2)))
    rewards = rng.normal(size=len(turn)) + 3.0 * seat + turn
    keys = {"group": episode // 2, "episode": episode, "turn": turn, "agent": np.array(["x", "y"])[seat]}
    own = np.asarray(advantage_alignment(beta=0.0).evaluate(Turns(keys | {"reward": rewards}))).reshape(2, 2, 3, 2)
    np.testing.assert_allclose(own.mean(axis=1), 0.0, atol=1e-9)
    alone = np.asarray(
        advantage_alignment(beta=0.0, gamma=0.0).evaluate(
            Turns({name: each[:6] for name, each in (keys | {"reward": rewards}).items()})
        )
    )
    np.testing.assert_allclose(alone, rewards[:6], atol=1e-9)  # a group of one episode passes raw
    first, second = rewards.reshape(2, 2, 3, 2).transpose(1, 0, 2, 3)
    gap = first - second
    gap[:, 1] += 0.9 * gap[:, 2]
    gap[:, 0] += 0.9 * gap[:, 1]
    np.testing.assert_allclose(own[:, 0], gap, atol=1e-9)


@exact
def same_draws() -> None:
    """Episodes of a group have one deal of Kuhn poker, so that players who always pass have no advantage."""
    team = Team({"player_0": fixed(0), "player_1": fixed(0, name="too")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of groups whose episodes do not begin alike, which fails below
        turns = rollout(openspiel("kuhn_poker"), team, groups=6, group_size=8)
    assert turns.frame["reward"].n_unique() > 1
    np.testing.assert_allclose(np.asarray(advantage_alignment().evaluate(turns)), 0.0, atol=1e-9)


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
    criterion="mean payoff of a round over the last 20 iterations >= 2.3 by the defaults (β = "
    "0.5) and <= 1.3 with β = 0 in every seed; the aligned policy cooperates after defection of the other less often "
    "than after cooperation of both, by 0.5",
    seeds=(20, 21, 22),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms, and the strategy that was learned."""

    def payoff(learned: object) -> dict[str, float]:
        earned = np.mean(learned.curve("reward")[-20:]) * SCALE / ROUNDS  # type: ignore[attr-defined]
        chances = cooperation(learned.team.policies["player"])  # type: ignore[attr-defined]
        return {"payoff": float(earned)} | {f"cooperates_{name}": chance for name, chance in chances.items()}

    arms = train_arms("dilemma", ARMS, seeds, payoff)
    aligned, selfish = arms.values["aligned"], arms.values["selfish"]
    measured = {"lowest_aligned": float(aligned["payoff"].min())} | arms.measured()
    trigger = arms.mean("aligned", "cooperates_cc") - arms.mean("aligned", "cooperates_cd")
    holds = aligned["payoff"].min() >= 2.3 and selfish["payoff"].max() <= 1.3 and trigger >= 0.5
    return Outcome(measured, bool(holds))
