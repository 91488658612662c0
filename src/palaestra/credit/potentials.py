"""Potentials: credit for what a step changed in some measure of how well things stand.

A potential is a column (a probe, a log-probability of the answer, a value) or any signal. Left out: how a probe is run;
it needs the model, so it is an annotator. `probe_scores` turns what it returns into numbers.
"""

from __future__ import annotations

import numpy as np

from palaestra.credit.grouped import dr_grpo
from palaestra.credit.keys import is_first, is_last
from palaestra.credit.weights import minmax
from palaestra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    centre,
    cumulative,
    exp,
    register,
    shift,
    standardise,
    where,
)


@register()
def potential_difference(
    phi: SignalLike,
    *,
    gamma: float = 1.0,
    first: SignalLike | None = None,
    terminal: SignalLike | None = None,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """γ·Φ_t - Φ_{t-1}: what the step that ended at t changed. Φ before the first step is `first`; left out: credit 0.

    terminal: look ahead instead, γ·Φ_{t+1} - Φ_t with Φ = terminal after the last step (potential-based shaping, where
    0 keeps the optimal policy; Ng, Harada and Russell 1999). With γ = 1 the sum over an episode telescopes.

    >>> from palaestra.turns import Turns
    >>> turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "value": [0.2, 0.5, 0.9]})
    >>> potential_difference("value").evaluate(turns).round(3)
    array([0. , 0.3, 0.4])
    >>> potential_difference("value", terminal=1).evaluate(turns).round(3)
    array([0.3, 0.4, 0.1])
    """
    now = as_signal(phi)
    if terminal is not None:
        return gamma * where(is_last(over=over), terminal, shift(now, -1, over=over)) - now
    if first is None:
        return where(is_first(over=over), 0.0 * now, gamma * now - shift(now, 1, over=over))
    return gamma * now - where(is_first(over=over), first, shift(now, 1, over=over))


@register()
def answer_potential(accuracy: SignalLike = "probe_accuracy", confidence: SignalLike = "probe_confidence") -> Signal:
    """SPAE's Φ = 1.5·acc·conf + 0.5·acc - conf in [-1, 1]: sure and right 1, sure and wrong -1, only right 0.5."""
    acc, conf = as_signal(accuracy), as_signal(confidence)
    return 1.5 * acc * conf + 0.5 * acc - conf


def probe_scores(truth_logprobs: np.ndarray, entropies: np.ndarray) -> tuple[float, float]:
    """Accuracy and confidence of one probe: the policy is made to answer at once, in N short samples (SPAE: 5).

    truth_logprobs: float[N, tokens of the true answer], the log-probability of each true token; take -10 for one that
    the endpoint does not report. entropies: float[N, sampled tokens], nats. Accuracy is the mean probability of a true
    token, confidence the mean over samples of exp(-mean entropy). The released script multiplies the values of tokens
    before it divides by their number; this is the paper's text.
    """
    return float(np.exp(truth_logprobs).mean()), float(np.exp(-np.mean(entropies, axis=1)).mean())


@register()
def spae(
    score: SignalLike | None = None,
    *,
    phi: SignalLike | None = None,
    alpha: float = 0.5,
    xi: float = 0.5,
    saturated: float = 0.9,
    normalise: bool = True,
) -> Signal:
    """[77] SPAE (arXiv 2601.03823): A·f_t + ξ·g_t, standardised over the batch. A = R - group mean.

    f = 1 - α·(1 - exp(-C)) shrinks credit after the answer is found: C counts the episode's earlier steps with
    Φ > saturated. g = exp(ΔΦ brought to [0, 1] over the batch) minus its batch mean; ΔΦ of a first step is 0.
    phi: default `answer_potential()`. normalise=False leaves out the last step. The probe is checked against the
    released code, the advantage follows secondary text.
    """
    potential = answer_potential() if phi is None else as_signal(phi)
    count = cumulative(potential > saturated, exclusive=True)
    gain = exp(minmax(potential_difference(potential)))
    advantage = dr_grpo(score) * (1.0 - alpha * (1.0 - exp(-count))) + xi * centre(gain, over=())
    return standardise(advantage, over=()) if normalise else advantage
