"""A model that judges: rows one by one on a rubric, or against a reference in both orders. Each call is a row, too.

Left out: what a policy or an endpoint does to get an answer (`asking`, `endpoint`), and panels of judges (`panels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns, clean
from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.foundation.registry import load_object
from palaestra.judges.aggregate import Method, Ties, aggregate, both_orders
from palaestra.judges.asking import AnswerCache, Read, Reply, replies
from palaestra.judges.endpoint import Budget, Endpoint
from palaestra.judges.protocol import SCORERS, VERDICTS
from palaestra.judges.reading import fenced, read_choice
from palaestra.judges.rubric import Item, items_of, read_rubric, shown_to, weights_of
from palaestra.judges.templates import NOTHING, own_prompts, write_prompt

ALIASES = {"prompt": ("prompt", "observation", "task"), "response": ("response", "action")}
"""Where a text is looked for, in this order: rows of judges, rows of turns."""


class Asker(Protocol):
    """Protocol of what answers a judge: `ask([(prompt, vote)])` -> replies; an `Endpoint`, or a `PolicyAsker`."""

    name: str

    def ask(self, prompts: Sequence[tuple[str, int]]) -> list[Reply]:
        """A reply for each (prompt, number of the vote)."""


class PolicyAsker:
    """`Asker` that asks a policy; unreadable answers are asked for again, `attempts` times in all."""

    def __init__(self, policy: Policy, *, cache: AnswerCache | None = None, attempts: int = 1, seed: int = 0) -> None:
        self.policy, self.name, self.attempts, self.seed = policy, policy.name, attempts, seed
        self.cache = AnswerCache() if cache is None else cache
        self.reads: Sequence[Read[Any]] | None = None

    def ask(self, prompts: Sequence[tuple[str, int]]) -> list[Reply]:
        """A reply of the policy for each (prompt, number of the vote)."""
        reads = self.reads or [str] * len(prompts)
        return replies(self.policy, prompts, reads, cache=self.cache, attempts=self.attempts, seed=self.seed)


def asker_of(policy: str | Policy | None, *, seed: int = 0) -> PolicyAsker | None:
    """A `PolicyAsker` of a policy or of a function `module:name`; None for a plain name, which only a recipe knows."""
    if isinstance(policy, str):
        if ":" not in policy:
            return None
        from palaestra.agents.scripted import ScriptedPolicy

        return PolicyAsker(ScriptedPolicy(load_object(policy, "policy"), name=policy), seed=seed)
    return None if policy is None else PolicyAsker(policy, seed=seed)


def endpoints_of(scorer: Any) -> Iterator[Endpoint]:
    """Generator of the `Endpoint` objects that a scorer, or its members, ask."""
    if isinstance(asker := getattr(scorer, "asker", None), Endpoint):
        yield asker
    for member in getattr(scorer, "members", ()):
        yield from endpoints_of(member)


class Judged:
    """Scorer (LLM as a judge) that asks a model each item of a rubric for each row and adds up the weighted verdicts.

    Rows have `prompt` and `response` (or `observation` and `action`). A condition has a column `told`: a principle, a
    user, another judge's verdict; it is shown beside the criterion, fenced like all that is judged.

    Args:
        items: of a rubric. asker: whom it asks; None until `bind` gives it a policy.
        votes, method, ties: so many answers to each question and what becomes of them (`aggregate`).
        weights: by item; default the items' own.
        instructions: a Jinja template of every question, or its file `….j2`; its variables are those of `judged` in
            `palaestra.judges.templates.KNOWN`, first and second of a comparison; None: the shipped text.

    Raises:
        InputError: items share a name, a weight names none, or the instructions are no template of these variables.
    """

    def __init__(
        self,
        items: Sequence[Item],
        asker: Asker | None = None,
        *,
        policy: str | Policy | None = None,
        votes: int = 1,
        method: Method = "mean",
        ties: Ties = "missing",
        weights: Mapping[str, float] | None = None,
        name: str | None = None,
        instructions: str | None = None,
    ) -> None:
        self._own = own_prompts(instructions, ("judged",), "judged")
        names = [item.name for item in items]
        if not items or len(set(names)) < len(names) or votes < 1:
            raise InputError(f"judged: items need names of their own, not {names}, and {votes=} must be at least 1")
        for item in weights or {}:
            if item not in names:
                raise InputError(f"judged: weights has {item!r}, which is no item{nearest(item, names)}")
        self.items, self.asker, self.policy, self.votes = list(items), asker, policy, votes
        self.method, self.ties = method, ties
        self.weights = {item: float(weight) for item, weight in (weights_of(items) | dict(weights or {})).items()}
        self.calls = Turns(pl.DataFrame())
        """The calls of the last `verdicts`, a row each: role `judge`, what it saw and said, tokens, cost, error."""
        self.asker = asker_of(policy) or self.asker
        self.name = name or (self.asker.name if self.asker else str(policy or "judge"))

    @property
    def asks(self) -> tuple[str, ...]:
        """Names of the recipe's policies that must be bound before scoring."""
        return (self.policy,) if isinstance(self.policy, str) and ":" not in self.policy else ()

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policy of this name with `find`, and ask that from now on."""
        for policy in self.asks:
            self.asker = find(policy)

    def questions(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int | None = None,
    ) -> tuple[list[tuple[str, int]], pl.DataFrame]:
        """(list of (prompt, vote) that `verdicts` asks, table of whose each is: `row`, `criterion`, `sample`, `order`).

        Raises:
            InputError: a table has another length. MissingColumnError: names the column.
        """
        for what, table in (("reference", reference), ("condition", condition)):
            if table is not None and len(table) != len(rows):
                raise InputError(f"judged: {len(rows)} rows and {len(table)} of the {what}; give one for each")
        tasks, texts = text_of(rows, "prompt", needed=False), text_of(rows, "response")
        others = None if reference is None else text_of(reference, "response")
        told = [None] * len(rows) if condition is None else text_of(condition, "told")
        prompts: list[tuple[str, int]] = []
        whose: dict[str, list[Any]] = {"row": [], "criterion": [], "sample": [], "order": []}
        number = self.votes if samples is None else samples
        for row, (task, text, beside) in enumerate(zip(tasks, texts, told, strict=True)):
            for item in self.items:
                shown: list[tuple[int | None, str]] = [(None, self._asked(item, task, text, None, beside))]
                if others is not None:
                    sides = (text, others[row]), (others[row], text)
                    shown = [(order, self._asked(item, task, *pair, beside)) for order, pair in enumerate(sides)]
                for order, prompt in shown:
                    for sample in range(number):
                        prompts.append((prompt, sample))
                        for name, value in zip(whose, (row, item.name, sample, order), strict=True):
                            whose[name].append(value)
        kinds = {"row": pl.UInt32} | {name: VERDICTS[name] for name in ("criterion", "sample", "order")}
        return prompts, pl.DataFrame(whose, kinds)

    def _asked(self, item: Item, task: str, first: str, second: str | None, told: str | None) -> str:
        """One question; of a comparison if there is a second answer."""
        if second is None:
            return shown_to(item, task, first, told=told, own=self._own)
        shown = fenced(first) if first else ""
        values = {
            "task": fenced(task) if task else "",
            "response": shown,
            "first": shown,
            "second": fenced(second) if second else "",
            "told": fenced(told) if told else "",
            "nothing": NOTHING,
            "question": item.question,
            "passes": item.passes,
            "failures": item.failures,
            "form": "a line `VERDICT: A`, `VERDICT: B` or `VERDICT: tie`",
        }
        return write_prompt("judged", values, self._own, shipped="compared")

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int | None = None,
    ) -> pl.DataFrame:
        """Table of verdicts, as in `Judge`; samples default to `votes`. rationale: the answer, or why there is none.

        Raises:
            InputError: nobody is there to be asked; a table has another length.
            MissingColumnError: names the column.
        """
        if self.asker is None:
            raise InputError(
                f"judged: the policy {self.policy!r} is not here; give model=… and base_url=…, or policy='module:name'"
                if self.policy
                else "judged: nobody to ask; give model=… and base_url=…, or policy=…"
            )
        prompts, whose = self.questions(rows, reference=reference, condition=condition, samples=samples)
        by_name = {item.name: item.read for item in self.items}
        orders = whose["order"].to_list()
        reads: list[Read[Any]] = [
            by_name[name] if order is None else read_choice
            for name, order in zip(whose["criterion"], orders, strict=True)
        ]
        if isinstance(self.asker, PolicyAsker):
            self.asker.reads = reads
        said = self.asker.ask(prompts)
        first = [
            None if each.text is None or each.error else read(each.text) for each, read in zip(said, reads, strict=True)
        ]
        value = [1 - v if v is not None and order == 1 else v for v, order in zip(first, orders, strict=True)]
        words = {1.0: "A", 0.0: "B", 0.5: "tie"}
        answer = [
            None if v is None else words[v] if order is not None else f"{v:g}"
            for v, order in zip(first, orders, strict=True)
        ]
        item = rows["item"] if "item" in rows.columns else pl.Series("item", range(len(rows)), pl.UInt32)
        table = whose.with_columns(
            item.gather(whose["row"]),
            judge=pl.lit(self.name),
            value=pl.Series(value, dtype=pl.Float64),
            answer=pl.Series(answer, dtype=pl.String),
            rationale=pl.Series([_why(each) for each in said], dtype=pl.String),
            ok=pl.Series([each is not None for each in value], dtype=pl.Boolean),
            tokens=pl.Series([each.tokens_in + each.tokens_out for each in said], dtype=pl.Int64),
            cost=pl.Series([each.cost for each in said], dtype=pl.Float64),
        )
        self.calls = _turns(table, prompts, said)
        return table.select("item", *(pl.col(name).cast(kind) for name, kind in VERDICTS.items()))

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Σ weight · verdict over the items; with a reference, the weighted mean probability that the row is better.

        Missing where one item has no verdict, or one of the two orders has none.
        """
        numbered = rows.with_columns(item=pl.int_range(pl.len(), dtype=pl.UInt32))
        found = self.verdicts(numbered, reference=reference, condition=condition)
        sums = item_scores(found, self.weights, method=self.method, ties=self.ties)
        return numbered.select("item").join(sums, on="item", how="left", maintain_order="left")["score"]


