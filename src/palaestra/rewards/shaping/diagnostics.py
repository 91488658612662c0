"""[176] Lanser-CLI: a process reward from what a language server says of a workspace.

The columns come from `palaestra.annotators.check_turns`; any checker that counts will do.
"""

from __future__ import annotations

from typing import Literal

from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, fill_missing, register
from palaestra.errors import ExpressionError, nearest


@register()
def lanser_reward(
    diagnostics: SignalLike = "diagnostics",
    before: SignalLike = "diagnostics_before",
    safe: SignalLike = "safe",
    confidence: SignalLike = "confidence",
    *,
    weights: tuple[float, float, float] = (0.5, 0.4, 0.1),
    gamma: float = 1.0,
    method: Literal["potential", "published"] = "potential",
    over: Keys = "episode",
) -> Signal:
    """Signal: [176] Lanser-CLI, shaping γΦ' - Φ of Φ = -a·D + b·S - c(1 - α), D compiler diagnostics.

    Report of 24 October 2025; method="published" is its formula, a(D_before - D) + b·S - c(1 - α).

    D: diagnostics after the turn; S: was the turn safe; α: how unambiguous its target was; weights (a, b, c).
    method="published" is the formula of the text. S and α enter it as levels, so that breaking and fixing three lines
    for ever earns 0.8 a lap. The potential form Φ = -aD + bS - c(1 - α), reward γΦ_t - Φ_{t-1}, pays a lap 0 and, with
    γ = 1, never punishes a step that makes neither of the three worse. Before the first turn S = α = 1. The report's
    second example (7 to 7, S = 0, α = .62: -.438) is the potential form's value; its formula gives -.038.

    Raises:
        ExpressionError: the method is unknown, or there are not three weights.

    >>> from palaestra.algebra.turns import Turns
    >>> facts = {"diagnostics": [2], "diagnostics_before": [5], "safe": [1], "confidence": [0.94]}
    >>> turns = Turns({"episode": [0], **facts})
    >>> lanser_reward(method="published").evaluate(turns).round(3), lanser_reward().evaluate(turns).round(3)
    (array([1.894]), array([1.494]))
    """
    if method not in ("potential", "published"):
        raise ExpressionError(f"lanser_reward: method={method!r}{nearest(str(method), ['potential', 'published'])}")
    if len(weights) != 3:
        raise ExpressionError(f"lanser_reward: {len(weights)} weights; give those of D, S and 1 - α")
    a, b, c = weights
    now, doubt = as_signal(diagnostics), 1.0 - as_signal(confidence)
    earlier = fill_missing(before, now)
    if method == "published":
        return a * (earlier - now) + b * as_signal(safe) - c * doubt
    phi = b * as_signal(safe) - a * now - c * doubt
    return potential_difference(phi, gamma=gamma, first=b - a * earlier, over=over)
