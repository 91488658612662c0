"""How often a judge finds the right one of several answers, asked in two forms: choose the best, or rate each alone.

RewardBench 2 (arXiv 2506.01937) reports the better form of each judge. The right answer stands first in its files, so
the ranking form shows the answers in a random order. The wording of the questions is this project's own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.scorers import domain_scores
from palaestra.judges.asking import Read, Reply
from palaestra.judges.judged import Asker, PolicyAsker
from palaestra.judges.reading import fenced, read_letter, read_rating
from palaestra.judges.templates import write_prompt

Own = Mapping[str, str] | None
"""Templates in place of the prompts `best` and `rated`, see `palaestra.judges.templates.write_prompt`."""
FORMS = ("ranking", "rating")
MOST = 26
"""Answers that have a letter."""


class Prompt(NamedTuple):
    """Data of one prompt of a benchmark: its domain, id, task and answers, of which the first `right` are right."""

    domain: str
    id: str
    task: str
    answers: list[str]
    right: int

    @property
    def ties(self) -> bool:
        """Whether it is of RewardBench 2's domain Ties, where several answers may be right."""
        return self.domain.lower() == "ties"


class Scored(NamedTuple):
    """Result data of one prompt: a score per answer, None without one, the judge's replies, how many were `unread`."""

    scores: list[float | None]
    replies: list[Reply]
    unread: int


def read_prompts(rows: pl.DataFrame) -> list[Prompt]:
    """List of `Prompt` of rows `prompt`, `chosen`, `rejected` (a text or a list of them), and maybe `subset` and `id`.

    Raises:
        MissingColumnError: names the column.
        InputError: a row lacks a right or a wrong answer, has too many to be ranked, or is of Ties and has another id
            than `ref:N` or `tied:N`; or no prompt of Ties has both.
    """
    need_columns("judge_forms", rows.columns, ("prompt", "chosen", "rejected"))
    for name in ("chosen", "rejected"):
        if rows[name].dtype == pl.String:
            rows = rows.with_columns(pl.concat_list(name))
        if rows[name].dtype != pl.List(pl.String):
            raise InputError(f"judge_forms: column {name!r} holds {rows[name].dtype}, expected texts or lists of them")
    found = []
    for number, row in enumerate(rows.to_dicts()):
        texts = [*(row["chosen"] or ()), *(row["rejected"] or ())]
        if not row["chosen"] or not row["rejected"] or None in texts:
            raise InputError(f"judge_forms: row {number} has no chosen or no rejected answer")
        one = Prompt(str(row.get("subset", "all")), str(row.get("id")), str(row["prompt"]), texts, len(row["chosen"]))
        if one.ties and one.id.partition(":")[0] not in ("ref", "tied"):
            raise InputError(f"judge_forms: row {number} of Ties has the id {one.id!r}, expected ref:N or tied:N")
        if not one.ties and len(texts) > MOST:
            raise InputError(f"judge_forms: row {number} has {len(texts)} answers; at most {MOST} are ranked")
        found.append(one)
    ids = {each.id for each in found if each.ties}
    if ids and not any(f"ref:{id_.partition(':')[2]}" in ids for id_ in ids if id_.startswith("tied:")):
        raise InputError("judge_forms: of Ties no prompt has both forms, ref:N and tied:N")
    return found


def choose_best(prompts: Sequence[Prompt], asker: Asker, *, seed: int = 0, own: Own = None) -> list[Scored]:
    """Ranking form: the judge sees all answers to a prompt in a random order and names the best, which scores 1.

    The order depends on the prompt and the seed alone, so that after a restart the questions are the same.

    Args:
        prompts: What is judged; 26 answers each at most.
        asker: Who is asked.
        seed: Of the order of the answers.
        own: A template `best` of the user's.

    Returns:
        A `Scored` for each prompt: 1 for the chosen answer, 0 for the others, None for all if nothing could be read.
    """
    orders = [_order(prompt, seed) for prompt in prompts]
    asked = []
    for prompt, order in zip(prompts, orders, strict=True):
        shown = [fenced(prompt.answers[place]) for place in order]
        asked.append(write_prompt("best", {"task": fenced(prompt.task), "answers": shown}, own))
    reads = [partial(read_letter, count=len(prompt.answers)) for prompt in prompts]
    found = []
    for order, (chosen, reply) in zip(orders, _ask(asker, asked, reads), strict=True):
        best = None if chosen is None else order[chosen]
        scores = [None if best is None else float(place == best) for place in range(len(order))]
        found.append(Scored(scores, [reply], int(best is None and not _failed(reply))))
    return found


def _order(prompt: Prompt, seed: int) -> list[int]:
    """Answers in the order in which they are shown; the right one's place is as likely as any other."""
    texts = "\0".join((prompt.task, *prompt.answers)).encode(errors="replace")
    return np.random.default_rng([seed, zlib.crc32(texts)]).permutation(len(prompt.answers)).tolist()  # type: ignore[no-any-return]


