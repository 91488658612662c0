"""Judges in a run: a checklist or rubric asked about every turn or episode, and messages that get a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.agents.policy import Policy
from palaestra.algebra.keys import is_last
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.judges import MessageLabels, vote_columns, weights_of
from palaestra.judges import judge as ask_judge
from palaestra.judges.metering import Limits
from palaestra.judges.rubric import items_of, read_rubric
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.rewards.judged.criteria import Criteria, onto, utility
from palaestra.rewards.match.evidence import semi_join

Items = Mapping[str, str | Mapping[str, Any]] | Sequence[Mapping[str, Any]]


@stage
class judge(Stage):
    """Stage: asks a policy as judge about every turn or episode; its verdicts become columns, null where it failed.

    `judge.NAME` is Σ weight · verdict over the items, `judge.NAME.ITEM` each verdict in [0, 1], `judge.NAME.ok` whether
    all of it was answered. At level "episode" the values stand on each agent's last turn, 0 before it, so that a reward
    is paid once; `everywhere` puts them on every turn. One item that failed leaves the sum missing.

    Args:
        name: of the columns. question: of a checklist with one item.
        items: questions by name, or a mapping of `judges.Item`'s fields each. rubric: a YAML file of these.
        weights: by item; another weighting asks nobody again.
        policy: of the recipe by name, or `module:name` of a function of a request; see `asking.Adviser`.
        level: "turn", with what came up to it, or "episode". votes: ask so often; the value is the share of yes, and
            `judge.NAME.ITEM.votes` has them all.
        evidence: a column with lists of turns: the judge sees these rows only. tool_failed: signal of the rows in which
            a tool failed; items about tools are then 0, unasked.
        budget: most calls of the run, or {"tokens": …}, {"price": …}. cache: a file of answers, found again by another
            run.

    Raises:
        InputError: no items, or not exactly one of question, items and rubric; a weight names no item.
    """

    def __init__(
        self,
        name: str = "score",
        *,
        question: str | None = None,
        items: Items | None = None,
        rubric: str | None = None,
        weights: Mapping[str, float] | None = None,
        policy: str | Policy = "judge",
        level: Literal["turn", "episode"] = "episode",
        everywhere: bool = False,
        votes: int = 1,
        evidence: str | None = None,
        tool_failed: str | None = None,
        budget: Limits = None,
        cache: str | None = None,
    ) -> None:
        if sum(each is not None for each in (question, items, rubric)) != 1:
            raise InputError("judge: give one of question, items and rubric")
        self.items = (
            read_rubric(rubric) if rubric is not None else items_of({name: question} if question else items or {})
        )
        self.weights = weights_of(self.items)
        for item in weights or {}:
            if item not in self.weights:
                raise InputError(f"judge: weights has {item!r}, which is no item{nearest(item, self.weights)}")
        self.weights |= {item: float(weight) for item, weight in (weights or {}).items()}
        self.column, self.level, self.everywhere, self.votes = f"judge.{name}", level, everywhere, votes
        self.evidence, self.tool_failed = (
            evidence,
            None if tool_failed is None else parse(tool_failed, columns=(tool_failed,)),
        )
        self.adviser = Adviser(policy, budget=budget, cache=cache)
        self.asks = self.adviser.asks
        self.needs = {"episode", "turn", "observation", "action", *([evidence] if evidence else ())}
        self.needs |= self.tool_failed.needs() if self.tool_failed is not None else set()
        self.adds = {self.column: "weighted sum of the verdicts", f"{self.column}.ok": "every call was answered"}
        self.adds |= {f"{self.column}.{item.name}": f"verdict: {item.question}" for item in self.items}
        if votes > 1:
            self.adds |= {f"{self.column}.{item.name}.votes": "all votes" for item in self.items}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the verdicts."""
        shown = None if self.evidence is None else semi_join(turns, column=self.evidence)
        found = ask_judge(
            turns,
            self.items,
            self.adviser.begin(context),
            level=self.level,
            shown=shown,
            votes=self.votes,
            tool_failed=self.tool_failed,
            cache=self.adviser.known(context),
            seed=context.seed,
        )
        by = [key for key in ("episode", "turn") if key in found.keys]
        mean = _means(found) if self.votes > 1 else found
        scores = utility(mean, self.weights, by=by).rename({"utility": self.column, "judged": f"{self.column}.ok"})
        wide = mean.frame.pivot("criterion", index=list(mean.keys), values="value", aggregate_function="first")
        wide = wide.rename({item.name: f"{self.column}.{item.name}" for item in self.items})
        result = onto(onto(turns, scores), wide)
        if self.votes > 1:
            named = {item.name: f"{self.column}.{item.name}.votes" for item in self.items}
            result = onto(result, vote_columns(found, named))
        if self.level == "turn" or self.everywhere:
            return result
        values = [name for name in self.adds if not name.endswith((".ok", ".votes"))]
        last = pl.Series(np.asarray(is_last().evaluate(result))).cast(pl.Boolean)
        once = result.frame.select(
            pl.when(pl.col(name).is_null() | last).then(pl.col(name)).otherwise(0.0) for name in values
        )
        return result.with_column(**{name: once[name] for name in values})

    def state_dict(self) -> dict[str, Any]:
        """State of the judge: amounts spent and answers."""
        return self.adviser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.adviser.load_state_dict(state)


def _means(criteria: Criteria) -> Criteria:
    """The mean over the votes that were answered."""
    frame = criteria.frame.group_by([*criteria.keys, "criterion"], maintain_order=True).agg(pl.col("value").mean())
    return Criteria(frame)


@stage
class message_labels(Stage):
    """Stage: column of ONI's labels [9], whether a message helps towards `goal`, by an annotating policy.

    Source: arXiv 2410.23022.

    It is asked between iterations, about the newest messages first.

    Play never waits: a message has no label in the iteration in which it first comes. Its reward is
    `oni_reward("label", "message")`.

    Args:
        goal: what the player is to do; the annotator is told. message: the column of messages, null where there is
            none. into: the column of labels, 0 or 1. batch: most messages asked about after an iteration. distilled:
            a message that has none yet gets that of a classifier, trained on the labels that are there. instructions: a
            Jinja template of the question, or its file `….j2`, of the variables goal and message.
        policy, budget, cache: of the annotator; see `asking.Adviser`.
    """

    adds = {"label": "1 for a message that the annotator finds helpful, 0 if not, null if it is not known yet"}

    def __init__(
        self,
        goal: str,
        *,
        message: str = "message",
        into: str = "label",
        policy: str | Policy = "annotator",
        batch: int = 64,
        budget: Limits = None,
        cache: str | None = None,
        distilled: bool = False,
        instructions: str | None = None,
    ) -> None:
        self.adviser = Adviser(policy, budget=budget, cache=cache)
        self.labels = MessageLabels(
            goal, batch=batch, cache=self.adviser.cache, distilled=distilled, instructions=instructions
        )
        self.message, self.into, self.asks = message, into, self.adviser.asks
        self.needs, self.adds = {message}, {into: next(iter(type(self).adds.values()))}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the labels known so far; then the annotator is asked about more messages."""
        labelled = self.labels.add(turns, message=self.message, column=self.into)
        self.labels.work(self.adviser.begin(context))
        return labelled

    def state_dict(self) -> dict[str, Any]:
        """State: labels, and the messages that wait, oldest first."""
        known = {"labels": dict(self.labels.labels), "pending": list(self.labels.pending)}
        return {**self.adviser.state_dict(), **known}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.adviser.load_state_dict(state)
        self.labels.labels, self.labels.pending = dict(state["labels"]), dict.fromkeys(state["pending"])
