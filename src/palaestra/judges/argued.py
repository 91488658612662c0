"""Labels by four roles: an advocate lists merits, an opponent flaws, a strict judge decides, a reflector checks it.

The path of "Igniting Creative Writing" [104] (arXiv 2508.21476) to preference pairs for an ordinary reward model. There
good examples are found by embeddings and clicks, here by shared words. The wording of the questions is this project's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.agents.policy import Policy
from palaestra.errors import InputError, nearest
from palaestra.evaluation.analyses import table
from palaestra.judges.asking import Read, Reply
from palaestra.judges.endpoint import Endpoint
from palaestra.judges.judged import Asker, PolicyAsker, asker_of, text_of
from palaestra.judges.prompts import similar
from palaestra.judges.protocol import SCORERS, VERDICTS
from palaestra.judges.reading import fenced, read_reason, read_value
from palaestra.judges.templates import NOTHING, own_prompts, write_prompt

ROLES = {"advocate": "merits", "opponent": "flaws", "judge": "strict", "reflector": "overturn"}
"""Who is asked, in this order, and the prompt of each."""
REVIEW = {
    "merits": pl.String,
    "flaws": pl.String,
    "verdict": pl.Int8,
    "words": pl.String,
    "reason": pl.String,
    "label": pl.Int8,
    "overturned": pl.Boolean,
    "tokens": pl.Int64,
    "cost": pl.Float64,
    "error": pl.String,
}
"""Columns of `Argued.review`."""


class Argued:
    """Scorer that labels answers 1 (good) or 0: merits and flaws are listed, a judge decides, a reflector may overturn.

    A verdict is overturned only by one that gives a reason; a reflector who cannot be read overturns nothing. Where a
    request failed, or the judge's verdict cannot be read, there is no label.

    Args:
        asker: Who plays the roles that have no policy of their own.
        policies: Policies by role (`ROLES`): objects, `module:name`, or names in a recipe.
        examples: Good answers, `prompt` and `response`; those to the most similar prompts are shown to all roles.
        shown: How many of them.
        seed: Of what policies draw.
        instructions: Jinja templates of `merits`, `flaws`, `strict` and `overturn`, or their files `….j2`.

    Raises:
        InputError: a role is unknown, or nobody plays it.
    """

    def __init__(
        self,
        asker: Asker | None = None,
        policies: Mapping[str, str | Policy] | None = None,
        *,
        examples: pl.DataFrame | None = None,
        shown: int = 3,
        seed: int = 0,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        given = dict(policies or {})
        for role in given:
            if role not in ROLES:
                raise InputError(f"argued: {role!r} is no role{nearest(role, ROLES)}; there are {', '.join(ROLES)}")
        if asker is None and (nobody := [role for role in ROLES if role not in given]):
            raise InputError(f"argued: nobody plays {', '.join(nobody)}; give a policy for each, or model=… for all")
        self._own = own_prompts(instructions, tuple(ROLES.values()), "argued")
        self.asker, self.policies, self.shown = asker, given, shown
        self._askers = {role: asker_of(given[role], seed=seed) if role in given else asker for role in ROLES}
        texts = ("prompt", "response")
        self.examples = {} if examples is None else dict(zip(*(text_of(examples, name) for name in texts), strict=True))
        self.name = self._askers["judge"].name if self._askers["judge"] else str(given["judge"])  # type: ignore[union-attr]

    @property
    def asks(self) -> tuple[str, ...]:
        """Names of the recipe's policies that must be bound before scoring."""
        return tuple(
            dict.fromkeys(each for each in self.policies.values() if isinstance(each, str) and ":" not in each)
        )

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policies of these names with `find`, and ask those from now on."""
        for role, policy in self.policies.items():
            if policy in self.asks:
                self._askers[role] = find(str(policy))

    def review(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Table of what was said of each row and what came of it.

        Args:
            rows: `prompt` and `response`, or rows of turns.

        Returns:
            `merits`, `flaws`; the judge's `verdict` and its `words`; the reflector's `reason`, null without one; the
            `label`; whether the verdict was `overturned`; `tokens`, `cost`; `error`, why there is no label.
        """
        tasks, texts = text_of(rows, "prompt", needed=False), text_of(rows, "response")
        found: list[dict[str, Any]] = [{"tokens": 0, "cost": 0.0, "error": None} for _ in texts]
        cases: list[dict[str, Any]] = []
        for task, text in zip(tasks, texts, strict=True):
            near = [tuple(map(fenced, each)) for each in similar(task, self.examples, self.shown)]
            cases.append({"task": fenced(task) if task else "", "response": fenced(text), "examples": near})
        for role, kind in (("advocate", "merits"), ("opponent", "flaws")):
            for at, said in self._ask(role, cases, found, str.strip):
                found[at][kind] = said
                cases[at][kind] = fenced(said) if said else NOTHING
        for at, verdict in self._ask("judge", cases, found, _binary):
            found[at] |= {"verdict": verdict[0], "words": verdict[1], "label": verdict[0], "overturned": False}
            cases[at] |= {"verdict": verdict[0], "words": fenced(verdict[1])}
        for at, (said, words) in self._ask("reflector", cases, found, lambda said: _binary(said) or (None, said)):
            reason = read_reason(words)
            overturned = said is not None and said != found[at]["verdict"] and reason is not None
            found[at] |= {
                "reason": reason,
                "overturned": overturned,
                "label": said if overturned else found[at]["label"],
            }
        for each in found:
            each |= {"label": None, "overturned": None} if each["error"] else {}
        return pl.DataFrame(found, REVIEW)

    def _ask(
        self, role: str, cases: Sequence[Mapping[str, Any]], found: list[dict[str, Any]], read: Read[Any]
    ) -> list[tuple[int, Any]]:
        """(number of the row, what was read) of the rows that are open and could be read; else their error is noted."""
        asker, open_ = self._askers[role], [at for at, each in enumerate(found) if not each["error"]]
        if asker is None:
            raise InputError(f"argued: the policy {self.policies[role]!r} is not here; it is one of a recipe")
        if isinstance(asker, PolicyAsker):
            asker.reads = [read] * len(open_)
        prompts = [(write_prompt(ROLES[role], cases[at], self._own), 0) for at in open_]
        said: list[Reply] = asker.ask(prompts) if prompts else []
        got = []
        for at, reply in zip(open_, said, strict=True):
            found[at]["tokens"] += reply.tokens_in + reply.tokens_out
            found[at]["cost"] += reply.cost
            failed = reply.text is None or reply.error
            made = None if failed else read(str(reply.text))
            if made is None:
                found[at]["error"] = f"{role}: {reply.error or 'its answer cannot be read'}"
            else:
                got.append((at, made))
        return got

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """One verdict per row, its label; see `Judge`. `answer` is "0 > 1" where a 0 was overturned; nothing is voted.

        Raises:
            InputError: there is a reference.
        """
        if reference is not None:
            raise InputError("argued: it labels one answer and compares none; make pairs of labels, all_pairs('score')")
        item = rows["item"] if "item" in rows.columns else pl.Series("item", range(len(rows)), pl.UInt32)
        told = pl.concat_str("words", pl.format("reflector: {}", "reason"), separator="\n", ignore_nulls=True)
        said = pl.when("overturned").then(pl.format("{} > {}", "verdict", "label")).otherwise(pl.format("{}", "label"))
        table = self.review(rows).select(
            item.alias("item"),
            "tokens",
            "cost",
            criterion=pl.lit("label"),
            judge=pl.lit(self.name),
            sample=pl.lit(0),
            order=pl.lit(None),
            value="label",
            answer=said,
            rationale=pl.coalesce(pl.format("error: {}", "error"), told),
            ok=pl.col("label").is_not_null(),
        )
        return table.select("item", *(pl.col(name).cast(kind) for name, kind in VERDICTS.items()))

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """The label of each row, 1.0 or 0.0; null without one. A condition is not looked at. See `Scorer`."""
        return self.verdicts(rows, reference=reference)["value"].alias("score")