def item_scores(
    verdicts: pl.DataFrame,
    weights: Mapping[str, float] | None = None,
    *,
    method: Method = "mean",
    ties: Ties = "missing",
) -> pl.DataFrame:
    """Table `item`, `score` of a table of verdicts: weighted sum over criteria (comparisons: mean); null if one lacks.

    Args:
        verdicts: `VERDICTS` after `item`.
        weights: By criterion; one that has none counts 1.
        method: How several votes become one (`aggregate`).
        ties: What becomes of ties among them (`aggregate`).

    Returns:
        Σ weight · value over the criteria. Of comparisons (verdicts with an `order`) it is the weighted mean of both
        orders, a probability. Null where one criterion, or one of its orders, has no value.
    """
    compared = bool(verdicts["order"].is_not_null().any())
    if compared:
        each = aggregate(verdicts, by=("item", "criterion", "judge", "order"), method=method, ties=ties)
        values = both_orders(each)
    else:
        values = aggregate(verdicts, method=method, ties=ties)
    weight = pl.col("criterion").replace_strict(dict(weights or {}), default=1.0, return_dtype=pl.Float64)
    whole = (pl.col("value") * weight).sum() / (weight.sum() if compared else 1.0)
    return values.group_by("item", maintain_order=True).agg(
        score=pl.when(pl.col("value").null_count() == 0).then(whole)
    )


