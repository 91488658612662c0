"""Questions to files that a scorer or a policy answers: `palaestra analyze 'rerank("…")' CANDIDATES`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.scripted import ScriptedPolicy
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.foundation.registry import load_object, read_call
from palaestra.judges.best_of import judge_forms
from palaestra.judges.endpoint import Budget, Endpoint
from palaestra.judges.judged import Asker, Judged, PolicyAsker
from palaestra.judges.metrics import Metric, cluster, coverage, ground, induce, match
from palaestra.judges.scorers import build
from palaestra.judges.search import listwise
from palaestra.judges.templates import own_prompts


@ANALYSES.register("rerank")
def rerank(
    scorer: str, *, score: str = "score", by: str = "query", window: int = 20, step: int = 10, cover_head: bool = True
) -> Analysis:
    """Makes an analysis (candidates file -> table): reranks each query's rows by a scorer, as column `place` from 0.

    A sliding window moves over the order of a first score.

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


def _asker(what: str, policy: str | None, model: str | None, options: dict[str, Any]) -> Asker:
    """Whoever answers: `module:name(…)`, or a model at an endpoint."""
    if (policy is None) == (model is None):
        raise InputError(f"{what}: give a policy, module:name(…), or model=… of an endpoint")
    if model is not None:
        return Endpoint(model, **options)
    name, values, named = read_call(str(policy), "palaestra.judges.scripted:reviewer()")
    return PolicyAsker(ScriptedPolicy(load_object(name, "policy")(*values, **named), name=name))


@ANALYSES.register("induce_metrics")
def induce_metrics(
    policy: str | None = None,
    *,
    rounds: int = 10,
    held_out: float = 0.3,
    model: str | None = None,
    instructions: Mapping[str, str] | None = None,
    **endpoint: Any,
) -> Analysis:
    """Makes an analysis (file of transcript, feedback -> table per round): a model induces metrics, AutoLibra [149].

    Args:
        policy: `module:name(…)` of who reads the feedback, instead of a model.
        rounds: most rounds.
        held_out: share of the rows, the last ones, of whose aspects `held_out` is the share that is covered at the end.
        model: name of the model at an `Endpoint`.
        instructions: Jinja templates of the questions `ground`, `cluster` and `match`, or their files `….j2`.
        **endpoint: further options of `Endpoint`: `base_url`, `api_key_env`, and `ledger`, a file in which its answers
            are kept, so that none is paid for twice.
    """
    own = own_prompts(instructions, ("ground", "cluster", "match"), "induce_metrics")

    def answer(feedback: Path) -> pl.DataFrame:
        rows = table(feedback, "transcript", "feedback")
        asker = _asker("induce_metrics", policy, model, endpoint)
        shown = pl.DataFrame({"prompt": [""] * len(rows), "response": rows["transcript"]})
        aspects = ground(rows["transcript"].to_list(), rows["feedback"].to_list(), asker, own=own).drop_nulls("sign")

        def rated(metrics: list[Metric]) -> pl.DataFrame:
            said = Judged([each.item() for each in metrics], asker).verdicts(shown)
            return said.select(episode=pl.col("item").cast(pl.Int32), metric="criterion", rating="value")

        def matched(some: pl.DataFrame, ratings: pl.DataFrame) -> pl.DataFrame:
            return match(some, ratings, asker, own=own)

        learned = pl.col("episode") < round(len(rows) * (1 - held_out))
        seen, new = aspects.filter(learned), aspects.filter(~learned)
        found = induce(
            seen,
            lambda open_, known: cluster(open_, known, asker, own=own),
            lambda metrics: rated(metrics).filter(learned),
            matched,
            rounds=rounds,
        )
        covered = coverage(matched(new, rated(found.metrics))) if found.metrics and len(new) else None
        if isinstance(asker, Endpoint):
            asker.ledger.close()
        return found.history.with_columns(held_out=pl.lit(covered, pl.Float64))

    return answer


@ANALYSES.register("judge_forms")
def forms(
    policy: str | None = None,
    *,
    model: str | None = None,
    seed: int = 0,
    ledger: str | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    price: float | None = None,
    instructions: Mapping[str, str] | None = None,
    **endpoint: Any,
) -> Analysis:
    """Makes an analysis (PROMPTS file -> table per form and domain): best-of-k accuracy of a judge in two forms.

    Asked to choose the best of all answers, in random order, and to rate each; RewardBench 2 [217]. See
    `palaestra.judges.best_of.judge_forms`.

    Columns of PROMPTS: `prompt`, `chosen`, `rejected`, and maybe `subset` and `id`.

    Args:
        policy: `module:name(…)` of who judges, instead of a model.
        model: name of the model at an `Endpoint`.
        seed: of the order of the answers.
        ledger: file in which the answers are kept, so that none is paid for twice; none: nothing is kept. Default:
            beside PROMPTS.
        calls: most requests of the ledger (`Budget`).
        tokens: most tokens of the ledger.
        price: most that the ledger may cost.
        instructions: Jinja templates of the questions `best` and `rated`, or their files `….j2`.
        **endpoint: further options of `Endpoint`: `base_url`, `api_key_env`, `max_tokens`, `price_in` …
    """
    own = own_prompts(instructions, ("best", "rated"), "judge_forms")

    def answer(prompts: Path) -> pl.DataFrame:
        rows = table(prompts, "prompt", "chosen", "rejected")
        kept = str(prompts.with_suffix(".calls.sqlite") if ledger is None else ledger)
        kept_in = None if kept.casefold() == "none" else kept
        budget = Budget(calls, tokens, price)
        asker = _asker("judge_forms", policy, model, {**endpoint, "ledger": kept_in, "budget": budget})
        found = judge_forms(rows, asker, seed=seed, own=own)
        if isinstance(asker, Endpoint):
            asker.ledger.close()
        return found

    return answer
