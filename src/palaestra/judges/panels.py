"""Several judgements as one: a vote, a second judge who corrects the first, a debate before a jury, an arbiter.

Compositions of what gives verdicts (`Judge`) and what reduces them (`aggregate`); a panel is a judge itself. What it is
worth depends on how its members' errors hang together: `audits` measures that, `StubJudge` has it as an option.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges.aggregate import Method, Ties, aggregate, both_orders
from palaestra.judges.judged import Asker, PolicyAsker, asker_of, text_of
from palaestra.judges.protocol import SCORERS, Judge, Scorer
from palaestra.judges.reading import fenced
from palaestra.judges.scorers import Members, build
from palaestra.judges.templates import own_prompts, write_prompt

SIDES = ("risk", "safe")


class Panel(Members, abc.ABC):
    """Base class of scorers that combine several judges' verdicts to one value per item and criterion, then a score."""

    name = "panel"

    @abc.abstractmethod
    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """All verdicts that the panel rests on, member by member; see `Judge`."""

    @abc.abstractmethod
    def reduce(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Table with one `value` for each `item` and `criterion`, from a table of verdicts."""

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One value per row, Float64: that of `item_scores`."""
        numbered = rows.with_columns(item=pl.int_range(pl.len(), dtype=pl.UInt32))
        verdicts = self.verdicts(numbered, reference=reference, condition=condition)
        return numbered.select("item").join(self.item_scores(verdicts), on="item", how="left", maintain_order="left")[
            "score"
        ]

    def item_scores(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Table `item`, `score` of the panel's verdicts: Σ weight · value over the criteria; null where one lacks.

        The weights are the first member's. Of comparisons it is the weighted mean of both orders, each of them reduced
        by itself; null where one is.
        """
        compared = bool(verdicts["order"].is_not_null().any())
        table = self._of_both_orders(verdicts) if compared else self.reduce(verdicts)
        weights = getattr(self.members[0], "weights", None) or {}
        weight = pl.col("criterion").replace_strict(weights, default=1.0, return_dtype=pl.Float64)
        whole = (pl.col("value") * weight).sum() / (weight.sum() if compared else 1.0)
        score = pl.when(pl.col("value").null_count() == 0).then(whole)
        return table.group_by("item", maintain_order=True).agg(score=score)

    def _of_both_orders(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """As `reduce`, of comparisons; verdicts on one answer alone count in either order."""
        alone = pl.col("order").is_null()
        parts = [
            self.reduce(verdicts.filter(alone | (pl.col("order") == order))).with_columns(order=pl.lit(order))
            for order in (0, 1)
        ]
        return both_orders(pl.concat(parts), by=("item", "criterion"))


class Vote(Panel):
    """Scorer: n answers of one judge, combined by a rule of `aggregate`; with n = 1 the judge alone.

    [131] DialogGuard (arXiv 2512.02282): the most frequent of 10, of equally frequent ones the first.

    >>> from palaestra.judges import StubJudge
    >>> Vote(StubJudge([[1, 0], [0, 1]]), n=3).score(pl.DataFrame({"truth": [0, 1]})).to_list()
    [0.0, 1.0]
    """

    def __init__(self, judge: Judge, n: int = 10, *, method: Method = "mode", ties: Ties = "first") -> None:
        if n < 1:
            raise InputError(f"vote: {n=} must be at least 1")
        self.members, self.n, self.method, self.ties = (judge,), n, method, ties
        self.name = judge.name if n == 1 else f"vote of {n} by {judge.name}"

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """The judge's verdicts on `rows`, max(n, samples) samples of each."""
        found: pl.DataFrame = self.members[0].verdicts(
            rows, reference=reference, condition=condition, samples=max(self.n, samples)
        )
        return found

    def reduce(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Table with one `value` for each item and criterion: the samples combined by `method`."""
        return aggregate(verdicts, method=self.method, ties=self.ties)


class Correct(Panel):
    """Scorer of two judges, of which the second reads the first one's verdict: round(Σ weight · verdict).

    A half is rounded to the even level.

    [131]'s dual correction, weights .7 and .3 on levels: the second changes the result only where they are two levels
    apart. Missing if either verdict is. The second is told in the condition's column `told`, beside what it holds.
    Levels are of one answer: a comparison, which has two orders and no levels, is refused.
    """

    def __init__(self, first: Judge, second: Judge, weights: Sequence[float] = (0.7, 0.3)) -> None:
        if len(weights) != 2 or min(weights) < 0 or abs(sum(weights) - 1) > 1e-9:
            raise InputError(f"correct: weights={tuple(weights)} are two that sum to 1")
        self.members, self.shares = (first, second), tuple(map(float, weights))
        self.name = f"{first.name} corrected by {second.name}"

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """See `Panel`; `sample` is 0 for the first judge and 1 for the second.

        Raises:
            InputError: there is a reference.
        """
        if reference is not None:
            raise InputError("correct: it judges one answer and compares none; with a reference take vote(…)")
        numbered = rows.with_columns(item=pl.int_range(pl.len(), dtype=pl.UInt32))
        first = self.members[0].verdicts(numbered, condition=condition)
        answer = pl.coalesce("answer", pl.col("value").cast(pl.String), pl.lit("no verdict"))
        why = pl.col("rationale").fill_null("")
        said = first.select("item", text=pl.format("{}: {}\n{}", "criterion", answer, why))
        known = numbered.select("item").join(
            said.group_by("item").agg(pl.col("text").str.join("\n")), on="item", how="left", maintain_order="left"
        )
        told = _told(condition, known["text"].fill_null(""))
        second = self.members[1].verdicts(numbered, condition=told)
        both: pl.DataFrame = pl.concat(
            each.with_columns(sample=pl.lit(number, pl.Int32)) for number, each in enumerate((first, second))
        )
        names = rows["item"] if "item" in rows.columns else numbered["item"]
        numbers = both["item"]
        return both.with_columns(names.gather(numbers).alias("item"))

    def reduce(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Table with one `value` per item and criterion: round(Σ weight · verdict); missing if either verdict is."""
        means = verdicts.group_by("item", "criterion", "sample", maintain_order=True).agg(pl.col("value").mean())
        values = [pl.col("value").filter(pl.col("sample") == sample).first() for sample in (0, 1)]
        table = means.group_by("item", "criterion", maintain_order=True).agg(first=values[0], second=values[1])
        whole = self.shares[0] * pl.col("first") + self.shares[1] * pl.col("second")
        return table.select("item", "criterion", value=whole.round(0, mode="half_to_even"))


class Debate(Panel):
    """Scorer: two advocates argue in turns, in an order drawn for each item, then a jury judge votes, by the median.

    [131]: two rounds and five votes are nine calls. The jury is told the debate in the condition's column `told`.

    Args:
        jury: a judge. advocates: who says that the answer is a risk, and that it is safe: a policy, or the name of one
            of the recipe; without them only the vote is left. sides: the words for both.
        instructions: a Jinja template of what an advocate is asked, or its file `….j2`; its variables are those of
            `argue` in `palaestra.judges.templates.KNOWN`.

    Raises:
        InputError: it is neither two advocates nor none; one is asked before `bind` gave its policy.
    """

    def __init__(
        self,
        jury: Judge,
        advocates: Sequence[str | Policy] = (),
        *,
        rounds: int = 2,
        votes: int = 5,
        sides: tuple[str, str] = SIDES,
        method: Method = "median",
        ties: Ties = "first",
        seed: int = 0,
        instructions: str | None = None,
    ) -> None:
        self._own = own_prompts(instructions, ("argue",), "debate")
        if len(advocates) not in (0, 2) or rounds < 1 or votes < 1:
            raise InputError(f"debate: {len(advocates)} advocates, {rounds=}, {votes=}; there are two, for either side")
        self.members, self.advocates, self.rounds, self.votes = (jury,), list(advocates), rounds, votes
        self._askers: list[Asker | None] = [asker_of(each, seed=seed) for each in advocates]
        self.sides, self.method, self.ties, self.seed, self.name = (
            sides,
            method,
            ties,
            seed,
            f"debate before {jury.name}",
        )

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """The jury's votes on `rows` after the advocates' debate, if there are advocates."""
        if self.advocates:
            condition = _told(condition, pl.Series(self.debates(rows), dtype=pl.String))
        found: pl.DataFrame = self.members[0].verdicts(
            rows, reference=reference, condition=condition, samples=max(self.votes, samples)
        )
        return found

    def debates(self, rows: pl.DataFrame) -> list[str]:
        """The advocates' debate about each row, as text; a failed advocate said nothing."""
        tasks, texts = text_of(rows, "prompt", needed=False), text_of(rows, "response")
        first = np.random.default_rng(self.seed).integers(2, size=len(rows))
        said = [""] * len(rows)
        for turn in range(2 * self.rounds):
            for side in (0, 1):
                mine = np.flatnonzero((first + turn) % 2 == side)
                prompts = [
                    write_prompt(
                        "argue",
                        {
                            "side": self.sides[side],
                            "task": fenced(tasks[row]),
                            "response": fenced(texts[row]),
                            "said": fenced(said[row] or "(nothing)"),
                        },
                        self._own,
                    )
                    for row in mine
                ]
                answers = self._asker(side).ask([(each, turn) for each in prompts])
                for row, answer in zip(mine, answers, strict=True):
                    said[row] += f"{self.sides[side]}: {answer.text or '(nothing)'}\n"
        return said

    @property
    def asks(self) -> tuple[str, ...]:
        """Policies of a recipe that the jury and the advocates need."""
        named = (each for each in self.advocates if isinstance(each, str) and ":" not in each)
        return (*super().asks, *named)

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policies of jury and advocates with `find`, and ask those from now on."""
        super().bind(find)
        named = [isinstance(each, str) and ":" not in each for each in self.advocates]
        for side, name in enumerate(self.advocates):
            if named[side]:
                self._askers[side] = find(str(name))

    def _asker(self, side: int) -> Asker:
        asker = self._askers[side]
        if asker is None:
            raise InputError(f"debate: the policy {self.advocates[side]!r} is not here; it is one of a recipe")
        if isinstance(asker, PolicyAsker):
            asker.reads = None  # it may be the jury's, too
        return asker

    def reduce(self, verdicts: pl.DataFrame) -> pl.DataFrame:
        """Table with one `value` for each item and criterion: the jury's votes combined by the panel's rule."""
        return aggregate(verdicts, method=self.method, ties=self.ties)


class CorrectingPanel:
    """Callable that adds corrected actions to turns: a domain judge proposes one, an arbiter decides; [1] MagicGUI-RMS.

    arXiv 2601.13060.

    Reconstructed from what others write of it: where the domain judge finds the action wrong and has another one, the
    arbiter compares the two; the other one is taken if the arbiter prefers it, the agent's is kept otherwise, also in a
    tie and where the arbiter says nothing.

    Args:
        domain: from rows to a table with `verdict` (right, or null) and `corrected_action` (null: none), in order; its
            `corrected_id`, if there is one, is kept.
        arbiter: a scorer of pairs, whose reference has the other action, also as `response` if there is that column.
    """

    def __init__(self, domain: Callable[[pl.DataFrame], pl.DataFrame], arbiter: Scorer) -> None:
        self.domain, self.arbiter = domain, arbiter

    def __call__(self, turns: Turns) -> Turns:
        """A copy of the turns with `verdict`, `corrected_action`, `final_action`, `overruled` (the action was kept).

        That is, the arbiter kept an action that the domain judge found wrong.

        Raises:
            MissingColumnError: the domain judge does not give its two columns.
        """
        rows = turns.frame.with_columns(_row=pl.int_range(pl.len()))
        judged = self.domain(rows)
        for name in ("verdict", "corrected_action"):
            if name not in judged.columns:
                raise MissingColumnError(f"CorrectingPanel: the domain judge gave no column {name!r}")
        number = [judged["corrected_id"].cast(pl.Int64)] if "corrected_id" in judged.columns else []
        rows = rows.with_columns(
            judged["verdict"].cast(pl.Boolean), judged["corrected_action"].cast(pl.String), *number
        )
        differs = pl.col("corrected_action").is_not_null() & (pl.col("corrected_action") != pl.col("action"))
        disputed = rows.filter(~pl.col("verdict") & differs)
        shown = [name for name in ("action", "response") if name in rows.columns]
        other = disputed.with_columns(pl.col("corrected_action").alias(name) for name in shown)
        keeps = self.arbiter.score(disputed, reference=other)
        table = disputed.select("_row", replaced=pl.Series(keeps < 0.5).fill_null(False))
        found = rows.join(table, on="_row", how="left", maintain_order="left")
        replaced = pl.col("replaced").fill_null(False)
        found = found.with_columns(
            final_action=pl.when(replaced).then("corrected_action").otherwise("action"),
            overruled=~pl.col("verdict") & ~replaced,
        )
        return Turns(found.drop("_row", "replaced"))


def _told(condition: pl.DataFrame | None, said: pl.Series) -> pl.DataFrame:
    """The condition, with what was said after what it tells already in its column `told`."""
    if condition is None:
        return pl.DataFrame({"told": said})
    before = condition["told"].fill_null("") + "\n" if "told" in condition.columns else ""
    return condition.with_columns(told=before + said)


def _judge(scorer: str | Scorer) -> Judge:
    made = build(scorer)
    if not isinstance(made, Judge):
        raise InputError(f"panel: {made.name} gives scores and no verdicts; take a judge, e.g. judged(…)")
    return made


@SCORERS.register()
def single(judge: str | Any, method: Method = "mode", ties: Ties = "first") -> Vote:
    """Makes a scorer that asks a judge once, [131]'s baseline: `vote(judge, 1)`."""
    return Vote(_judge(judge), 1, method=method, ties=ties)


@SCORERS.register("vote")
def vote_of(judge: str | Any, n: int = 10, method: Method = "mode", ties: Ties = "first") -> Vote:
    """Makes a scorer by the most frequent of n verdicts of a judge: `vote(judged("r.yaml", policy="judge"), n=5)`."""
    return Vote(_judge(judge), n, method=method, ties=ties)


@SCORERS.register()
def correct(first: str | Any, second: str | Any, weights: Sequence[float] = (0.7, 0.3)) -> Correct:
    """Makes a scorer in which a second judge corrects the first: round(.7 · first + .3 · second)."""
    return Correct(_judge(first), _judge(second), weights)


@SCORERS.register()
def debate(jury: str | Any, risk: str | Any = None, safe: str | Any = None, **options: Any) -> Debate:
    """Makes a scorer: advocates (policies of the recipe by name, or `module:name`) argue, then a jury votes 5 times."""
    sides = [each for each in (risk, safe) if each is not None]
    return Debate(_judge(jury), sides, **options)