def text_of(rows: pl.DataFrame, name: str, *, needed: bool = True) -> list[Any]:
    """List of the texts of a column, or of its alias in a table of turns; empty texts if it is missing and not needed.

    Raises:
        MissingColumnError: the column is needed and missing.
    """
    known = ALIASES.get(name, (name,))
    for each in known:
        if each in rows.columns:
            return rows[each].cast(pl.String).fill_null("").to_list()
    if needed:
        raise MissingColumnError(f"judged: no column {' or '.join(map(repr, known))}{nearest(name, rows.columns)}")
    return [""] * len(rows)


def _why(reply: Reply) -> str:
    return clean("\n".join(each for each in (reply.text, reply.error and f"error: {reply.error}") if each))


def _turns(table: pl.DataFrame, prompts: Sequence[tuple[str, int]], said: Sequence[Reply]) -> Turns:
    """The calls as turns of the role `judge`: a group for each item, an episode for each call of it."""
    kept = table.select("item", "criterion", "sample", "order", "value")
    frame = kept.with_columns(
        group=table["row"].cast(pl.Int32),
        episode=pl.int_range(pl.len(), dtype=pl.Int32).over(table["row"]),
        turn=pl.lit(0),
        agent=pl.lit("judge"),
        policy=table["judge"],
        observation=pl.Series([clean(prompt) for prompt, _ in prompts], dtype=pl.String),
        action=pl.Series([each.text and clean(each.text) for each in said], dtype=pl.String),
        valid=table["ok"],
        error=pl.Series([each.error if each.text is None else None for each in said], dtype=pl.String),
        tokens_in=pl.Series([each.tokens_in for each in said], dtype=pl.Int32),
        tokens_out=pl.Series([each.tokens_out for each in said], dtype=pl.Int32),
        cost=table["cost"],
        duration=pl.Series([each.duration for each in said], dtype=pl.Float64),
    )
    return Turns(frame)


