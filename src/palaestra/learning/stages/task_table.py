"""The stage `task_table`: keeps the tasks of a run as a table, and chooses from it what is played next."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.envs.task_keys import task_keys
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked
from palaestra.learning.task_diversity import distinct_share, drift, effective_number, word_shares
from palaestra.learning.task_samplers import AdaptiveLevel, sampler
from palaestra.learning.task_table import TASKS, check_leaks, dedupe
from palaestra.teams.pipeline import SEPARATOR

if TYPE_CHECKING:
    from palaestra.play.executors import Plan

KEY = ("group", "episode")
COUNTED = ("difficulty", "n", "updated_at")
"""Columns that answers change."""
PROPOSE = SEPARATOR.rstrip()
"""Separator after the question in the observation of a seat that proposes."""


@stage
class task_table(Stage):
    """Stage: keeps a table of every task played or proposed, with its estimated difficulty, written to `tasks/`.

    Difficulty is 1 - the mean score of all answers so far. The metrics say how many tasks were accepted and refused,
    the share of distinct proposals, their effective number and their drift from the first iteration's.

    Args:
        sample: which known tasks are played again: `learnable(low=0.05, high=0.95)`, `percentile(start=0.2, end=1.0,
            steps=100)`, `adaptive_level(levels=5)`; see `palaestra.learning.task_samplers`. None: all groups are fresh.
        share: of the groups that are played again, at most.
        held_out: names or texts of tasks that must never be trained on.
        alike: proposals whose words have at least this Jaccard similarity with an earlier one of the iteration's count
            as repeated, too; AgentEvolver takes .8.
        score: text of the signal that says how an episode of a given task went, in [0, 1].

    Raises:
        InputError: an argument is wrong; or a task that is held out, or was proposed from one, was played.
    """

    needs: tuple[str, ...] = ("group", "episode", "turn", "agent", "task", "seed", "observation", "success")
    adds = {"repeats": "how often the proposal was made before in this run; null without one"}
    notes = ()

    def __init__(
        self,
        *,
        sample: str | None = None,
        share: float = 0.5,
        held_out: tuple[str, ...] = (),
        alike: float | None = None,
        score: str = "success",
    ) -> None:
        if not 0 < share <= 1:
            raise InputError(f"task_table: share={share} must be in (0, 1]")
        self.sampler, self.share = sampler(sample) if sample else None, share
        self.held_out, self.score, self.alike = tuple(held_out), parse(score), alike
        dedupe(pl.DataFrame({"text": ["a"]}), alike)
        self.needs = (*type(self).needs, *sorted(self.score.needs()))
        self.table = pl.DataFrame(schema=TASKS)
        self.told = self.table
        """Rows that the last iteration added or changed."""
        self._words: dict[str, float] = {}
        self._counts: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with sampled known tasks in the first groups."""
        if self.sampler is None:
            return plan
        known = self.table.filter(source="env")
        rows = self.sampler.choose(known, round(self.share * len(plan.numbers)), plan.iteration, context.rng)
        fresh = plan.env_seeds or [None] * len(plan.numbers)
        chosen: list[int | None] = known["seed"].gather(rows).to_list()
        return dataclasses.replace(plan, env_seeds=[*chosen, *fresh[len(chosen) :]])

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `repeats`; stores its tasks."""
        frame = turns.with_column(_score=episode_score(self.score)).frame
        given, proposed = self._given(frame, context.iteration), self._proposed(frame, context.iteration)
        new = pl.concat([given, proposed])
        places = self.table["id"].is_in(new["id"].implode()).arg_true()
        known = self.table[places]
        self.told = _merged(new, known)
        check_leaks(self.told, self.held_out)
        again = known.select("id").join(self.told, on="id", how="left", maintain_order="left")
        self.table = self.table.with_columns(self.table[name].scatter(places, again[name]) for name in COUNTED)
        self.table.extend(self.told.join(known, on="id", how="anti", maintain_order="left"))
        self._measure(frame, context)
        return self._with_repeats(turns)

    def _given(self, frame: pl.DataFrame, iteration: int) -> pl.DataFrame:
        """Tasks of the env, scored where nothing was proposed in their place."""
        plays = frame.sort(*KEY, "turn").group_by(*KEY, maintain_order=True)
        free = pl.col("proposed_from").is_null().all() if "proposed_from" in frame.columns else pl.lit(True)
        first = ("task", "seed", "observation")
        expected = pl.col("expected").drop_nulls().first() if "expected" in frame.columns else pl.lit(None, pl.String)
        played = plays.agg(
            pl.col(*first).first(), pl.col("_score").first(), free.alias("_free"), expected.alias("_expected")
        )
        played = played.with_columns(_score=pl.when("_free").then(pl.col("_score").fill_nan(None)))
        return _rows(
            played.group_by("task", maintain_order=True).agg(
                pl.col("observation", "seed").first(),
                pl.col("_expected").filter(pl.col("_free")).first(),
                pl.col("_score").mean().alias("_mean"),
                pl.col("_score").count().alias("n"),
            ),
            iteration,
            id=pl.col("task"),
            text=pl.col("observation").str.strip_suffix(PROPOSE),
            source=pl.lit("env"),
            status=pl.lit("given"),
        )

    def _proposed(self, frame: pl.DataFrame, iteration: int) -> pl.DataFrame:
        if "proposal" not in frame.columns:
            return pl.DataFrame(schema=TASKS)
        said = frame.filter(pl.col("proposal").is_not_null())
        answers = frame.filter(pl.col("score").is_not_null()).group_by(KEY).agg(
            pl.col("score").sum().alias("_sum"), pl.col("score").count().alias("n")
        )  # fmt: skip
        said = said.join(answers, on=KEY, how="left", maintain_order="left")
        names = [f"refused:{key:016x}" for key in task_keys(said["proposal"].to_list()).tolist()]
        said = said.with_columns(_id=pl.coalesce("proposed", pl.Series(names, dtype=pl.String)))
        return _rows(
            said.group_by("_id", maintain_order=True).agg(
                pl.col("proposal", "proposed_from", "refused", "seed").first(),
                pl.col("policy").cast(pl.String).first(),
                pl.col("expected").first().alias("_expected"),
                (pl.col("_sum").sum() / pl.col("n").sum()).fill_nan(None).alias("_mean"),
                pl.col("n").sum(),
            ),
            iteration,
            id=pl.col("_id"),
            text=pl.col("proposal"),
            parent=pl.col("proposed_from"),
            proposer=pl.col("policy"),
            source=pl.lit("proposer"),
            status=pl.when(pl.col("refused").is_null()).then(pl.lit("accepted")).otherwise(pl.lit("refused")),
            why=pl.col("refused"),
        )

    def _measure(self, frame: pl.DataFrame, context: Context) -> None:
        if "proposal" in frame.columns:
            said = frame.filter(pl.col("proposal").is_not_null())
            texts = said["proposal"].to_list()
            words = word_shares(texts)
            self._words = self._words or words
            context.metrics |= {
                "proposed": len(texts),
                "refused": int(said["refused"].is_not_null().sum()),
            }
            if said["refused"].is_not_null().any():
                context.notes["refused_why"] = str(said["refused"].drop_nulls().mode().sort()[0])
            if texts:
                context.metrics |= {
                    "distinct": distinct_share(texts),
                    "effective": effective_number(texts),
                    "drift": drift(words, self._words),
                }
        context.metrics["known"] = len(self.table)
        if isinstance(self.sampler, AdaptiveLevel):
            ends = frame.unique(KEY, keep="first", maintain_order=True)  # an episode counts once, however long
            if isinstance(mean := ends["_score"].fill_nan(None).mean(), float):
                self.sampler.report(mean)
            context.metrics["level"] = self.sampler.level

    def _with_repeats(self, turns: Turns) -> Turns:
        if "proposal" not in turns.columns:
            return turns.with_column(repeats=np.full(len(turns), np.nan))
        texts = turns["proposal"].to_list()
        said = [at for at, text in enumerate(texts) if text is not None]
        repeats = np.full(len(turns), np.nan)
        for at, key in zip(said, task_keys(texts[at] for at in said).tolist()):
            repeats[at] = self._counts.get(key, 0)
            self._counts[key] = self._counts.get(key, 0) + 1
        if self.alike is not None:
            found = pl.DataFrame({"at": said, "text": [texts[at] for at in said]}, {"at": pl.Int64, "text": pl.String})
            again = found.join(dedupe(found, self.alike), on="at", how="anti")["at"].to_numpy()
            repeats[again] = np.maximum(repeats[again], 1.0)
        return turns.with_column(repeats=repeats)

    def state_dict(self) -> dict[str, Any]:
        """State: the table of tasks, counts of proposals, and the sampler's level."""
        level = dataclasses.asdict(self.sampler) if isinstance(self.sampler, AdaptiveLevel) else {}
        keys = sorted(self._counts)
        return {
            "table": packed(self.table),
            "keys": np.array(keys, np.uint64),
            "counts": np.array([self._counts[key] for key in keys], np.int64),
            "words": json.dumps(self._words),
            "level": level,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        found = unpacked(state["table"])
        self.table = pl.DataFrame(schema=TASKS) if found is None else found
        self._counts = dict(zip(np.asarray(state["keys"]).tolist(), np.asarray(state["counts"]).tolist()))
        self._words = json.loads(state["words"])
        if isinstance(self.sampler, AdaptiveLevel):
            self.sampler = AdaptiveLevel(**state["level"])


def _merged(new: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """New rows with what was known of them: who proposed them first and when, and all answers."""
    old = known.select("id", *(pl.col(name).alias(f"_{name}") for name in TASKS if name != "id"))
    both = new.join(old, on="id", how="left", maintain_order="left")
    there, answers = pl.col("_created_at").is_not_null(), pl.col("n") + pl.col("_n").fill_null(0)
    failed = sum((pl.col(f"{side}difficulty") * pl.col(f"{side}n")).fill_null(0.0) for side in ("", "_"))
    kept = [name for name in TASKS if name not in ("id", *COUNTED)]
    return both.with_columns(
        *(pl.when(there).then(f"_{name}").otherwise(name).alias(name) for name in kept),
        n=answers,
        difficulty=pl.when(answers > 0).then(failed / answers),
    ).select(*TASKS)


def _rows(found: pl.DataFrame, iteration: int, **columns: pl.Expr) -> pl.DataFrame:
    """Rows of the table; `_mean`, `n` and `_expected` are what was seen of each task."""
    nothing: dict[str, Any] = {name: pl.lit(None) for name in ("parent", "proposer", "why")}
    options = [
        json.dumps({"expected": text}, ensure_ascii=False) if text is not None else "{}"
        for text in found["_expected"].to_list()
    ]
    made = nothing | columns | {
        "options": pl.Series(options, dtype=pl.String),
        "difficulty": 1 - pl.col("_mean"),
        "created_at": pl.lit(iteration),
        "updated_at": pl.lit(iteration),
    }  # fmt: skip
    return found.select(
        *(
            (pl.col(name) if name in ("n", "seed") else made[name]).alias(name).cast(kind)
            for name, kind in TASKS.items()
        )
    )
