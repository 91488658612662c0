"""Rows as their learner would have seen and said them: help taken out of what is read, log-probabilities of now.

An action that was helped is learned from in the context in which it will have to be found again. What was shown with
the help is not that context, and the log-probabilities that were written down are not the learner's; so both are made
anew, and a table in which that was forgotten is refused.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.agents.conversation import read
from palaestra.agents.policy import Learnable
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.probe import _scores
from palaestra.learning.stages.stage import Context

POLICY = "policy"
"""`source` of a row that its policy sampled, seeing what it will see."""


def rescored(
    frame: pl.DataFrame, context: Context, which: str, *, number: str | None = None, messages: bool = False
) -> pl.DataFrame:
    """Table with rows where column `which` is true tokenised and scored again by the context's policies; others as is.

    `state` and `prompt_ids` are those of `observation`, `action_ids` those of `action`, `logprobs` and `entropies` what
    the policy gives them today. number: a column with the action's number, for policies that take one of numbered
    actions; default: `action_ids` as they are. messages: rows may show messages, which hold no help;
    their prompts are whole conversations.

    Raises:
        InputError: such a policy has no number for an action, or the rows show messages, of which help cannot be taken.
    """
    frame = frame.with_row_index("_row")
    parts = [frame.filter(~pl.col(which))]
    for (name,), rows in frame.filter(which).group_by(pl.col("policy").cast(pl.String), maintain_order=True):
        policy: Any = context.team.policies[str(name)]
        talks = "messages" in rows.columns and rows["messages"].null_count() < len(rows)
        if talks and not messages:
            raise InputError(f"policy {name!r} was shown messages; what is made of rows again must be text")
        seen = rows["observation"].fill_null("").to_list()
        told = rows["messages"].to_list() if talks else [None] * len(seen)
        both = list(zip(seen, told, strict=True))
        shown = {each: read(each[1], text=each[0]) for each in set(both)}
        states = {each: found.key() for each, found in shown.items()}
        changed: dict[str, list[Any]] = {"state": [states[each] for each in both]}
        if isinstance(policy, Learnable):
            if hasattr(policy, "encode"):
                prompts = [shown[each] if each[1] is not None else each[0] for each in both]
                said = rows["action"].to_list()
                pairs = [policy.encode(prompt, text) for prompt, text in zip(prompts, said, strict=True)]
                changed |= {
                    "prompt_ids": [ids.tolist() for ids, _ in pairs],
                    "action_ids": [i.tolist() for _, i in pairs],
                }
            elif number is not None:
                changed["action_ids"] = [None if each is None else [each] for each in rows[number]]
            rows = _with(rows, frame, changed)
            if rows["action_ids"].null_count():
                raise InputError(f"policy {name!r} takes one of numbered actions, and one that is put in has no number")
            scored = dict(zip(("logprobs", "entropies"), _scores(policy, rows), strict=True))
            changed = {column: [each.tolist() for each in lists] for column, lists in scored.items()}
            changed["token_versions"] = [None] * rows.height  # all are those of the policy that is here
        parts.append(_with(rows, frame, changed))
    return pl.concat(parts, how="vertical").sort("_row").drop("_row")


def _with(rows: pl.DataFrame, like: pl.DataFrame, columns: dict[str, Any]) -> pl.DataFrame:
    known = {name: values for name, values in columns.items() if name in like.columns}
    return rows.with_columns(pl.Series(name, values, like.schema[name], strict=False) for name, values in known.items())


def unhelped(frame: pl.DataFrame, shown: str = "help") -> pl.DataFrame:
    """Table of turns with the help text of column `shown` removed from `observation` where it stands at the start."""
    said = pl.col(shown) + "\n\n"
    inside = pl.col(shown).is_not_null() & pl.col("observation").str.starts_with(said)
    rest = pl.col("observation").str.slice(said.str.len_chars())
    return frame.with_columns(observation=pl.when(inside).then(rest).otherwise("observation"))


def below(own: pl.DataFrame, made: pl.DataFrame) -> Turns:
    """`Turns` with the rows `made` anew below a stage's `own`: of its columns, null where an earlier stage filled them.

    What was played within a stage went through none of those before it.
    """
    return Turns.concat([own, made.select(name for name in own.columns if name in made.columns)])


def refuse_help(turns: Turns, *, shown: str = "help", visible: bool = False) -> Turns:
    """Return the turns; raise InputError if a row with `help` still shows it or was not scored again (`rescored`).

    Raises:
        InputError: a row whose column `shown` is set still holds that text in its observation, or is not marked as
            scored again in its own context (`rescored`); names the row. Nothing is checked if help is `visible`.
    """
    frame = turns.frame
    if visible or shown not in frame.columns:
        return turns
    told = pl.col(shown).is_not_null()
    leaks = told & pl.col("observation").str.contains(pl.col(shown), literal=True)
    forgotten = told & ~(pl.col("rescored") if "rescored" in frame.columns else pl.lit(False))
    for mask, fault in ((leaks, "still shows the help"), (forgotten, "was not scored again without the help")):
        found = frame.with_row_index("_row").filter(mask.fill_null(False))
        if len(found):
            raise InputError(
                f"row {found['_row'][0]} {fault} ({len(found)} rows); learn from unhelped() and rescored() rows, or "
                "let the learner see the help: visible=True"
            )
    return turns