@SCORERS.register()
def judged(
    rubric: str | None = None,
    *,
    question: str | None = None,
    items: Mapping[str, Any] | None = None,
    policy: str | Policy | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key_env: str | None = "OPENAI_API_KEY",
    votes: int = 1,
    method: Method = "mean",
    ties: Ties = "missing",
    weights: Mapping[str, float] | None = None,
    instructions: str | None = None,
    ledger: str | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    price: float | None = None,
    **endpoint: Any,
) -> Judged:
    """Makes a `Judged` scorer (LLM as a judge): a model scores each row on a rubric (file, `items` or one `question`).

    Args:
        rubric: file of a rubric.
        question: one question instead of a rubric; its criterion is `score`.
        items: criteria of a rubric, as its file would list them.
        policy: of the recipe by name, `module:name` of a function of a request, or an object.
        model: name of the model at an `Endpoint`, instead of a policy.
        base_url: address of the endpoint; None: $OPENAI_BASE_URL, or OpenAI's own.
        api_key_env: NAME of the variable that holds the key.
        votes: how often each question is asked.
        method: how several votes become one (`aggregate`).
        ties: what becomes of ties among votes (`aggregate`).
        weights: by criterion; one that has none counts 1.
        instructions: a Jinja template of every question, or its file `….j2`; see `Judged`.
        ledger: file of the endpoint's `Ledger`; None: in memory.
        calls: most requests of the ledger (`Budget`).
        tokens: most tokens of the ledger.
        price: most that the ledger may cost.
        **endpoint: further options of `Endpoint`.

    Raises:
        InputError: not exactly one of rubric, items and question, or none or both of policy and model.
    """
    if sum(each is not None for each in (rubric, items, question)) != 1:
        raise InputError("judged: give one of rubric, items and question")
    if (policy is None) == (model is None):
        raise InputError("judged: give policy=…, or model=… of an endpoint")
    found = read_rubric(rubric) if rubric else items_of(items or {"score": question or ""})
    asker = None
    if model is not None:
        budget = Budget(calls, tokens, price)
        asker = Endpoint(model, base_url=base_url, api_key_env=api_key_env, ledger=ledger, budget=budget, **endpoint)
    return Judged(
        found, asker, policy=policy, votes=votes, method=method, ties=ties, weights=weights, instructions=instructions
    )
