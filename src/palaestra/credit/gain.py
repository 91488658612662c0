"""Credit for what somebody else reached thanks to an agent, beside the agent's own task."""

from __future__ import annotations

from palaestra.algebra.returns import return_to_go
from palaestra.algebra.signals import Signal, SignalLike, as_signal, centre, fill_missing, register


@register()
def assistance(task: SignalLike | None = None, *, alpha: float = 2.0, gain: SignalLike = "gain") -> Signal:
    """Signal: RLHG's advantage of an agent [154] (arXiv 2401.16444), A_task + α · column `gain`, 0 where it is missing.

    Args:
        task: A_task; default `centre(return_to_go(), over=("agent", "state"))`.
        alpha: weight of the human's gain; 2 in the published code.
        gain: A_h, the column that the stage `human_gain` fills; missing in turns without a person.

    Example:
        >>> from palaestra.algebra.turns import Turns
        >>> turns = Turns({"own": [0.5, 0.5], "gain": [-0.1, None]})
        >>> assistance("own").evaluate(turns).round(9)
        array([0.3, 0.5])
    """
    own = centre(return_to_go(), over=("agent", "state")) if task is None else as_signal(task)
    return own + alpha * fill_missing(gain, 0.0)
