"""Coordination metrics of [79] (arXiv 2512.08296): cost, benefit, flips of opinion, overruled members.

Against a baseline, one agent on the same tasks. Error amplification counts errors in traces, here wrong answers of
turns; the ratio of failure rates is another number (1.18 where the paper's count says 17.2). The law over benchmarks is
`palaestra.evaluation.teamwork.scaling_law`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.messages import EPISODE
from palaestra.algebra.messages import messages as read
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest, need_columns


def coordination(
    turns: Turns, messages: pl.DataFrame | None = None, *, baseline: str, by: str = "system"
) -> pl.DataFrame:
    """Table per system of `Turns`: cost and benefit against system `baseline`: turns, overhead, efficiency, success.

    Returns: a row for each: success, turns, overhead, efficiency, density, redundancy, failure_ratio,
        error_amplification, success_per_1k.

    turns: mean per episode. overhead: (turns - turns of the baseline) / those, as a share. efficiency: success /
    (turns / turns of the baseline). density: messages that were kept per turn. redundancy: share of answers that
    had been given in the episode before (the paper also defines it by embeddings). failure_ratio: failures / failures
    of the baseline. error_amplification: turns of an episode whose `score` is below 1 / those of the baseline, if turns
    have scores. success_per_1k: solved episodes per thousand tokens. What is missing leaves its column: turns without
    an answer, episodes of unknown success or tokens.

    messages: default: those that the turns tell, if they do. Others need the column `by` where systems have episodes of
    the same numbers.

    Raises:
        MissingColumnError, InputError: no `by` or `success`, nobody is the baseline, or whose a message is, is unclear.
    """
    need_columns("coordination", turns.columns, (by, "success", "episode"))
    frame = turns.frame
    keys = [key for key in EPISODE if key in frame.columns]
    tokens = pl.col("tokens_out").cast(pl.Float64) if "tokens_out" in frame.columns else pl.lit(None, pl.Float64)
    said = "answer" if "answer" in frame.columns else "action" if "action" in frame.columns else None
    given, nothing = pl.col("_said").drop_nulls(), pl.lit(None, pl.Int64)
    repeated = given.len() - given.n_unique() if said else nothing
    score = pl.col("score").cast(pl.Float64).fill_nan(None) if "score" in frame.columns else pl.lit(None, pl.Float64)
    wrong = pl.when(pl.col("_score").count() > 0).then((pl.col("_score") < 1).sum())
    rows = frame.select(
        by,
        *(name for name in (*keys, "agent", "turn") if name in frame.columns and name != by),
        pl.col("success").cast(pl.Float64),
        _tokens=tokens,
        _said=pl.col(said) if said else nothing,
        _score=score,
    )
    if {"agent", "turn", "tool"} <= set(frame.columns):  # a turn with several calls of tools has a row for each
        known = pl.col("_said", "_score").drop_nulls().first()
        own = pl.when(pl.col("_tokens").count() > 0).then(pl.col("_tokens").sum())
        each = dict.fromkeys((by, *keys, "agent", "turn"))
        rows = rows.group_by(*each, maintain_order=True).agg(pl.col("success").max(), known, own)
    episodes = rows.group_by(by, *keys, maintain_order=True).agg(
        pl.len().alias("_turns"),
        pl.col("success").max(),
        pl.when(pl.col("_tokens").null_count() == 0).then(pl.col("_tokens").sum()),
        _answers=given.len() if said else nothing,
        _repeated=repeated,
        _wrong=wrong,
    )
    priced = pl.col("_tokens").is_not_null() & pl.col("success").is_not_null()
    spent = pl.col("_tokens").filter(priced).sum()
    table = episodes.group_by(by, maintain_order=True).agg(
        pl.col("success").mean(),
        turns=pl.col("_turns").mean(),
        redundancy=pl.when(pl.col("_answers").sum() > 0).then(pl.col("_repeated").sum() / pl.col("_answers").sum()),
        success_per_1k=pl.when(spent > 0).then(1000 * pl.col("success").filter(priced).sum() / spent),
        _all=pl.col("_turns").sum(),
        _wrong=pl.col("_wrong").mean(),
    )
    one = table.filter(pl.col(by).cast(pl.String) == baseline)
    if not len(one):
        names = table[by].cast(pl.String).to_list()
        raise InputError(f"coordination: baseline={baseline!r} is in no row of {by!r}{nearest(baseline, names)}")
    sent = _sent(frame, messages, by, keys)
    table = table.join(sent, on=by, how="left", maintain_order="left") if sent is not None else table.with_columns(
        _sent=pl.lit(None, pl.Int64)
    )  # fmt: skip
    base, errors = one["turns"][0], one["_wrong"][0]
    failed = 0.0 if one["success"][0] is None else 1 - one["success"][0]
    return table.select(
        by,
        "success",
        "turns",
        overhead=pl.col("turns") / base - 1,
        efficiency=pl.col("success") * base / pl.col("turns"),
        density=pl.col("_sent").fill_null(0) / pl.col("_all") if sent is not None else pl.lit(None, pl.Float64),
        redundancy="redundancy",
        failure_ratio=(1 - pl.col("success")) / failed if failed > 0 else pl.lit(None, pl.Float64),
        error_amplification=pl.col("_wrong") / errors if errors else pl.lit(None, pl.Float64),
        success_per_1k="success_per_1k",
    )


def _sent(frame: pl.DataFrame, messages: pl.DataFrame | None, by: str, keys: Sequence[str]) -> pl.DataFrame | None:
    """Messages that were kept, by system."""
    if messages is None:
        if not {"heard", "heard_turn"} <= set(frame.columns):
            return None
        parts = frame.partition_by(by, as_dict=True, maintain_order=True).items()
        own = (read(Turns(part)).with_columns(pl.lit(name).cast(frame.schema[by]).alias(by)) for (name,), part in parts)
        messages = pl.concat(own)
    kept = messages.filter(pl.col("kept")) if "kept" in messages.columns else messages
    of = frame.select(by, *keys).unique()
    on = [by, *keys] if by in kept.columns else list(keys)
    if of.select(on).is_duplicated().any():
        raise InputError(
            f"coordination: {by}s have episodes of the same {', '.join(keys)}; give messages a column {by!r}"
        )
    return kept.join(of, on=on, nulls_equal=True).group_by(by).agg(pl.len().alias("_sent"))


def turn_law(members: Sequence[float], turns: Sequence[float]) -> tuple[float, float]:
    """(c, k) of turns = c · (n + 1/2)^k, fitted to teams of n members by least squares of logarithms.

    The paper's means give 2.72 and 1.724.

    Raises:
        InputError: fewer than two points, or a number of turns that is not above 0.
    """
    n, t = np.asarray(members, float), np.asarray(turns, float)
    if len(n) != len(t) or len(n) < 2 or (t <= 0).any() or (n < 0).any():
        raise InputError(f"turn_law: {len(n)} teams with {len(t)} numbers of turns: give two at least, all above 0")
    slope, offset = np.polyfit(np.log(n + 0.5), np.log(t), 1)
    return float(np.exp(offset)), float(slope)


def flips(turns: Turns, *, score: str = "score", right: float = 1.0, by: str | None = None) -> pl.DataFrame:
    """Table, a row per turn of `Turns`: counts of agents that stayed_right, stayed_wrong, went to_right, to_wrong.

    Counts over all episodes and agents, by the later turn. In a debate without a bias to the truth as many turn wrong
    as right, in the mean ([118], arXiv 2505.22960). overruled_right: turns that were right in an episode that failed.
    A turn without a score is neither right nor wrong, and neither is what comes from it or to it. by: a column whose
    values are counted apart, such as how hard the task is.

    Raises:
        MissingColumnError: there is no such column.
    """
    need_columns("flips", turns.columns, [score, *([by] if by else [])])
    kinds = [by] if by else []
    frame = turns.frame.select(
        pl.Series("_episode", turns.codes("episode").ids),
        pl.col("agent").cast(pl.String),
        "turn",
        *kinds,
        _now=pl.col(score).cast(pl.Float64).fill_nan(None) >= right,
        _lost=~pl.col("success") if "success" in turns.columns else pl.lit(False),
    )
    apart = ["_episode", *kinds]
    frame = frame.with_columns(pl.col("_lost").any().over(apart))  # a log may say it on the last row alone
    said = frame.group_by(*apart, "agent", "turn").agg(pl.col("_now").drop_nulls().last(), pl.col("_lost").first())
    said = said.sort("_episode", "agent", "turn")  # of parallel calls of tools one row has the score
    moved = said.with_columns(_then=pl.col("_now").shift(1).over(*apart, "agent"))
    now, then = pl.col("_now"), pl.col("_then")
    return (
        moved.group_by(*kinds, "turn")
        .agg(
            stayed_right=(now & then).sum(),
            stayed_wrong=(~now & ~then).sum(),
            to_right=(now & ~then).sum(),
            to_wrong=(~now & then).sum(),
            overruled_right=(now & pl.col("_lost")).sum(),
        )
        .sort(*kinds, "turn")
    )
