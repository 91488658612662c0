"""Along the turns: what is known before and after each of them, and how credit is carried back.

GAE with a rule for the end of the table, values for turns that were cut off, and gains of information about the answer.
Values and log-probabilities are columns, per turn or per token; what computes them is an annotator. Left out: V-trace
and other off-policy corrections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from palaestra.algebra.keys import is_last
from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.returns import episode_score, in_unit, return_to_go
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    centre,
    cumulative,
    exp,
    fill_missing,
    is_missing,
    register,
    shift,
    standardise,
    where,
)
from palaestra.errors import ExpressionError, InputError, nearest

State = TypeVar("State")


@register()
def gae(
    value: SignalLike = "value",
    reward: SignalLike = "reward",
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: SignalLike | None = None,
    skip: SignalLike | None = None,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: GAE (arXiv 1506.02438), A_t = δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V_{t+1} - V_t, V_t the value before step t.

    bootstrap: V after the last step; default 0 for an episode that ended by its rules, its last value for one that was
    cut off (`truncated`), as if one more step changed nothing. value may be per token; then reward is `on_last_token`.
    A missing reward adds nothing; where none is to come, the advantage is missing, as the return-to-go is. A missing
    value, or bootstrap, leaves the δ unknown that it is in, and with them each advantage that they count in.

    skip: mask of turns, or of tokens, that nobody chose, such as what the env says between two turns of one response
    (arXiv 2510.01132): the recursion passes over them with value and trace, and their advantage is missing. What is
    paid there is the action's before them. The rows of an env hold chosen tokens only: there nothing is to be skipped.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "value": [0.2, 0.5, 0.4], "reward": [0.0, 0.0, 1.0]})
    >>> gae(bootstrap=0).evaluate(turns).round(4)
    array([0.7465, 0.47  , 0.6   ])

    Raises:
        ExpressionError: gamma or lam is outside [0, 1].
    """
    in_unit("gae", gamma=gamma, lam=lam)
    now, earned = as_signal(value), fill_missing(reward, 0.0)
    if bootstrap is None:
        bootstrap = where(fill_missing("truncated", False), now, 0.0)
    one = fill_missing(0.0 * now, 0.0) + 1.0  # as long as the value: one per turn or one per token
    acts = None if skip is None else ~as_signal(skip)
    if acts is not None:  # what is paid while nobody acts is the last action's
        to_come = cumulative(earned, reverse=True, over=over)
        earned = to_come - shift(to_come, n=-1, over=over, fill=0.0, where=acts)
    last = shift(one, n=-1, over=over, fill=0.0, where=acts) == 0.0
    after = where(last, bootstrap, shift(now, n=-1, over=over, where=acts))
    delta = earned + gamma * after - now
    advantage, unknown = (
        cumulative(x, gamma=gamma * lam, reverse=True, over=over, where=acts)
        for x in (delta, where(is_missing(delta), 1.0, 0.0))
    )
    return where(~is_missing(return_to_go(reward, over=over)) & (unknown == 0.0), advantage)


@register()
def on_last_token(x: SignalLike, *, like: SignalLike = "logprobs") -> Signal:
    """Signal per token: the turn's value on its last token, 0 on the others; `like` tells how many there are."""
    one = fill_missing(0.0 * as_signal(like), 0.0) + 1.0
    return where(shift(one, n=-1, over="row", fill=0.0) == 0.0, x, 0.0 * as_signal(x))


@register()
def tppo(
    value: SignalLike = "value", reward: SignalLike = "reward", *, gamma: float = 1.0, lam: float = 0.95
) -> Signal:
    """Signal: [59] T-PPO (2506.15050), GAE on windows; an unfinished episode bootstraps from its own last value again.

    The policy learns from every row of the window; the critic from `value_target`, which only finished ones have. A
    critic that says 0 everywhere gives cut-off windows no signal at all, so it is trained first. From secondary text; γ
    and λ are not given there. `successive_batching` is the schedule of windows.
    """
    return gae(value, reward, gamma=gamma, lam=lam)


@register()
def value_target(reward: SignalLike = "reward", *, gamma: float = 1.0) -> Signal:
    """Signal: a critic's target (T-PPO), the return-to-go of finished episodes, missing in truncated ones."""
    return where(~fill_missing("truncated", False), return_to_go(reward, gamma=gamma))


@register()
def igpo(
    outcome: SignalLike | None = None,
    *,
    gold: SignalLike = "gold_logprob",
    gamma: float | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
    flavour: Literal["code", "cookbook"] | None = None,
) -> Signal:
    """Signal: [168] IGPO (2510.14967), return-to-go of z-scored gains in log p(true answer), and of the outcome.

    gold: mean token log-probability of the true answer under the policy *before* each turn (teacher forcing, no
    gradient). A turn's gain is its change until the next turn, standardised over the group's turns; the last turn earns
    the outcome (default: its agent's return), standardised over the group's episodes. Both are summed to the end with
    γ = 1. Episodes without an outcome are in neither statistic and get no credit.

    flavour="code": gains of the probability, no division, return-to-go minus its mean at the same place in the group
    (tokens there, turns here). "cookbook", a third party's: population deviation, the outcome's statistic counts a 0
    for every earlier turn, γ = 0.95. Both were read in code.

    Raises:
        ExpressionError: the flavour is unknown.
    """
    if flavour not in (None, "code", "cookbook"):
        raise ExpressionError(f"igpo: flavour={flavour!r}{nearest(str(flavour), ['code', 'cookbook'])}")
    last, r = is_last(), episode_score(outcome)
    s = where(~is_missing(r), gold)  # episodes without an outcome teach nothing, their gains neither
    if flavour == "code":
        p = exp(s)
        gained = where(last, r, potential_difference(p, terminal=p))
        return centre(return_to_go(gained, gamma=1.0 if gamma is None else gamma), over=("group", "turn"))
    gain = potential_difference(s, terminal=s)
    if flavour == "cookbook":
        informed = standardise(gain, over="group", where=~last, ddof=0, eps=1e-8)
        settled = standardise(where(last, r, 0.0 * r), over="group", ddof=0, eps=1e-8)
        return return_to_go(where(last, settled, informed), gamma=0.95 if gamma is None else gamma)
    informed = standardise(gain, over="group", where=~last, ddof=ddof, eps=eps)
    settled = standardise(r, over="group", unit="episode", ddof=ddof, eps=eps)
    return return_to_go(where(last, settled, informed), gamma=1.0 if gamma is None else gamma)


def successive_batching(
    start: Callable[[], State], advance: Callable[[State], tuple[State, bool]], *, slots: int
) -> Iterator[list[tuple[State, bool]]]:
    """Generator of T-PPO's schedule: yields per round [(state, over)] of `advance` for each slot; over: `start()` anew.

    start: a new episode (its state may be anything that play can be resumed from, a snapshot say). advance: plays one
    window and says whether the episode is over. Yields the slots' states after the window, with that flag, without end.

    Raises:
        InputError: there is no slot.

    >>> numbers = iter(range(9))
    >>> rounds = successive_batching(lambda: next(numbers), lambda n: (n, n % 2 == 1), slots=2)
    >>> next(rounds), next(rounds)
    ([(0, False), (1, True)], [(0, False), (2, False)])
    """
    if slots < 1:
        raise InputError(f"successive_batching: slots={slots} must be at least 1")
    waiting = [start() for _ in range(slots)]
    while True:
        played = [advance(state) for state in waiting]
        yield played
        waiting = [start() if over else state for state, over in played]
