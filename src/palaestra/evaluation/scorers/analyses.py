"""Questions about scorers by name, to tables and to the files of benchmarks: `palaestra analyze best_of_k SCORES`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents.scripted import ScriptedPolicy
from palaestra.errors import InputError, need_columns
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.intervals import Estimate
from palaestra.evaluation.scorers import agreement as agree
from palaestra.evaluation.scorers.files import Steps, read_scores
from palaestra.evaluation.scorers.groups import Credit, Missing, Ties, best_of_k_accuracy, protocols, strict_accuracy
from palaestra.evaluation.scorers.groups import comparisons as compared
from palaestra.evaluation.scorers.groups import reciprocal_rank as ranked
from palaestra.evaluation.scorers.rewardbench import domain_scores
from palaestra.evaluation.scorers.verdict_table import Correlation, rank_correlation
from palaestra.evaluation.scorers.verdict_table import confusion as confused
from palaestra.foundation.registry import load_object, read_call
from palaestra.judges.judged import Judged, PolicyAsker
from palaestra.judges.metrics import Metric, cluster, coverage, ground, induce, match
from palaestra.judges.scorers import build
from palaestra.judges.search import listwise


def _scores(path: Path, steps: Steps = "min") -> pl.DataFrame:
    found = read_scores(path, steps=steps)
    return table(path) if found is None else found


def _row(found: Estimate) -> pl.DataFrame:
    kept = {name: value for name, value in found.to_dict().items() if name not in ("runs", "clusters", "method")}
    return pl.DataFrame([kept])


@ANALYSES.register("best_of_k")
def best_of_k(
    credit: Credit = "fraction", *, missing: Missing = "leave", steps: Steps = "min", each: str | None = None
) -> Analysis:
    """Would the best of k by this score be right? SCORES with group, score, correct, or a benchmark's own file.

    each: a column, such as the scorer; there is a row for each of its values.
    """

    def answer(scores: Path) -> pl.DataFrame:
        rows = _scores(scores, steps)
        if each is None:
            return _row(best_of_k_accuracy(rows, credit=credit, missing=missing))
        need_columns("best_of_k", rows.columns, [each])
        return pl.concat(
            _row(best_of_k_accuracy(part, credit=credit, missing=missing)).select(pl.lit(name).alias(each), pl.all())
            for (name,), part in rows.group_by(each, maintain_order=True)
        )

    return answer


@ANALYSES.register("strict")
def strict(ties: Ties = "against", *, steps: Steps = "min") -> Analysis:
    """How often does the right answer beat every wrong one? SCORES with group, score, correct, or RewardMATH's file."""
    return lambda scores: _row(strict_accuracy(_scores(scores, steps), ties=ties))


@ANALYSES.register("reciprocal_rank")
def reciprocal_rank(ties: Ties = "against", *, steps: Steps = "min") -> Analysis:
    """Mean of 1 / rank of the right answer: SCORES with group, score, correct, or RewardMATH's file."""
    return lambda scores: _row(ranked(_scores(scores, steps), ties=ties))


@ANALYSES.register("scorer_protocols")
def scorer_protocols(*, missing: Missing = "leave", steps: Steps = "min") -> Analysis:
    """One scorer by all protocols: SCORES with group, score, correct, or RewardMATH's file, of a pairwise judge too."""

    def answer(scores: Path) -> pl.DataFrame:
        rows = _scores(scores, steps)
        return protocols(rows) if "score" in rows.columns else compared(rows, missing=missing)

    return answer


@ANALYSES.register("rewardbench")
def rewardbench(*, missing: Missing = "leave", seed: int = 0) -> Analysis:
    """Score of each domain of RewardBench 2 and their mean: the file of SCORES that its own scripts write."""

    def answer(scores: Path) -> pl.DataFrame:
        rows = read_scores(scores)
        if rows is None or "domain" not in rows.columns:
            raise InputError(f"{scores}: no scores of RewardBench 2: they have scores, num_correct, id and subset")
        return domain_scores(rows, missing=missing, seed=seed)

    return answer


@ANALYSES.register("alpha")
def alpha(
    measure: agree.Level = "nominal", *, item: str = "item", judge: str = "judge", value: str = "value"
) -> Analysis:
    """Krippendorff's alpha of the judges of VERDICTS (item, judge, value): nominal, ordinal or interval."""

    def answer(verdicts: Path) -> pl.DataFrame:
        wide = table(verdicts, item, judge, value).pivot(on=judge, index=item, values=value, aggregate_function="mean")
        return _row(agree.krippendorff_alpha(wide.drop(item).cast(pl.Float64).to_numpy().T, measure=measure))

    return answer


