"""Reward programs in a run: from a file, or written by a model that is told what is wrong and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Policy
from palaestra.algebra.keys import is_last
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges import asking
from palaestra.judges.known_answers import KnownAnswers
from palaestra.judges.metering import Limits
from palaestra.judges.programs import RewardProgram, annotate, declared_columns
from palaestra.judges.prompts import Brief, NameMap, describe, revise_prompt, similar
from palaestra.judges.templates import own_prompts
from palaestra.judges.writing import write
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.stage import Context, Stage, stage

SAMPLE = 200
"""Turns on which a program that was written is checked."""


@stage
class program(Stage):
    """Stage: runs a reward program in the sandbox on every turn: columns `r_FUNCTION`, null with a reason if it fails.

    With a `writer` it is written in the run ([34], [216]): described are the task and the columns, checked is each
    proposal on the first turns, and every refusal is told to the writer, `attempts` times; what passes is the reward,
    and is written anew every `revise` iterations, told how the team did under it. Nothing that passes leaves the
    columns missing, and the next iteration asks again. The reward of a file alone is also the signal `program(…)`.
    With functions=["compute_dense_reward"] the writer is asked as Text2Reward asks it.

    Args:
        path: of the file. functions: those that are called once a turn: ["dense", "sparse"] is Auto MC-Reward's pair,
            whose reward is `auto_mc_reward()`. columns: what a turn shows; default: what the file declares.
        writer: policy of the recipe, or `module:name`; see `asking.Adviser`. task: what the team is to do.
        names: general names that the writer reads and writes, each with the column that it stands for. examples: solved
            tasks with their code, of which the most similar one is shown. attempts, revise, budget: of the writer.
            instructions: a Jinja template of what the writer is asked, or its file `….j2`; its variables are those of
            `program` in `palaestra.judges.templates.KNOWN`.

    Raises:
        InputError: not exactly one of path and writer; a writer without columns or task.
    """

    adds = {
        "r_reward": "what the program pays for the turn",
        "r_dense": "its function `dense`",
        "r_sparse": "its function `sparse`",
    }

    def __init__(
        self,
        path: str | None = None,
        *,
        functions: Sequence[str] = ("reward",),
        columns: Sequence[str] = (),
        writer: str | Policy | None = None,
        task: str = "",
        names: Mapping[str, str] | None = None,
        examples: Mapping[str, str] | None = None,
        attempts: int = 5,
        revise: int | None = None,
        budget: Limits = None,
        instructions: str | None = None,
    ) -> None:
        if (path is None) == (writer is None) or not functions:
            raise InputError("program: give a path or a writer, and at least one function")
        if writer is not None and not (task and columns):
            raise InputError("program: a writer is told a task and the columns that a turn shows; give both")
        if attempts < 1 or (revise is not None and revise < 1):
            raise InputError(f"program: {attempts=} and {revise=} must be at least 1")
        self.functions, self.task, self.attempts, self.revise = tuple(functions), task, attempts, revise
        template = RewardProgram("", functions[0], tuple(columns))
        self.program = template if path is None else RewardProgram.load(path, columns=tuple(columns))
        self._own = own_prompts(instructions, ("program",), "program")
        self.names, self.examples = NameMap(dict(names or {})), dict(examples or {})
        self.writer = None if writer is None else Adviser(writer, budget=budget)
        self.asks = () if self.writer is None else self.writer.asks
        self.needs = set(self.program.columns or declared_columns(self.program.source)) | {"episode", "agent"}
        self.adds = {f"r_{name}": f"what `{name}` pays for the turn" for name in self.functions}
        self.attempted: list[str] = []
        self._known = KnownAnswers()

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with each function's reward, and a text column with the reason where one failed."""
        due = self.revise is not None and context.iteration > 1 and not (context.iteration - 1) % self.revise
        if self.writer is not None and (due or not self.program.source):
            self._write(turns, context)
        if not self.program.source:
            return turns.with_column(**{name: np.full(len(turns), np.nan) for name in self.adds})
        for name in self.functions:
            turns = annotate(turns, replace(self.program, function=name), name, known=self._known)
        return turns

    def _write(self, turns: Turns, context: Context) -> None:
        assert self.writer is not None
        general, columns = self.names.to_general, self.program.columns
        brief = Brief(self.task, general(describe(turns, columns)), own=self._own)
        if set(self.functions) == {"dense", "sparse"}:
            prompt = brief.auto_mc()
        elif self.functions == ("compute_dense_reward",):
            prompt = brief.text2reward(similar(self.task, self.examples))
        else:
            prompt = brief.step(self.functions)
        if self.program.source:
            prompt = revise_prompt(prompt, general(self.program.source), general(_summary(turns, columns)))
        ask = asking(self.writer.begin(context), seed=context.seed)
        sample = Turns(turns.frame.head(SAMPLE))
        found, attempts = write(
            ask, prompt, self.program, sample, functions=self.functions, attempts=self.attempts,
            specific=self.names.to_specific,
        )  # fmt: skip
        self.attempted = ["; ".join(map(str, each.issues)) for each in attempts]
        if found is not None:
            self.program = found

    def state_dict(self) -> dict[str, Any]:
        """State: the program, and that of the writer."""
        return {"source": self.program.source, "writer": None if self.writer is None else self.writer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.program = replace(self.program, source=state["source"])
        if self.writer is not None:
            self.writer.load_state_dict(state["writer"])


def _summary(turns: Turns, columns: Sequence[str] = ()) -> str:
    """Summary of the team's play: success, length, what happened how often, how failed episodes ended, the worst."""
    score = np.asarray(episode_score("success").evaluate(turns), float)
    bad = int(np.nanargmin(score)) if np.isfinite(score).any() else 0
    segments, codes = turns.segments("episode"), turns.codes("episode").ids
    played = np.arange(len(turns)) if segments.order is None else segments.order
    acts = ", ".join(str(action) for action in turns["action"][played[codes[played] == codes[bad]]].head(20))
    episodes = turns.codes("episode").size
    length = len(turns) / episodes
    told = f"Success {np.nanmean(score):.2f} in {episodes} episodes of {length:.1f} turns."
    marks = [name for name in columns if turns.frame.schema[name] == pl.Boolean]
    often = ", ".join(f"{name} {turns[name].sum() / episodes:.1f}" for name in marks)
    told += f" Per episode: {often}." if often else ""
    return f"{told}\n{_causes(turns, columns)}A bad one: {acts}"


def _causes(turns: Turns, columns: Sequence[str]) -> str:
    """Line on failed episodes: in how many the last turn had each of the columns that are true or false."""
    last = turns.frame.filter(np.asarray(is_last(over="episode").evaluate(turns)) > 0)
    if "success" not in last.columns:
        return ""
    failed = last.filter(~pl.col("success").cast(pl.Boolean).fill_null(False))
    ends = [f"{name} in {failed[name].sum()}" for name in columns if failed.schema[name] == pl.Boolean]
    return f"{len(failed)} failed; at their end: {', '.join(ends)}.\n" if ends and len(failed) else ""
