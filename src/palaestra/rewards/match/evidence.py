"""Evidence: which rows an episode rests on, what a judge is shown of it, and rewards for choosing it well.

Evidence is a list column of turns of the same episode. Left out: verifiers and rerankers; their verdicts are columns.
"""

from __future__ import annotations

import polars as pl

from palaestra.algebra.keys import is_last, on_last
from palaestra.algebra.signals import (
    Signal,
    SignalLike,
    as_signal,
    fill_missing,
    is_in,
    is_missing,
    lowest,
    mean,
    register,
    total,
    where,
)
from palaestra.algebra.turns import Turns
from palaestra.errors import SchemaError, nearest
from palaestra.rewards.combine.mix import cascade
from palaestra.rewards.combine.mix import gate as gated
from palaestra.rewards.judged.votes import judge_votes
from palaestra.rewards.match.words import jaccard

EPISODE = ("run", "iteration", "group", "episode")


def semi_join(turns: Turns, references: pl.DataFrame | None = None, *, column: str = "evidence") -> Turns:
    """`Turns` with only the rows whose turn is cited in the evidence lists (`column`), to show to a judge.

    references: rows with an episode's key and a list of its turns in `column`, e.g. a table of criteria; left out, the
    table itself, where the row that submits holds the list.

    Raises:
        SchemaError: there is no such column of lists.
    """
    source = turns.frame if references is None else references
    if column not in source.columns or not isinstance(source.schema[column], pl.List):
        raise SchemaError(f"semi_join: needs a column {column!r} with lists of turns{nearest(column, source.columns)}")
    key = [name for name in EPISODE if name in source.columns and name in turns.columns]
    cited = source.select(*key, pl.col(column).alias("turn")).explode("turn").drop_nulls("turn")
    cited = cited.with_columns(pl.col(name).cast(turns.frame.schema[name]) for name in (*key, "turn"))
    return Turns(turns.frame.join(cited, on=[*key, "turn"], how="semi", nulls_equal=True, maintain_order="left"))


def drop_rejected(
    turns: Turns, rejected: SignalLike, *, text: str = "observation", label: str | None = None
) -> pl.Series:
    """Series of lists, one per row: the texts of the episode's earlier turns that were not rejected.

    rejected: mask of the rows whose text was judged useless. label: keep these too, with this in front (a soft mask).
    """
    marked = turns.with_column(rejected=as_signal(rejected)).frame.with_row_index("row")
    key = [name for name in EPISODE if name in turns.columns]
    no = pl.col("rejected").fill_null(False).cast(pl.Boolean)
    kept = marked.filter(~no) if label is None else marked
    shown = pl.col(text) if label is None else pl.when(no).then(pl.lit(label) + pl.col(text)).otherwise(pl.col(text))
    earlier = kept.select(*key, pl.col("turn").alias("then"), shown.alias("text"))
    pairs = marked.select("row", *key, "turn").join(earlier, on=key, nulls_equal=True)
    pairs = pairs.filter(pl.col("then") < pl.col("turn"))
    context = pairs.sort("row", "then").group_by("row", maintain_order=True).agg(pl.col("text"))
    found = marked.select("row").join(context, on="row", how="left", maintain_order="left")["text"]
    return found.fill_null(pl.Series([[]], dtype=pl.List(pl.String))).alias("context")


# -- named methods ----------------------------------------------------------------------------------------------------


@register()
def reseek_reward(
    judge: SignalLike,
    relevance: SignalLike,
    *,
    answer: SignalLike = 0.0,
    threshold: float = 0.7,
    match: float = 0.3,
    accepted: float = -0.6,
    rejected: float = -0.3,
) -> Signal:
    """Signal: [180] ReSeek, reward where `judge` is right on the search's `relevance`, plus `answer` on the last turn.

    arXiv 2510.00568.

    judge: 1 yes, 0 no, missing on turns that judge nothing (0 there). The right judgement is relevance > threshold;
    right earns `match`, a useless text accepted `accepted`, a useful one rejected `rejected`. So with a calibrated
    chance p of being useful it pays to accept from p = 0.6 on; with equal penalties from 0.5. relevance: of the text to
    the gold answer, a column. To be discounted with `return_to_go`. Constants from secondary text.
    """
    said = as_signal(judge)
    useful = as_signal(relevance) > threshold
    verdict = cascade(
        (is_missing(said), 0.0), ((said == 1.0) == useful, match), (said == 1.0, accepted), otherwise=rejected
    )
    return verdict + on_last(answer, over="episode")