@ANALYSES.register("kappa")
def kappa(a: str = "a", b: str = "b", *, weights: agree.Weights | None = None) -> Analysis:
    """Cohen's kappa, weighted too, of two judges: VERDICTS with a column of each."""

    def answer(verdicts: Path) -> pl.DataFrame:
        both = table(verdicts, a, b)
        return _row(agree.cohen_kappa(both[a].to_list(), both[b].to_list(), weights=weights))

    return answer


@ANALYSES.register("confusion")
def confusion(action: str = "action", accepted: str = "accepted", *, action_null_ok: bool = True) -> Analysis:
    """Was it right to act, and right to stay silent? EVENTS with action (null is silence) and accepted."""

    def answer(events: Path) -> pl.DataFrame:
        found = confused(
            table(events, action, accepted), action=action, accepted=accepted, action_null_ok=action_null_ok
        )
        counts = {name: getattr(found, name) for name in ("tp", "fp", "tn", "fn", "missing")}
        return found.table().with_columns(**{name: pl.lit(n) for name, n in counts.items()})

    return answer


@ANALYSES.register("rerank")
def rerank(
    scorer: str, *, score: str = "score", by: str = "query", window: int = 20, step: int = 10, cover_head: bool = True
) -> Analysis:
    """CANDIDATES (a query and a first score) ordered anew by a scorer that sees a window of them at a time: `place`.

    DeAR's second stage [134] (arXiv 2508.16998). The scorer may be a judge that compares what it is shown.
    """
    made = build(scorer)

    def answer(candidates: Path) -> pl.DataFrame:
        rows = table(candidates, by, score)
        place = np.zeros(len(rows), np.int64)
        for _, part in rows.with_row_index("row").group_by(by, maintain_order=True):
            first = part.sort(score, descending=True, nulls_last=True, maintain_order=True)["row"].to_list()

            def ranked(shown: list[int]) -> list[int]:
                value = made.score(rows[shown]).cast(pl.Float64).fill_null(-np.inf).to_numpy()
                return [shown[at] for at in np.argsort(-value, kind="stable")]

            order = listwise(first, ranked, window, step, cover_head=cover_head)
            place[order] = np.arange(len(order))
        return rows.with_columns(place=pl.Series(place))

    return answer


@ANALYSES.register("induce_metrics")
def induce_metrics(policy: str, *, rounds: int = 10, held_out: float = 0.3) -> Analysis:
    """Metrics out of FEEDBACK (transcript, feedback) by a policy, `module:name(…)`, a row per round: AutoLibra [149].

    held_out: the last rows, of whose aspects `held_out` is the share that the metrics of the end cover.
    """
    name, values, options = read_call(policy, "palaestra.judges.scripted:reviewer()")
    play = load_object(name, "policy")(*values, **options)

    def answer(feedback: Path) -> pl.DataFrame:
        rows = table(feedback, "transcript", "feedback")
        asker = PolicyAsker(ScriptedPolicy(play, name=name))
        shown = pl.DataFrame({"prompt": [""] * len(rows), "response": rows["transcript"]})
        aspects = ground(rows["transcript"].to_list(), rows["feedback"].to_list(), asker).drop_nulls("sign")

        def rated(metrics: list[Metric]) -> pl.DataFrame:
            said = Judged([each.item() for each in metrics], asker).verdicts(shown)
            return said.select(episode=pl.col("item").cast(pl.Int32), metric="criterion", rating="value")

        def matched(some: pl.DataFrame, ratings: pl.DataFrame) -> pl.DataFrame:
            return match(some, ratings, asker)

        learned = pl.col("episode") < round(len(rows) * (1 - held_out))
        seen, new = aspects.filter(learned), aspects.filter(~learned)
        found = induce(
            seen, lambda open_, known: cluster(open_, known, asker),
            lambda metrics: rated(metrics).filter(learned), matched, rounds=rounds,
        )  # fmt: skip
        covered = coverage(matched(new, rated(found.metrics))) if found.metrics and len(new) else None
        return found.history.with_columns(held_out=pl.lit(covered, pl.Float64))

    return answer


@ANALYSES.register("predicts")
def predicts(metric: str = "metric", downstream: str = "downstream", *, kind: Correlation = "spearman") -> Analysis:
    """Does a metric of scorers predict what they are for? SCORERS with a column of each, a row per scorer."""

    def answer(scorers: Path) -> pl.DataFrame:
        rows = table(scorers, metric, downstream)
        return _row(rank_correlation(rows[metric], rows[downstream], kind=kind))

    return answer
