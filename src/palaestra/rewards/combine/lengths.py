"""Answers that were cut off or are nearly too long: out of the loss (TRL, DAPO), or paid less (DAPO).

A cut-off answer was scored for what it lacks, so its reward says little about the policy. `mask_truncated` keeps it out
of the loss and leaves it in the baseline. `overlong` is a reward that falls before the limit is reached.
"""

from __future__ import annotations

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    fill_missing,
    highest,
    is_in,
    register,
    where,
)
from palaestra.errors import ExpressionError


@register()
def cut_off(finish: str = "finish", *, over: Keys = ()) -> Signal:
    """Signal: 1 where the answer was cut off at the token limit (`finish` is "length"), else 0, also if missing.

    over: a key; then 1 on all rows of a key in which an answer was cut off, ("episode", "agent") for example.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 1], "finish": ["length", "stop", None]})
    >>> cut_off().evaluate(turns), cut_off(over="episode").evaluate(turns)
    (array([1., 0., 0.]), array([1., 1., 0.]))
    """
    cut = 1.0 * fill_missing(is_in(finish, "length"), 0.0)
    return highest(cut, over=over) if over else cut


@register()
def mask_truncated(credit: SignalLike, *, finish: str = "finish", over: Keys = ("group", "episode", "agent")) -> Signal:
    """Signal: `credit`, but missing (not trained on) in all of an agent's episode if an answer was cut off.

    TRL's `mask_truncated_completions` and the overlong filtering of DAPO (arXiv 2503.14476, section 3.4). Baselines of
    `credit` still count them. over: what is left out as a whole; (): only the turns that were cut off.

    >>> from palaestra.algebra.turns import Turns
    >>> said = {"group": [0, 0], "episode": [0, 1], "agent": ["a", "a"], "finish": ["stop", "length"]}
    >>> mask_truncated("reward").evaluate(Turns(said | {"reward": [1.0, 0.0]}))
    array([ 1., nan])
    """
    return where(~cut_off(finish, over=over), as_signal(credit))


@register()
def overlong(length: SignalLike = "tokens_out", *, limit: float, cache: float) -> Signal:
    """Signal: soft overlong punishment of DAPO (arXiv 2503.14476): 0 up to `limit` - `cache` tokens, -1 from `limit`.

    Equation 13: 0 up to `limit` - `cache` tokens, then falling to -1 at `limit`.

    min(0, max(-1, (limit - cache - length) / cache)); -1 from `limit` on. It is added to a reward:
    `success_reward() + overlong(limit=512, cache=128)`. 0 where the length is unknown.

    Args:
        length: Tokens of the answer; `total("tokens_out", over=("episode", "agent"))` for a conversation.
        limit: L_max, tokens; the policy's `max_new_tokens` or `max_tokens`.
        cache: L_cache, tokens below the limit over which the punishment grows; 0: -1 above `limit` alone.

    Raises:
        ExpressionError: not 0 <= cache <= limit, or the limit is not positive.

    >>> from palaestra.algebra.turns import Turns
    >>> overlong(limit=20, cache=4).evaluate(Turns({"tokens_out": [16, 17, 20, 21, None]}))
    array([ 0.  , -0.25, -1.  , -1.  ,  0.  ])
    """
    if not 0 <= cache <= limit or limit <= 0:
        raise ExpressionError(f"overlong: limit={limit} and cache={cache}, expected 0 <= cache <= limit and limit > 0")
    said = as_signal(length)
    if not cache:
        return fill_missing(where(said > float(limit), -1.0, 0.0), 0.0)
    return fill_missing(clip((float(limit - cache) - said) / float(cache), low=-1.0, high=0.0), 0.0)
