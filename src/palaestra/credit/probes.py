"""Probes: what the policy would answer if it were made to answer now, and the credit that follows (SPAE [77]).

The probe itself asks the policy; its accuracy and confidence are columns. Left out: probes of other models.
"""

from __future__ import annotations

import numpy as np

from palaestra.algebra.keys import is_scored
from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.signals import (
    Signal,
    SignalLike,
    as_signal,
    centre,
    cumulative,
    exp,
    register,
    standardise,
    where,
)
from palaestra.credit.grouped import dr_grpo
from palaestra.credit.weights import minmax


@register()
def answer_potential(accuracy: SignalLike = "probe_accuracy", confidence: SignalLike = "probe_confidence") -> Signal:
    """Signal: SPAE's potential Φ = 1.5·acc·conf + 0.5·acc - conf; sure and right 1, sure and wrong -1, only right ½."""
    acc, conf = as_signal(accuracy), as_signal(confidence)
    return 1.5 * acc * conf + 0.5 * acc - conf


def probe_scores(truth_logprobs: np.ndarray, entropies: np.ndarray) -> tuple[float, float]:
    """Pair (accuracy, confidence) of a probe from `truth_logprobs` and `entropies`, [N samples, tokens] (SPAE: N = 5).

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
    """Signal: [77] SPAE (2601.03823), (R - group mean), less after Φ > `saturated`, + ξ · gain in Φ, standardised.

    f = 1 - α·(1 - exp(-C)) shrinks credit after the answer is found: C counts the episode's earlier steps with
    Φ > saturated. g = exp(ΔΦ brought to [0, 1] over the batch) minus its batch mean; ΔΦ of a first step is 0.
    phi: default `answer_potential()`. normalise=False leaves out the last step. The probe is checked against the
    released code, the advantage follows secondary text.
    """
    advantage = dr_grpo(score)
    potential = where(is_scored(advantage), answer_potential() if phi is None else phi)
    count = cumulative(potential > saturated, exclusive=True)
    gain = exp(minmax(potential_difference(potential)))
    credit = advantage * (1.0 - alpha * (1.0 - exp(-count))) + xi * centre(gain, over=())
    return standardise(credit, over=()) if normalise else credit
