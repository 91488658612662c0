"""Credit for learning several tasks at once: none counts more because its rewards are larger or it has more turns."""

from __future__ import annotations

from palaestra.algebra.returns import agent_return
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, count, ratio, register, standardise
from palaestra.credit.weights import modulate


@register()
def by_task(score: SignalLike | None = None, *, over: Keys = "part") -> Signal:
    """Signal: score standardised within its task, times N / (K · n): N turns in all, K tasks, n turns of the task.

    The weights of a task's turns sum to N / K for each task, so that each has the same share of the gradient.
    Reconstruction: the paper on shared decision layers [44] is known here by its abstract.

    Args:
        score: default `agent_return()`.
        over: key of the task; `part` is a column of `native/mixture`.

    Example:
        >>> from palaestra.algebra.turns import Turns
        >>> turns = Turns({"part": ["a", "a", "b", "b", "b", "b"], "reward": [0.0, 1.0, 0.0, 0.0, 100.0, 100.0]})
        >>> by_task("reward").evaluate(turns).round(2)
        array([-1.06,  1.06, -0.65, -0.65,  0.65,  0.65])
    """
    of = agent_return() if score is None else as_signal(score)
    return modulate(standardise(of, over=over), ratio(1.0, count(of, over=over)), renorm=True)
