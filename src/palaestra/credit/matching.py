"""MatchTIR's credit: what a turn was worth among turns of the same number. Its reward is `rewards.match_reward`."""

from __future__ import annotations

from typing import Any

from palaestra.algebra.returns import return_to_go
from palaestra.algebra.signals import Signal, SignalLike, Singleton, register, standardise, total
from palaestra.credit.weights import mix


@register()
def matchtir(
    reward: SignalLike = "reward",
    *,
    gamma: float = 0.9,
    weight: float = 0.5,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "raw",
) -> Signal:
    """Signal: [97] MatchTIR (2601.10712), weight · z of the return in the group + (1 - weight) · z of G_t of its turn.

    The episode's is GRPO of its total reward; the turn's is its return-to-go, discounted by γ, standardised among the
    group's turns of the same number. A lone sample passes raw, unlike elsewhere, as in
    the released code, against which this is checked.
    reward: graded turn by turn, e.g. `rewards.match_reward("calls", "gold")`.
    """
    how: dict[str, Any] = {"ddof": ddof, "eps": eps, "singleton": singleton}
    episode = standardise(total(reward, over="episode"), over="group", unit="episode", **how)
    to_go = return_to_go(reward, gamma=gamma, over="episode")
    return mix(weight, episode, standardise(to_go, over=("group", "turn"), **how))
