"""Step rewards out of what only whole episodes were given: return decomposition, and implicit process rewards.

A linear decoder over factors is fitted so that the predicted step rewards of an episode add up to its return; what
comes out is itself a signal. A process reward model needs no labels of steps either: it is trained on which episode of
a pair succeeded. Left out: decoders that are networks (feed their last layer as factors), and the code-writing model
that proposes factors; here they are signals that someone wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import in_first_turn, is_last, is_scored, turn_values
from palaestra.algebra.returns import episode_score, return_to_go
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    absolute,
    as_signal,
    count,
    evaluate,
    fill_missing,
    highest,
    leave_one_out,
    mean,
    per_turn,
    ratio,
    register,
    standardise,
    total,
    where,
)
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit.temporal import gae
from palaestra.errors import ExpressionError, InputError, nearest


class ReturnDecomposition:
    """Linear model of step rewards x·w (`size` features) whose sum over an episode explains its return; least squares.

    It is fitted online, table by table.

    method: "rd" compares the whole episode: (Σ_t x_t·w - R)², or with average=True (mean_t x_t·w - R/T)², as LaRe does,
    in which long episodes weigh less. "rrd": the mean over a random subset of `steps` steps in place of the whole; its
    sampling variance is subtracted, so that the loss is that of "rd" in expectation (arXiv 2111.13485). ridge: added to
    the diagonal.

    Steps may belong to several agents: the loss sums over all rows of an episode, every row gets its own reward.
    """

    def __init__(
        self,
        size: int,
        *,
        method: Literal["rd", "rrd"] = "rd",
        average: bool = False,
        steps: int = 5,
        ridge: float = 1e-9,
    ) -> None:
        if method not in ("rd", "rrd"):
            raise InputError(f"ReturnDecomposition: method={method!r}{nearest(str(method), ['rd', 'rrd'])}")
        if steps < 2 or ridge < 0:
            raise InputError(f"ReturnDecomposition: steps={steps} must be at least 2, ridge={ridge} not negative")
        self.method, self.average, self.steps, self.ridge = method, average or method == "rrd", steps, ridge
        self.squares, self.products = np.zeros((size, size)), np.zeros(size)

    def add(
        self, features: np.ndarray, episode: np.ndarray, returns: np.ndarray, *, rng: np.random.Generator | None = None
    ) -> ReturnDecomposition:
        """Add episodes to the fit.

        Args:
            features: float64[rows, size].
            episode: int64[rows], its number from 0.
            returns: float64[episodes].
            rng: draws the subsets of "rrd".

        Raises:
            InputError: a shape does not fit, a value is not finite, or rng is needed.
        """
        if features.shape != (len(episode), len(self.products)) or (len(episode) and episode.max() >= len(returns)):
            raise InputError(
                f"ReturnDecomposition.add: features {features.shape} for {len(episode)} rows, {len(returns)} episodes "
                f"and {len(self.products)} factors; give one row of factors per step and one return per episode"
            )
        if not (np.isfinite(features).all() and np.isfinite(returns).all()):
            raise InputError("ReturnDecomposition.add: a factor or a return is not finite; leave those episodes out")
        length = np.bincount(episode, minlength=len(returns))
        share = returns / np.maximum(length, 1)
        if self.method == "rd":
            whole = _sums(features, episode, len(returns))
            goal = share if self.average else returns
            whole = whole / np.maximum(length, 1)[:, None] if self.average else whole
            self.squares += whole.T @ whole
            self.products += whole.T @ goal
            return self
        if rng is None:
            raise InputError("ReturnDecomposition.add: 'rrd' draws subsets: give rng=np.random.default_rng(seed)")
        chosen = _subset(episode, self.steps, rng)
        x, owner = features[chosen], episode[chosen]
        number = np.bincount(owner, minlength=len(returns))
        means = _sums(x, owner, len(returns)) / np.maximum(number, 1)[:, None]
        rest = x - means[owner]
        spread = (1 - number / np.maximum(length, 1)) / np.maximum(number * (number - 1), 1)
        self.squares += means.T @ means - rest.T @ (rest * spread[owner, None])
        self.products += means.T @ share
        return self

    @property
    def weights(self) -> np.ndarray:
        """Least-squares weights of the features, float64[size]; 0 for what was never seen."""
        solved, *_ = np.linalg.lstsq(self.squares + self.ridge * np.eye(len(self.products)), self.products, rcond=None)
        return np.asarray(solved)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted reward of each step, float64[rows]."""
        return np.asarray(features @ self.weights)


def _sums(x: np.ndarray, key: np.ndarray, size: int) -> np.ndarray:
    return np.stack([np.bincount(key, column, size) for column in x.T], axis=-1) if x.shape[1] else np.zeros((size, 0))


