"""Returns: what an episode, or an agent in it, was worth; and batch whitening."""

from __future__ import annotations

from palaestra.algebra.signals import Keys, Signal, SignalLike, centre, cumulative, mean, register, std, total
from palaestra.errors import ExpressionError


def in_unit(method: str, **numbers: float) -> None:
    """Raise ExpressionError unless every given option is in [0, 1].

    Raises:
        ExpressionError: names the method and the option.
    """
    for name, number in numbers.items():
        if not 0 <= number <= 1:
            raise ExpressionError(f"{method}: {name}={number} is outside [0, 1]")


def as_reward(method: str, reward: SignalLike, *, option: str = "gamma") -> SignalLike:
    """Returns `reward` as it is; raises ExpressionError if it is a bare number, which was meant for `option`.

    Raises:
        ExpressionError: says what to write.
    """
    if isinstance(reward, int | float) and not isinstance(reward, bool):
        raise ExpressionError(f"{method}: the first argument is the reward, {reward} is none; write {option}={reward}")
    return reward


@register()
def episode_return(reward: SignalLike = "reward") -> Signal:
    """Signal: sum of all agents' rewards in the episode, on each of its rows.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 1], "agent": ["a", "b", "a"], "reward": [0.0, 1.0, 2.0]})
    >>> episode_return().evaluate(turns)
    array([1., 1., 2.])
    """
    return total(reward, over="episode")


@register()
def agent_return(reward: SignalLike = "reward") -> Signal:
    """Signal: sum of the row's own agent's rewards in the episode; with a reward that all share, that reward."""
    return total(reward, over=("episode", "agent"))


@register()
def episode_score(score: SignalLike | None = None) -> Signal:
    """Signal: one number per episode, the mean over its rows of each row's score (default: its agent's return)."""
    return mean(agent_return() if score is None else score, over="episode")


@register()
def return_to_go(reward: SignalLike = "reward", *, gamma: float = 1.0, over: Keys = ("episode", "agent")) -> Signal:
    """Signal: discounted return-to-go G_t = r_t + γ·G_{t+1} of the agent's own turns, or with over="episode" of all.

    Raises:
        ExpressionError: gamma is outside [0, 1], or a number stands where the reward should.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 0], "agent": ["a"] * 3, "reward": [0.2, -0.1, 1.0]})
    >>> return_to_go().evaluate(turns).round(9)
    array([1.1, 0.9, 1. ])
    """
    in_unit("return_to_go", gamma=gamma)
    return cumulative(as_reward("return_to_go", reward), gamma=gamma, reverse=True, over=over)


@register()
def whiten(x: SignalLike, *, over: Keys = ()) -> Signal:
    """Signal (x - mean) / sqrt(var + 1e-8) with Bessel's factor, the trainers' `masked_whiten`; 0 where std <= 1e-6."""
    deviation = std(x, over=over)
    return (deviation > 1e-6) * centre(x, over=over) / (deviation**2 + 1e-8) ** 0.5
