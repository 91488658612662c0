"""Filtered cloning of whole episodes: those that went better than their task does on average, and their good steps."""

from __future__ import annotations

from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, highest, register
from palaestra.credit.filtered import vsc_rl


@register()
def digirl(
    outcome: SignalLike = "reward",
    *,
    first: SignalLike = "first_value",
    value: SignalLike = "value",
    top: float = 0.1,
    gamma: float = 0.5,
    margin: float = 0.05,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: [73] DigiRL (2406.11896), cloning mask: 1 if R - `first` is in the `top` share and `step_filter` > 0.

    It is 0 elsewhere.
    Computes ``[R - V(s_1) >= q] · [step_filter > 0]`` with R the largest outcome of the episode and q the quantile
    ``1 - top`` of the first factor's left side over the episodes of the table. Tasks that always succeed score near 0,
    so that the rare successes at hard tasks are kept. Where fewer than `top` of the episodes succeed, failures are kept
    as well, by the steps that raised the chance of success. The critics are columns of the stage `outcome_critics`.

    Args:
        outcome: 1 on the turn that succeeds, in an episode that does.
        first: Chance of success at the first turn of the episode; 0 ranks by the outcome alone, as offline.
        value: Chance of success at each turn.
        top: Share of the episodes, those at its border included.
        gamma: Discount of the return-to-go in `step_filter`.
        margin: An improvement of the value up to this does not count.
        over: Key of an episode.

    Returns:
        float64[rows], 0 or 1: `weights('digirl()')`, `clone(column='weight')`.

    Raises:
        ExpressionError: top is not in (0, 1].
    """
    known = 0.0 * highest(outcome, over=over)  # an episode without an outcome has no rank
    first = as_signal(first) + known
    return vsc_rl(outcome, first=first, value=value, top=top, passed=False, gamma=gamma, margin=margin, over=over)
