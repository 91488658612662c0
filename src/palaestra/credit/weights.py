"""Weights: how terms are mixed and rows are weighted. What is left of most new estimators once their key is known.

`mix` blends two terms, `modulate` multiplies rows by a weight, `minmax` brings a signal to [0, 1]; schedules are
signals of the column `iteration`. The named methods below differ in nothing but the weight. Left out: weights that need
a model call (probes, critics): they are columns.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_first, is_scored
from palaestra.algebra.returns import agent_return, as_reward, episode_score, return_to_go
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    absolute,
    as_signal,
    centre,
    clip,
    exp,
    fill_missing,
    highest,
    is_missing,
    lowest,
    mean,
    per_turn,
    ratio,
    register,
    shift,
    short,
    standardise,
    std,
    total,
)
from palaestra.algebra.signals import where as pick  # `where` is also the name of the option of every statistic
from palaestra.algebra.tree import Value
from palaestra.algebra.turns import Ragged
from palaestra.credit.grouped import dr_grpo, grpo
from palaestra.errors import ExpressionError, nearest


@register()
def within(x: SignalLike, *, low: float = 0.0, high: float = 1.0) -> Signal:
    """Signal x unchanged; evaluating it raises where x leaves [low, high], for a weight or schedule that must not.

    Raises:
        ExpressionError: on evaluation, a value is outside; names the rows.
    """
    return Signal("within", as_signal(x), low=float(low), high=float(high))


@kernel("within", range="row")
def _within(evaluation: Evaluation, node: Signal) -> Value:
    value, low, high = evaluation(node.inputs[0]), node.options["low"], node.options["high"]
    flat = value.values if isinstance(value, Ragged) else value.astype(float)
    outside = np.flatnonzero((flat < low) | (flat > high))
    if len(outside):
        place = "token" if isinstance(value, Ragged) else "row"
        raise ExpressionError(
            f"{short(node.inputs[0])} is {flat[outside[0]]:g} in {place} {outside[0]}, outside [{low:g}, {high:g}] "
            f"({len(outside)} in all); mend the schedule or clip it"
        )
    return value


@register()
def mix(weight: SignalLike, first: SignalLike, second: SignalLike) -> Signal:
    """Signal: mixture weight · first + (1 - weight) · second; the weight is a number in [0, 1] or such a signal.

    Raises:
        ExpressionError: the weight is outside [0, 1]: a number at once, a signal when it is evaluated.

    >>> mix(0.6, "fine", "coarse")
    0.6 * col('fine') + 0.4 * col('coarse')
    """
    w = as_signal(weight)
    if w.op == "lit" and not 0 <= w.options["value"] <= 1:
        raise ExpressionError(f"mix: weight {w} is outside [0, 1]")
    w = w if w.op == "lit" else within(w)
    return w * as_signal(first) + (1.0 - w) * as_signal(second)


@register()
def modulate(
    advantage: SignalLike, weight: SignalLike, *, where: SignalLike | None = None, renorm: bool = False
) -> Signal:
    """Signal advantage · weight on the rows where `where` holds (default: all), and the advantage itself elsewhere.

    renorm: the weight is divided by its mean over these rows of the batch, so that it is 1 on average; rows without an
    advantage, which are not trained on, do not count.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"reward": [1.0, 1.0, -1.0], "duration": [1.0, 5.0, 3.0]})
    >>> modulate("reward", "duration", renorm=True).evaluate(turns).round(2)
    array([ 0.33,  1.67, -1.  ])
    """
    trained = is_scored(advantage) if where is None else is_scored(advantage) & as_signal(where)
    scale = ratio(weight, mean(weight, over=(), where=trained), 1.0) if renorm else as_signal(weight)
    product = as_signal(advantage) * scale
    return product if where is None else pick(where, product, advantage)


@register()
def minmax(x: SignalLike, *, over: Keys = ()) -> Signal:
    """Signal (x - min) / (max - min) over each key, in [0, 1]; a constant key gives 0.

    >>> from palaestra.algebra.turns import Turns
    >>> minmax("cost").evaluate(Turns({"cost": [0.1, 0.5, 1.0, 0.4]})).round(4)
    array([0.    , 0.4444, 1.    , 0.3333])
    """
    low = lowest(x, over=over)
    scaled = ratio(as_signal(x) - low, highest(x, over=over) - low)
    return pick(std(x, over=over, ddof=0) == 0.0, 0.0 * as_signal(x), scaled)


# -- schedules --------------------------------------------------------------------------------------------------------


# -- named methods ----------------------------------------------------------------------------------------------------


@register()
def outlier_filter(
    advantage: SignalLike | None = None, *, k: float = 3.0, action: Literal["zero", "clip"] = "zero"
) -> Signal:
    """Signal: an advantage (default: standardised return) beyond ± k becomes 0; StableReinforce (arXiv 2505.02835).

    It becomes 0, not ± k.

    advantage: standardised over the batch by default, (x - mean) / std of every turn's return, ddof 0. What is left is
    not centred again. action="clip": cut at ± k instead. The text is followed: the released code's bounds are the raw
    mean ± 3, and beyond ± 10 it is 0 once more. One bad reward among 256 stands at ∓16 standard deviations:

    >>> from palaestra.algebra.turns import Turns
    >>> outlier_filter(centre("x", over=()) / 2.0, k=1).evaluate(Turns({"x": [1.0, 1, 1, 9]}))
    array([-1., -1., -1.,  0.])
    """
    _known("outlier_filter", action, ("zero", "clip"))
    if not k > 0:
        raise ExpressionError(f"outlier_filter: k={k!r} standard deviations must be above 0")
    raw = standardise(agent_return(), over=(), ddof=0, eps=1e-12) if advantage is None else as_signal(advantage)
    if action == "clip":
        return clip(raw, low=-k, high=k)
    return pick(absolute(raw) > k, 0.0, raw)


@register()
def stable_reinforce(reward: SignalLike = "reward", *, k: float = 3.0) -> Signal:
    """Signal: [31] StableReinforce (2505.02835), the return to go, standardised over the batch, 0 beyond ± k.

    The other half is the term `stable()`. KL and baseline: none.
    """
    returns = return_to_go(as_reward("stable_reinforce", reward))
    return outlier_filter(standardise(returns, over=(), ddof=0, eps=1e-12), k=k)


@register()
def batch_score(score: SignalLike | None = None) -> Signal:
    """Signal: mean score of the batch, every episode one sample; how far training has come, if scores lie in [0, 1]."""
    return mean(episode_score(score), over=(), unit="episode")


@register()
def a_grae(
    score: SignalLike | None = None,
    *,
    alpha: float = 1.0,
    ddof: int = 1,
    eps: float = 1e-6,
    flavour: Literal["code"] | None = None,
) -> Signal:
    """Signal: [61] A-GRAE (2602.05548), GRPO · (ω/(2√p) + (1 - ω)/(2√(1 - p))), p group's mean score, ω the batch's.

    Positive credit is then multiplied by min(1, ω/alpha); scores are in [0, 1]. Early on, easy groups count more and
    correct answers less; later hard groups count more. A group whose p is not inside (0, 1) keeps GRPO's credit.
    flavour="code": as released, 1 - √p in place of √(1 - p), ω the mean of the groups' means (its 1e-6 beside the roots
    left out). The formula is the paper's text, the flavour is checked against the code.
    """
    _known("a_grae", flavour, (None, "code"))
    r = episode_score(score)
    z, p = standardise(r, over="group", unit="episode", ddof=ddof, eps=eps), mean(r, over="group", unit="episode")
    progress = mean(p, over=(), where=is_first(over="group")) if flavour else batch_score(score)
    omega, mixed = clip(progress, low=0.0, high=1.0), (p > 0.0) & (p < 1.0)
    q = pick(mixed, p, 0.5)
    hard, easy = q**0.5, 1.0 - q**0.5 if flavour else (1.0 - q) ** 0.5
    weighted = modulate(z, omega / (2.0 * hard) + (1.0 - omega) / (2.0 * easy), where=mixed)
    return modulate(weighted, clip(omega / alpha, high=1.0), where=weighted > 0.0)


@register()
def adora(
    score: SignalLike | None = None,
    *,
    length: SignalLike = "tokens_out",
    rule: Literal["llm", "vlm"] = "llm",
    low: float = 0.1,
    correct: float = 0.5,
    cap: float | None = None,
) -> Signal:
    """Signal: [71] ADORA (2602.10019), GRPO · w; w: 1 if the group's longest right beats its mean wrong one, or `low`.

    Otherwise w = low. correct: an episode is correct if its score is above. cap: wrong episodes of this length or more
    are left out, being truncated. A group without correct ones weighs `low`, one without wrong ones 1 by the rule for
    language models (`llm`), the other way round for vision (`vlm`); their advantage is 0 either way. Checked against
    the released code, whose constants are correct=1.01, cap=4054 (`llm`) and correct=0.5, cap=4094 (`vlm`).
    """
    _known("adora", rule, ("llm", "vlm"))
    r, size = episode_score(score), total(length, over="episode")
    wrong = r <= correct if cap is None else (r <= correct) & (size < cap)
    longest = highest(size, over="group", where=r > correct)
    typical = mean(size, over="group", unit="episode", where=wrong)
    llm = fill_missing(longest, -2.0) > fill_missing(typical, -1.0)  # lengths are never negative
    worth = llm if rule == "llm" else is_missing(longest) | fill_missing(longest > typical, False)
    return modulate(grpo(score), pick(worth, 1.0, low))


@register()
def empg(
    advantage: SignalLike | None = None,
    *,
    entropy: SignalLike | None = None,
    k: float = 1.0,
    k_next: float = 1.0,
    bonus: float = 0.1,
) -> Signal:
    """Signal: [174] EMPG (arXiv 2509.09265), A · exp(-k · entropy) + bonus if the next turn is sure, minus batch mean.

    Ĥ is the turn's mean token entropy brought to [0, 1] over the batch; g = exp(-k·Ĥ) divided by its batch mean lets
    confident turns count more, f = exp(-k_next·Ĥ of the agent's next turn), 0 on its last, rewards going where one is
    sure. Formulas agree in two secondary texts; the defaults of k, k_next and bonus are reconstructions.
    """
    a = grpo() if advantage is None else as_signal(advantage)
    h = minmax(pick(is_scored(a), per_turn("entropies") if entropy is None else entropy))
    confident = modulate(a, exp(-k * h), renorm=True)
    return centre(confident + bonus * fill_missing(shift(exp(-k_next * h), n=-1), 0.0), over=())


@register()
def gui_g1(score: SignalLike | None = None, *, difficulty: SignalLike = "difficulty") -> Signal:
    """Signal: [172] GUI-G1 (2505.15810), (R - group mean) · column `difficulty`, no division by a deviation.

    Its loss sums tokens over a constant; its reward is `rewards.gui_g1_reward`. Checked against the released code.
    """
    return modulate(dr_grpo(score), difficulty)


@register()
def duration_aware(advantage: SignalLike | None = None, *, duration: SignalLike = "duration") -> Signal:
    """Signal: [27] RL for machine-learning engineering (arXiv 2509.01684), A · Δt / mean Δt of the batch.

    Undoes that in a fixed time a fast action is tried, and so trained on, more often. Only right where the batch holds
    too many fast actions (short asynchronous budgets) and for raw returns: what reproduction 27 gains, it gains with
    advantage="reward"; on the default, GRPO, the weight adds nothing there. From secondary text.
    """
    return modulate(grpo() if advantage is None else advantage, duration, renorm=True)


@register()
def mas_host(
    score: SignalLike | None = None, *, action_reward: SignalLike = "action_reward", weight: float = 1.0
) -> Signal:
    """Signal: [103] MasHost (2506.08507), GRPO of the finished team + weight · column `action_reward` of the decision.

    action_reward: per decision, e.g. -0.2 for a duplicate role or a useless edge; missing counts as 0. Reconstruction.
    """
    return grpo(score) + weight * fill_missing(action_reward, 0.0)


def _known(method: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        names = [str(choice) for choice in choices if choice is not None]
        raise ExpressionError(f"{method}: {value!r} is unknown{nearest(str(value), names)}")