def rate_each(prompts: Sequence[Prompt], asker: Asker, *, own: Own = None) -> list[Scored]:
    """Rating form: the judge sees one answer at a time and gives a whole number from 1 to 10.

    Args:
        prompts: What is judged.
        asker: Who is asked.
        own: A template `rated` of the user's.

    Returns:
        A `Scored` for each prompt: the ratings, None where one could not be read.
    """
    asked = [
        write_prompt("rated", {"task": fenced(each.task), "answer": fenced(text), "ties": each.ties}, own)
        for each in prompts
        for text in each.answers
    ]
    said = iter(_ask(asker, asked, [read_rating] * len(asked)))
    found = []
    for prompt in prompts:
        scores, replies = zip(*(next(said) for _ in prompt.answers), strict=True)
        unread = sum(score is None and not _failed(reply) for score, reply in zip(scores, replies, strict=True))
        found.append(Scored(list(scores), list(replies), unread))
    return found


def judge_forms(rows: pl.DataFrame, asker: Asker, *, seed: int = 0, own: Own = None) -> pl.DataFrame:
    """Table per form and domain: best-of-k accuracy of a judge asked to rank and to rate, and which form is `better`.

    Equal highest ratings share the credit; an unread rating ranks below all; a prompt of which nothing could be read
    earns what chance does, 1/k. The domain Ties is rated in either form, as published, and has `ties_score`, in which
    an unread rating is missing. A request that failed is no verdict: its prompt is left out.

    Args:
        rows: RewardBench 2's prompts: `prompt`, `chosen`, `rejected`, `subset`, `id`; see `read_prompts`.
        asker: The judge: an `Endpoint`, or a `PolicyAsker`.
        seed: Of the order of the answers, and of the bootstrap of ties.
        own: Templates `best` and `rated` of the user's.

    Returns:
        `form`, `domain` (the last of a form is `overall`, their unweighted mean), `score`, `low`, `high`, `n` prompts,
        `left` out, `unread` answers of the judge, `calls`, `tokens` and `cost` of the form alone, also of answers that
        a ledger knew, and `better`: the form of the higher score, of equal ones ranking, over the domains that have one
        in both. Its interval does not know that the better of two was taken.

    Source: arXiv 2506.01937.
    """
    prompts = read_prompts(rows)
    rated = rate_each(prompts, asker, own=own)
    chosen = iter(choose_best([each for each in prompts if not each.ties], asker, seed=seed, own=own))
    ranked = [rating if each.ties else next(chosen) for each, rating in zip(prompts, rated, strict=True)]
    tables = [_table(form, prompts, found, seed) for form, found in zip(FORMS, (ranked, rated), strict=True)]
    ahead = np.subtract(*(table["score"][:-1].to_numpy().astype(float) for table in tables))
    best = int(np.nansum(ahead) < 0)
    return pl.concat(table.with_columns(better=pl.lit(place == best)) for place, table in enumerate(tables))


def _table(form: str, prompts: Sequence[Prompt], found: Sequence[Scored], seed: int) -> pl.DataFrame:
    scores: list[dict[str, Any]] = []
    spent: list[dict[str, Any]] = []
    for group, (prompt, one) in enumerate(zip(prompts, found, strict=True)):
        kind, _, tied = prompt.id.partition(":") if prompt.ties else (None, None, None)
        judged = prompt.ties or not any(map(_failed, one.replies))
        for place, score in enumerate(one.scores):
            right = place < prompt.right if judged else None  # a group without truth leaves
            row = {"domain": prompt.domain, "group": group, "score": score, "correct": right}
            scores.append(row | {"prompt": tied, "kind": kind})
        tokens = sum(each.tokens_in + each.tokens_out for each in one.replies)
        costs = {"calls": len(one.replies), "tokens": tokens, "cost": sum(each.cost for each in one.replies)}
        spent += [{"domain": name, "unread": one.unread} | costs for name in (prompt.domain, "overall")]
    kinds = {"score": pl.Float64, "correct": pl.Boolean, "prompt": pl.String, "kind": pl.String}
    table = domain_scores(pl.DataFrame(scores, schema_overrides=kinds), missing="last", seed=seed)
    sums = pl.DataFrame(spent).group_by("domain").sum()
    table = table.join(sums, on="domain", how="left", maintain_order="left")
    return table.select(pl.lit(form).alias("form"), pl.all())


def _ask(asker: Asker, asked: Sequence[str], reads: Sequence[Read[Any]]) -> list[tuple[Any, Reply]]:
    if isinstance(asker, PolicyAsker):
        asker.reads = reads
    said = asker.ask([(text, 0) for text in asked])
    return [(None if _failed(reply) else read(str(reply.text)), reply) for reply, read in zip(said, reads, strict=True)]


def _failed(reply: Reply) -> bool:
    """Whether there is no answer to read."""
    return reply.text is None or bool(reply.error)