@register()
def earl_reward(
    selected: str,
    gold: str,
    *,
    correct: SignalLike = "success",
    alpha: SignalLike = 0.1,
    beta: SignalLike = 0.5,
    threshold: float = 0.5,
) -> Signal:
    """Signal: [206] EARL, r_correct + α · 1[anything selected] + β · IoU of selected and gold evidence.

    arXiv 2510.15440.

    r_correct: 1 if right with IoU >= `threshold`, 0.5 if right otherwise, -1 if wrong. alpha, beta: numbers or
    schedules; the paper lowers α and raises β at some point of training: `two_phase(early, late, share=…, steps=…)`.
    selected, gold: list columns on the row that answers. Secondary text; α and β are those of the trial here.
    """
    right, iou = as_signal(correct) != 0.0, jaccard(selected, gold)
    any_selected = as_signal(pl.col(selected).list.len() > 0)
    answer = cascade((right & (iou >= threshold), 1.0), (right, 0.5), otherwise=-1.0)
    return answer + as_signal(alpha) * any_selected + as_signal(beta) * iou


@register()
def smart_snap_reward(
    evidence: str,
    *,
    success: str = "success_votes",
    valid: str = "valid_votes",
    free: int = 3,
    price: float = 0.1,
    tool: str = "tool",
    submit: str = "submit",
) -> Signal:
    """Signal: [152] SmartSnap, 1, 0 or -1 on the last turn by columns of a verifier's votes, less a price of evidence.

    arXiv 2512.22322.

    -1 unless there was one call of the tool `submit`, as the last, whose evidence (a list of turns, from 0) exists.
    Then 1 if more than half of the verdicts that came back say success, 0 if more than half find the evidence valid (it
    may prove a failure), else -1; minus price · (pieces of evidence beyond `free`). success, valid: list columns of
    verdicts, null where the verifier failed. Checked against the released code, whose reward differs from the sum of
    four terms in its README; its optional bonus for calling tools is left out.
    """
    last, called = is_last(over="episode"), is_in(tool, submit)
    calls = fill_missing(total(called, over="episode"), 0.0)
    pieces = pl.col(evidence).list
    unknown = as_signal(((pieces.min() < 0) | (pieces.max() > pl.col("turn"))).fill_null(False))  # turn: the last one
    surplus = as_signal(price * (pieces.len().cast(pl.Float64) - free).clip(0.0).fill_null(0.0))
    bad = (calls != 1.0) | ~fill_missing(called, False) | unknown
    verdicts = [fill_missing(judge_votes(each), False) for each in (success, valid)]
    graded = cascade((bad, -1.0), (verdicts[0], 1.0 - surplus), (verdicts[1], 0.0 - surplus), otherwise=-1.0 - surplus)
    return where(last, graded, 0.0)


@register()
def deep_travel_reward(gate: SignalLike, detail: SignalLike, *, strict: bool = False) -> Signal:
    """Signal: [191] DeepTravel, 0 unless the plan passes `gate`, else the share of its details that pass.

    arXiv 2509.21842.

    Paid once, on each agent's last turn; 0 on the others, so that a long plan earns no more than a short one.

    gate: a verdict on the trajectory, the same on each row of the episode. detail: verdicts on turns, missing where
    there is nothing to check; they need not be asked for where the gate fails. strict: all details must pass.
    Reconstruction.
    """
    details = lowest(detail, over="episode") if strict else mean(detail, over="episode")
    return on_last(gated(gate, details))
