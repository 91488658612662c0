"""Indicators of typical errors from messages that failed: a model writes one for each, and similar ones are dropped.

AgentDropoutV2's offline part ([111], arXiv 2602.23258), whose file `audited(audit="pool(…)")` reads. A new indicator
joins the pool if no definition in it is similar; where one is, the model decides whether both are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.agents.chat import ChatPolicy
from palaestra.agents.policy import Policy
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.envs.replies import read_reply
from palaestra.errors import InputError, PolicyError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.logs import read_logs
from palaestra.foundation.registry import load_object, read_call
from palaestra.judges.asking import Reply, replies
from palaestra.judges.judged import text_of
from palaestra.judges.kept_calls import KeptAnswers
from palaestra.judges.ledger import Ledger
from palaestra.judges.reading import fenced
from palaestra.judges.templates import own_prompts, write_prompt
from palaestra.teams.indicators import Indicator, most_alike, read_indicators, write_indicators

SIMILAR = 0.65
"""Similarity of definitions from which on two indicators may be the same, as published."""
COLUMNS = {
    "name": pl.String,
    "definition": pl.String,
    "trigger": pl.String,
    "risk": pl.String,
    "kept": pl.Boolean,
    "similar_to": pl.String,
    "similarity": pl.Float64,
    "error": pl.String,
    "tokens": pl.Int64,
    "cost": pl.Float64,
}
"""A row for each failed message: its indicator, whether it joined the pool, and what the calls took."""


def failed_messages(rows: pl.DataFrame, threshold: float = 1.0) -> pl.DataFrame:
    """Table of the distinct failed messages of turns: prompt, response, and `expected`, a right answer if one is known.

    Failed are rows whose `score` is below the threshold; without that column, those whose `success` is false; without
    either, all of them. A row without a value did not fail.
    """
    failed = pl.lit(value=True)
    if "score" in rows.columns:
        failed = pl.col("score").cast(pl.Float64) < threshold
    elif "success" in rows.columns:
        failed = ~pl.col("success").cast(pl.Boolean)
    rows = rows.filter(failed.fill_null(value=False))
    prompts, responses = text_of(rows, "prompt", needed=False), text_of(rows, "response")
    expected = rows["expected"].cast(pl.String) if "expected" in rows.columns else [None] * len(rows)
    texts = {"prompt": prompts, "response": responses, "expected": expected}
    found = pl.DataFrame(texts, dict.fromkeys(texts, pl.String))
    return found.filter(pl.col("response") != "").unique(["prompt", "response"], keep="first", maintain_order=True)


def indicators_of(
    failed: pl.DataFrame,
    writer: Policy,
    known: Sequence[Indicator] = (),
    *,
    similarity: float = SIMILAR,
    decide: bool = True,
    own: Mapping[str, str] | None = None,
) -> tuple[list[Indicator], pl.DataFrame]:
    """Indicators that a policy writes of failed messages: (list of the pool, `known` first; table of `COLUMNS`).

    Args:
        failed: as `failed_messages` gives it.
        writer: who is asked, once about each message; a reply that cannot be read is asked for once more.
        known: the pool so far.
        similarity: one whose definition is less similar than this to all of the pool joins it unasked.
        decide: the policy is asked whether a similar one says the same; else it is dropped.
        own: templates in place of the shipped prompts `indicator` and `same_indicator`.

    Raises:
        PolicyError: there were messages, and no reply to any of them.
    """
    prompts = [
        write_prompt("indicator", {"task": fenced(task), "response": fenced(said), "expected": right}, own)
        for task, said, right in failed.select("prompt", "response", "expected").iter_rows()
    ]
    said = _asked(writer, prompts, read_indicator, Indicator._fields)
    if said and all(each.text is None for each in said):
        raise PolicyError(f"{writer.name}: no indicator of {len(said)} messages: {said[-1].error or 'no reply'}")
    pool, rows = list(known), []
    for each in said:
        made = None if each.text is None else read_indicator(each.text)
        row: dict[str, Any] = {"kept": False, "error": each.error, "tokens": _tokens(each), "cost": each.cost}
        rows.append(row)
        if made is None:
            row["error"] = each.error or "the reply is no indicator"
            continue
        row |= made._asdict()
        alike, near = most_alike(made.definition, pool) if pool else (None, 0.0)
        row["similarity"] = near if pool else None
        if alike is not None and near >= similarity:
            row["similar_to"] = alike.name
            if not decide:
                continue
            values = {"known": _said(alike), "known_trigger": alike.trigger}
            values |= {"new": _said(made), "new_trigger": made.trigger}
            (told,) = _asked(writer, [write_prompt("same_indicator", values, own)], read_same, ("same",))
            row |= {"tokens": row["tokens"] + _tokens(told), "cost": row["cost"] + told.cost}
            same = None if told.text is None else read_same(told.text)
            if same is None:
                row["error"] = told.error or "the reply does not say whether they are the same"
            if same is not False:
                continue
        made = made._replace(name=_free(made.name, pool))
        pool.append(made)
        row |= {"kept": True, "name": made.name}
    return pool, pl.DataFrame(rows, COLUMNS)


def read_indicator(reply: str) -> Indicator | None:
    r"""Parse a reply as an `Indicator`, from JSON or a line for each field; None if one but the risk is missing.

    >>> read_indicator("Name: carry\nDefinition: The carry is lost.\nTrigger: sums\nRisk: too small").risk
    'too small'
    """
    found = []
    for name in Indicator._fields:
        part = read_reply(reply, name, until=[each for each in Indicator._fields if each != name])
        found.append(" ".join(part.text.split()) if part.form in ("json", "line") else "")
    return Indicator(*found) if all(found[:3]) else None


def read_same(reply: str) -> bool | None:
    """Parse a reply's field or line `Same: yes` or `no`; None if it says neither.

    >>> read_same('{"same": "No"}'), read_same("They are the same.")
    (False, None)
    """
    part = read_reply(reply, "same")
    said = part.text.casefold().rstrip(". ") if part.form in ("json", "line") else ""
    return {"yes": True, "true": True, "no": False, "false": False}.get(said)


@ANALYSES.register("extract_indicators")
def extract_indicators(
    path: str,
    policy: str | None = None,
    *,
    model: str | None = None,
    similarity: float = SIMILAR,
    decide: bool = True,
    most: int | None = None,
    threshold: float = 1.0,
    instructions: Mapping[str, str] | None = None,
    ledger: str | None = None,
    **endpoint: Any,
) -> Analysis:
    """Makes an analysis (TURNS, file or folder -> table per failed message): indicators of typical errors, [111].

    Those that are new join the file `path`, which `audited(audit="pool('…')")` reads; what stands there stays.

    Args:
        path: file of indicators, made or extended.
        policy: `module:name(…)` of who writes the indicators, instead of a model.
        model: name of a chat model at an endpoint.
        similarity: definitions that are less similar are new.
        decide: a second call decides about a similar one; else it is dropped.
        most: so many failed messages are asked about, the first ones; None: all.
        threshold: a `score` below it is a failure; without scores `success` counts.
        instructions: Jinja templates of the questions `indicator` and `same_indicator`, or their files `….j2`.
        ledger: file in which the model's answers are kept, so that none is paid for twice.
        **endpoint: further options of `ChatPolicy`: `base_url`, `api_key_env`, `price_in`; `temperature` is 0.

    Raises:
        InputError: none or both of policy and model, or a policy with options of a model.
    """
    own = own_prompts(instructions, ("indicator", "same_indicator"), "extract_indicators")
    if (policy is None) == (model is None):
        raise InputError("extract_indicators: give a policy, module:name(…), or model=… of an endpoint")
    if policy is not None and (ledger is not None or endpoint):
        given = ", ".join([*endpoint, *(["ledger"] if ledger is not None else [])])
        raise InputError(f"extract_indicators: {given}: options of model=…, not of policy={policy!r}")
    if not 0 <= similarity <= 1 or (most is not None and most < 1):
        raise InputError(f"extract_indicators: {similarity=} must be from 0 to 1, {most=} at least 1 or null")
    made = None if model is None else ChatPolicy(model, **{"temperature": 0.0, **endpoint})

    def answer(turns: Path) -> pl.DataFrame:
        rows = read_logs(turns).turns.frame if turns.is_dir() else table(turns)
        failed = failed_messages(rows, threshold)[:most]
        known = read_indicators(path) if Path(path).exists() else []
        kept = None
        if made is not None and ledger is not None:
            kept = Ledger(ledger)
            made.keeper = KeptAnswers(kept)
        try:
            found, told = indicators_of(
                failed, made or _scripted(str(policy)), known, similarity=similarity, decide=decide, own=own
            )
        finally:
            if kept is not None:
                kept.close()
        write_indicators(path, found)
        return told

    return answer


def _scripted(text: str) -> Policy:
    name, values, named = read_call(text)
    return ScriptedPolicy(load_object(name, "policy")(*values, **named), name=name)


def _asked(policy: Policy, prompts: Sequence[str], read: Callable[[str], Any], fields: Sequence[str]) -> list[Reply]:
    asked = [(each, 0) for each in prompts]
    return replies(policy, asked, [read] * len(asked), agent="writer", fields=tuple(fields)) if asked else []


def _said(indicator: Indicator) -> str:
    return f"{indicator.name}: {indicator.definition}"


def _tokens(reply: Reply) -> int:
    return reply.tokens_in + reply.tokens_out


def _free(name: str, pool: Sequence[Indicator]) -> str:
    """The name, with a number if another indicator has it."""
    taken = {each.name for each in pool}
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)