def _subset(episode: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of `steps` random steps of each episode, or of all of a shorter one."""
    order = np.lexsort((rng.random(len(episode)), episode))
    sizes = np.bincount(episode)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(order[place < steps])


def decompose(
    turns: Turns,
    factors: Sequence[SignalLike],
    *,
    target: SignalLike | None = None,
    model: ReturnDecomposition | None = None,
    rng: np.random.Generator | None = None,
) -> Signal:
    """Fits rewards to the returns of `Turns`: the signal Σ weight · factor of signals `factors`, usable on any table.

    factors: signals of one value per turn, e.g. what a code-writing model proposed as expressions. target: the return
    (default: the sum of the episode's rewards). Episodes without one, or with a missing factor, are left out. model: to
    go on from earlier tables, or to choose the method.

    Raises:
        InputError: a factor has one value per token, or none is given.
    """
    if not factors:
        raise InputError("decompose: no factors; give at least one signal")
    signals = [as_signal(factor) for factor in factors]
    model = ReturnDecomposition(len(signals)) if model is None else model
    whole = mean(total("reward", over="episode") if target is None else target, over="episode")
    values = evaluate(turns, *signals, whole)
    for signal, value in zip(signals, values, strict=False):
        if isinstance(value, Ragged):
            raise InputError(f"decompose: {signal} has one value per token; wrap it in per_turn()")
    features, returns = np.stack([np.asarray(v, float) for v in values[:-1]], axis=-1), np.asarray(values[-1], float)
    codes = turns.codes("episode")
    usable = np.bincount(codes.ids, np.isnan(features).any(axis=1) | np.isnan(returns), codes.size)[codes.ids] == 0
    _, first, episode = np.unique(codes.ids[usable], return_index=True, return_inverse=True)
    model.add(features[usable], episode, returns[usable][first], rng=rng)
    parts = [float(weight) * signal for weight, signal in zip(model.weights, signals, strict=True)]
    return sum(parts[1:], parts[0])


@register()
def redistribute(
    factor: SignalLike, *more: SignalLike, target: SignalLike | None = None, average: bool = False, ridge: float = 1e-9
) -> Signal:
    """Signal of step rewards Σ w·factor, w fitted by `ReturnDecomposition` to the returns of the same batch.

    For a recipe: credit = "standardise(return_to_go(redistribute(col('progress'), 1)), over='group')". A constant
    factor is the share that every step gets. Episodes without a return, or with a missing factor, are not fitted.
    """
    whole = mean(total("reward", over="episode") if target is None else target, over="episode")
    inputs = (as_signal(factor), *map(as_signal, more))
    return redistributed(whole, *inputs, over="episode", average=average, ridge=ridge)


@register()
def redistributed(
    target: SignalLike, *factors: SignalLike, over: Keys = "episode", average: bool = False, ridge: float = 1e-9
) -> Signal:
    """Signal: factors weighted so that each key's sum explains its `target`, fitted per batch (see `redistribute`)."""
    keys = (over,) if isinstance(over, str) else tuple(str(key) for key in over)  # type: ignore[union-attr]
    return Signal(
        "redistributed", as_signal(target), *map(as_signal, factors), over=keys, average=average, ridge=float(ridge)
    )


@kernel("redistributed", range="batch")
def _redistributed(evaluation: Evaluation, node: Signal) -> np.ndarray:
    returns, *factors = turn_values(evaluation, node, node.inputs)
    features = np.stack(factors, axis=-1)
    batch, key = evaluation.codes(()), evaluation.codes(node.options["over"])
    usable = np.bincount(key.ids, np.isnan(features).any(axis=1) | np.isnan(returns), key.size)[key.ids] == 0
    result = np.full(len(returns), np.nan)
    for number in range(batch.size):
        mine = batch.ids == number
        rows = np.flatnonzero(mine & usable)
        _, first, episode = np.unique(key.ids[rows], return_index=True, return_inverse=True)
        model = ReturnDecomposition(features.shape[1], average=node.options["average"], ridge=node.options["ridge"])
        model.add(features[rows], episode, returns[rows][first])
        result[mine] = model.predict(features[mine])
    return result


# -- implicit process rewards -----------------------------------------------------------------------------------------


def pairwise_logistic(score: np.ndarray, outcome: np.ndarray, group: np.ndarray) -> tuple[float, np.ndarray]:
    """Pair (loss, gradient) of array `score`: -log σ(score_i - score_j), mean of a group's pairs, i of more `outcome`.

    score, outcome: float64[episodes]; group: int64[episodes]. Without such a pair the loss is 0. For a torch model:
    `score.backward(gradient)`.

    >>> loss, gradient = pairwise_logistic(np.array([0.0667, 0.025]), np.array([1, 0]), np.array([0, 0]))
    >>> round(loss, 4), gradient.round(4)
    (0.6725, array([-0.4896,  0.4896]))
    """
    loss, pairs, gradient = 0.0, 0, np.zeros(len(score))
    for rows in np.split(np.argsort(group, kind="stable"), np.flatnonzero(np.diff(np.sort(group))) + 1):
        better = outcome[rows][:, None] > outcome[rows][None, :]
        gap = np.where(better, score[rows][:, None] - score[rows][None, :], 0.0)
        loss += float((np.logaddexp(0.0, -gap) * better).sum())
        slope = better / (1.0 + np.exp(np.clip(gap, -700, 700)))
        gradient[rows] += slope.sum(axis=0) - slope.sum(axis=1)
        pairs += int(better.sum())
    return loss / max(pairs, 1), gradient / max(pairs, 1)


@register()
def implicit_reward(
    model: SignalLike = "prm_logprobs", reference: SignalLike = "logprobs", *, beta: float = 0.05
) -> Signal:
    """Signal: implicit process reward β · Σ (log π_φ - log π_reference) over the turn's tokens (arXiv 2412.01981).

    The reference is the rollout policy itself. The model is trained by `pairwise_logistic` on the mean over an episode.
    """
    return beta * per_turn(as_signal(model) - as_signal(reference), method="total")


@register()
def oprl(
    score: SignalLike | None = None,
    *,
    step: SignalLike | None = None,
    episode: SignalLike | None = None,
    weight: float = 1.0,
    flavour: Literal["code"] | None = None,
) -> Signal:
    """Signal: [29] OPRL, iStar (2509.19199), RLOO of the episode + weight · leave-one-out of its group's steps.

    step: default `implicit_reward()`. episode: another credit of the episode, e.g. `grpo()`, in place of RLOO. Steps
    are divided by the batch's largest |return-to-go| + 1e-6 first, and every row is a sample. flavour="code": the
    baseline counts the first turn of each episode only, factor n/(n - 1) by episodes. Both checked
    against the released code.

    Raises:
        ExpressionError: the flavour is unknown.
    """
    if flavour not in (None, "code"):
        raise ExpressionError(f"oprl: flavour={flavour!r}{nearest(str(flavour), ['code'])}")
    whole = leave_one_out(episode_score(score), over="group", unit="episode") if episode is None else as_signal(episode)
    raw = where(is_scored(whole), implicit_reward() if step is None else step)  # who has no score is in no baseline
    scaled = raw / (highest(absolute(return_to_go(raw)), over=()) + 1e-6)
    steps = leave_one_out(scaled, over="group")
    if flavour == "code":
        number = count(whole, over="group", unit="episode")
        first = mean(scaled, over="group", unit="episode", where=in_first_turn(over="episode"))
        steps = ratio(number, number - 1.0, 1.0) * (scaled - first)
    return whole + weight * steps


# -- progress ---------------------------------------------------------------------------------------------------------


@register()
def spa_reward(progress: SignalLike = "progress", executed: SignalLike | None = None, *, bonus: float = 0.5) -> Signal:
    """Signal: SPA's step reward [49]: predicted progress + bonus · executed, which is 1 on the agent's last turn.

    progress: `decompose` of the features of turns, or the head of a language model that was trained on
    (Σ_t c_t - R)². executed: whether the world took notice; default `valid`, missing counts as yes.
    """
    done = fill_missing("valid", 1.0) if executed is None else as_signal(executed)
    return as_signal(progress) + bonus * where(is_last(), 1.0, done)


@register()
def spa(
    progress: SignalLike = "progress",
    executed: SignalLike | None = None,
    *,
    bonus: float = 0.5,
    value: SignalLike | None = None,
    gamma: float = 1.0,
    lam: float = 0.95,
    over: Keys = ("group", "turn"),
) -> Signal:
    """Signal: [49] SPA-RL, GAE of `spa_reward(progress)` if `value` is given, else its return-to-go standardised.

    arXiv 2505.20732.

    progress: filled by the stage `progress()`. over: the key of the latter; by turn, because what is still to come, the
    bonus above all, depends on how far the episode is. The released scripts replace predictions by leave-one-out final
    rewards and multiply them by the turns left; this is the paper, but for the credit without values, which is ours.
    """
    reward = spa_reward(progress, executed, bonus=bonus)
    if value is not None:
        return gae(value, reward, gamma=gamma, lam=lam)
    return standardise(return_to_go(reward, gamma=gamma), over=over)