def _binary(said: str) -> tuple[int, str] | None:
    """A verdict of 0 or 1, and all that was said; nothing in between is one."""
    value = read_value(said)
    return (int(value), said.strip()) if value in (0, 1) else None


@SCORERS.register()
def argued(
    policy: str | Policy | None = None,
    *,
    advocate: str | Policy | None = None,
    opponent: str | Policy | None = None,
    judge: str | Policy | None = None,
    reflector: str | Policy | None = None,
    model: str | None = None,
    examples: str | None = None,
    shown: int = 3,
    seed: int = 0,
    instructions: Mapping[str, str] | None = None,
    **endpoint: Any,
) -> Argued:
    """Makes a scorer of labels 0 and 1 by advocate, opponent, strict judge and reflector: `argued(model="…")` ([104]).

    Args:
        policy: who plays the roles that are not named: of the recipe by name, `module:name`, or an object.
        advocate: who lists merits.
        opponent: who lists flaws.
        judge: who decides.
        reflector: who may overturn a verdict, with a reason.
        model: name of the model at an `Endpoint` that plays the roles that are not named.
        examples: file of good answers, `prompt` and `response`.
        shown: how many of them are shown.
        seed: of what policies draw.
        instructions: Jinja templates of `merits`, `flaws`, `strict` and `overturn`, or their files `….j2`.
        **endpoint: further options of `Endpoint`.

    Raises:
        InputError: both of policy and model, or nobody for a role.
    """
    if policy is not None and model is not None:
        raise InputError("argued: give policy=…, or model=… of an endpoint")
    named = {"advocate": advocate, "opponent": opponent, "judge": judge, "reflector": reflector}
    policies = {role: each or policy for role, each in named.items() if each or policy}
    good = None if examples is None else table(Path(examples), "prompt", "response")
    asker = Endpoint(model, **endpoint) if model is not None else None
    return Argued(asker, policies, examples=good, shown=shown, seed=seed, instructions=instructions)  # type: ignore[arg-type]
