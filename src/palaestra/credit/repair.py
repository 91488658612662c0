"""Repair of groups that teach nothing because all of their episodes scored the same: replayed opposites, hints.

What adds rows or changes prompts is a function of tables, not a signal: `inject`, `reflections`, `hint_prefix`. What it
added is marked (`replayed`, `hinted`, `hint`), and the signals here weigh it. `palaestra.learning.stages` has what a
trainer calls between play and credit, with a buffer that a resume finds again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import polars as pl

from palaestra.algebra.keys import is_last
from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import (
    Signal,
    SignalLike,
    absolute,
    as_signal,
    clip,
    evaluate,
    exp,
    fill_missing,
    mean,
    register,
    standardise,
    std,
    where,
)
from palaestra.algebra.turns import SCOPE, Turns
from palaestra.credit.ranking import r3_score
from palaestra.credit.weights import modulate
from palaestra.errors import InputError

Item = TypeVar("Item")

REFLECTION = "An earlier attempt at this task ended with:\n{answer}\nIt was wrong. Find out why, then solve the task."


def remember(
    buffer: Turns | None, turns: Turns, *, last: int = 8, score: SignalLike | None = None, solved: float = 0.5
) -> Turns:
    """`Turns` of `buffer` (or None) and `turns`; per task (and run) the `last` successes and `last` failures stay.

    A success scores above `solved`. Episodes are numbered anew; replayed, erroneous and unscored ones are not kept.
    """
    turns._require("task", "remember: ")
    value = np.asarray(episode_score(score).evaluate(turns), float)
    offset = 0 if buffer is None or not len(buffer) else int(buffer.frame["episode"].to_numpy().max()) + 1
    marks = pl.DataFrame({"episode": (turns.codes("episode").ids + offset).astype(np.int32), "solved": value > solved})
    fresh = turns.frame.with_columns(marks).filter(pl.Series(~np.isnan(value)))
    whole = pl.col("error").is_null().all().over("episode")  # of one that broke off the rest is no attempt
    for column, kept in (("replayed", ~pl.col("replayed").fill_null(False)), ("error", whole)):
        fresh = fresh.filter(kept) if column in fresh.columns else fresh
    fresh = fresh.drop("iteration", "group", "replayed", strict=False)
    both = fresh if buffer is None else pl.concat([buffer.frame, fresh], how="diagonal_relaxed")
    key = [name for name in ("run", "task", "solved") if name in both.columns]
    kept_ones = both.unique("episode", keep="first", maintain_order=True).group_by(key, maintain_order=True).tail(last)
    return Turns(both.join(kept_ones, on="episode", how="semi", maintain_order="left"))


def inject(
    turns: Turns,
    buffer: Turns,
    rng: np.random.Generator,
    *,
    k: int = 1,
    score: SignalLike | None = None,
    solved: float = 0.5,
) -> Turns:
    """R³'s replay [83]: `Turns` with k past episodes of `buffer` (`Turns`) of the other outcome in uniform groups.

    Uniform: all episodes of the group score alike.
    buffer: earlier turns of the same tasks, of any iteration; of the same run if both tables have one. A score above
    `solved` is a success; a group of successes gets failures, a group of failures successes, drawn without replacement,
    as many as there are. They join the group under new episode numbers, with the log-probabilities of the policy that
    played them. The result has a column `replayed`.

    Raises:
        InputError: k is negative.
        MissingColumnError: a table lacks group, episode, task or what the score needs.
    """
    if k < 0:
        raise InputError(f"inject: k={k} is negative")
    for table in (turns, buffer):
        table._require("task", "inject: ")
    signal, key = episode_score(score), list(turns.key_columns(["group"]))
    statistics = evaluate(turns, signal, std(signal, over="group", unit="episode"))
    value, spread = (np.asarray(each, float) for each in statistics)
    flat = pl.Series((spread == 0) & ~np.isnan(value))
    last = pl.col("episode").max().over(key).alias("_last")  # of all episodes of the group, unscored ones too
    groups = turns.frame.with_columns(last, pl.Series("_good", value > solved)).filter(flat)
    groups = groups.select(*key, "task", "_good", "_last").unique(maintain_order=True)

    past_value = np.asarray(signal.evaluate(buffer), float)
    marks = pl.DataFrame({"_play": buffer.codes("episode").ids, "_went": past_value > solved})
    past = buffer.frame.hstack(marks).filter(pl.Series(~np.isnan(past_value)))
    same = [name for name in ("task", "run") if name in past.columns and name in [*key, "task"]]
    plays = past.select(*same, "_play", "_went").unique("_play", keep="first", maintain_order=True)

    pairs = groups.join(plays, on=same, maintain_order="left_right").filter(pl.col("_good") != pl.col("_went"))
    pairs = pairs.with_columns(pl.Series("_draw", rng.random(len(pairs)))).sort("_draw")
    pairs = pairs.group_by(key, maintain_order=True).head(k)
    number = pl.col("_last") + pl.int_range(1, pl.len() + 1).over(key)
    pairs = pairs.select(*key, number.alias("episode"), "_play")
    past = past.drop(*SCOPE, "group", "episode", "_went", strict=False)
    added = pairs.join(past, on="_play", maintain_order="left_right")
    own = turns.frame if "replayed" in turns.columns else turns.frame.with_columns(pl.lit(False).alias("replayed"))
    return Turns.concat([Turns(own), Turns(added.drop("_play").with_columns(pl.lit(True).alias("replayed")))])


def reflections(
    buffer: Turns,
    rng: np.random.Generator,
    *,
    below: float = 0.5,
    score: SignalLike | None = None,
    solved: float = 0.5,
    template: str = REFLECTION,
) -> dict[str, str]:
    """Dict {task: R³'s reflection prompt [83] on a drawn failure} for tasks of `Turns` with mean score under `below`.

    The text holds the last action of one of the task's failed episodes, drawn at random.
    """
    for column in ("task", "action"):
        buffer._require(column, "reflections: ")
    value, last = (np.asarray(each, float) for each in evaluate(buffer, episode_score(score), is_last(over="episode")))
    ends = buffer.frame.with_columns(pl.Series("_value", value)).filter(pl.Series((last == 1) & ~np.isnan(value)))
    hard = pl.col("_value").mean().over("task") < below
    wrong = ends.filter(hard & (pl.col("_value") <= solved)).drop_nulls("task")
    wrong = wrong.with_columns(pl.Series("_draw", rng.random(len(wrong)))).sort("task", "_draw")
    drawn = wrong.unique("task", keep="first", maintain_order=True).select("task", "action")
    return {task: template.format(answer=answer) for task, answer in drawn.iter_rows()}


@register()
def r3(
    score: SignalLike | None = None,
    *,
    replayed: SignalLike = "replayed",
    off_policy: float = 1.0,
    ranked: bool = True,
    failed: float = 0.0,
    top: float = 0.1,
    best: float = 1.0,
) -> Signal:
    """Signal: [83] R³ (arXiv 2601.19620), GRPO over the mixed group of fresh and replayed episodes.

    Replayed rows are multiplied by `off_policy`, whose value the paper's text does not give. ranked: groups without any
    success are scored by the structure of their entropies (`r3_score`, which has the other options); ranked=False does
    without token entropies. Use after `inject`. From text, there is no code.
    """
    r = r3_score(score, failed=failed, top=top, best=best) if ranked else episode_score(score)
    return modulate(standardise(r, over="group", unit="episode"), off_policy, where=replayed)


# -- hints ------------------------------------------------------------------------------------------------------------


@register()
def hint_ratio(
    score: SignalLike | None = None,
    *,
    hinted: SignalLike = "hinted",
    low: float = 0.1,
    high: float = 0.7,
    noise: SignalLike = 0.0,
) -> Signal:
    """Signal: share of the reference to show, (high - low)·D + low + noise in [0, 1]; D = 1 - mean score without hints.

    Missing in a group without an episode that was played without a hint.
    """
    naive = mean(episode_score(score), over="group", unit="episode", where=as_signal(hinted) == 0.0)
    return clip(low + (high - low) * (1.0 - naive) + as_signal(noise), low=0.0, high=1.0)


def hint_prefix(reference: Sequence[Item], ratio: float) -> Sequence[Item]:
    """First part of a reference solution (tokens, actions, text), a share `ratio` of it, rounded to whole items.

    Raises:
        InputError: the ratio is outside [0, 1].

    >>> hint_prefix([3, 1, 4, 1, 5, 9, 2, 6], 0.55)
    [3, 1, 4, 1]
    """
    if not 0 <= ratio <= 1:
        raise InputError(f"hint_prefix: ratio={ratio} is outside [0, 1]")
    return reference[: int(ratio * len(reference) + 0.5)]


@register()
def adhint(
    score: SignalLike | None = None,
    *,
    hinted: SignalLike = "hinted",
    hint: SignalLike = "hint",
    entropy: SignalLike = "entropies",
    sharpness: float = 1.0,
    cap: float = 1.0,
) -> Signal:
    """Signal: [75] ADHint (2512.13095), GRPO apart for hinted and naive episodes, weighted by difficulty; hints' less.

    Difficulty: successes without and failures despite a hint count 1 + (p_hinted - p_naive) times, the difference of
    the success rates cut to [0, cap]. Consistency: on forced parts (`hint`, a flag per token or per turn), times
    exp(-sharpness·|entropy - mean entropy of the episode's own part|). Preservation: forced parts with a negative
    advantage get 0, so that a right prefix is never unlearned. Difficulty is a reconstruction, the rest secondary text.
    """
    r, shown, forced = episode_score(score), as_signal(hinted), as_signal(hint)
    own = standardise(r, over=("group", shown), unit="episode")
    rates = [mean(r, over="group", unit="episode", where=shown == branch) for branch in (1.0, 0.0)]
    gap = fill_missing(clip(rates[0] - rates[1], low=0.0, high=cap), 0.0)
    credit = modulate(own, 1.0 + gap, where=where(shown, own < 0.0, own > 0.0))
    typical = fill_missing(mean(entropy, over="episode", where=forced == 0.0), entropy)
    consistent = exp(-sharpness * absolute(as_signal(entropy) - typical))
    return modulate(credit, where(credit < 0.0, 0.0, consistent), where=forced)
