"""Rewards that are programs, written by a model or by hand: run in the sandbox over the turns of any table.

A program is a function of one turn (a dict of the columns that it declares), and of a memory if it takes a second
argument: a dict that lasts for one agent's episode. Nothing else lasts: each turn, or each episode where there is a
memory, is scored in a process of its own, so the order of the table plays no part; an equal call
is made once. A program returns a number, None (not scored), or a list of factors. Who writes programs, and how they are
checked, is in `writing`. Left out: programs that look ahead, and whole-table ones.
"""

from __future__ import annotations

import ast
import hashlib
import math
import warnings
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined
from palaestra.algebra.signals import Keys, Signal, SignalLike, col, register
from palaestra.algebra.turns import Turns
from palaestra.envs.sandbox import CallOutcome, Limits, read, run_table
from palaestra.errors import ExpressionError, RewardError, StorageError, nearest
from palaestra.judges.known_answers import Calls, KnownAnswers
from palaestra.rewards.memory import sign_scale

EPISODE: Keys = ("episode", "agent")
_PROGRAMS: dict[str, RewardProgram] = {}
"""Programs that a signal's text stands for, by digest; so a signal means what its file said when it was built."""
_KNOWN = KnownAnswers()
"""Answers of those programs."""


@dataclass(frozen=True)
class RewardProgram:
    """Reward function as Python source text, with the columns of a turn that it reads; it runs in a sandbox.

    source: its text. function: the one that is called, once a turn. columns: those of the turn's dict; left empty, the
    program says `COLUMNS = ["observation", "action"]` itself. limits: what it may use.

    >>> program = RewardProgram("def reward(turn): return -turn['cost']", columns=("cost",))
    >>> program.score(Turns({"cost": [1.0, None, 0.5]}), over=())[0]  # -None is an error, and missing
    array([-1. ,  nan, -0.5])
    """

    source: str
    function: str = "reward"
    columns: tuple[str, ...] = ()
    limits: Limits | None = None

    @staticmethod
    def load(path: str | Path, **options: Any) -> RewardProgram:
        """Load a reward program from a file.

        Raises:
            StorageError: the file cannot be read.
        """
        try:
            return RewardProgram(Path(path).read_text(encoding="utf-8"), **options)
        except (OSError, UnicodeError) as error:
            raise StorageError(f"{path}: the reward program cannot be read ({error})") from error

    @property
    def digest(self) -> str:
        """Digest of the source, function and columns: equal programs have equal ones."""
        text = "\0".join([self.source, self.function, *self.sees])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def sees(self) -> tuple[str, ...]:
        """The columns: those given, else those that the program declares."""
        return self.columns or declared_columns(self.source)

    @property
    def remembers(self) -> bool:
        """Whether the program's function takes a memory as its second argument."""
        return _arguments(self.source, self.function) == 2

    def run(self, turns: Turns, *, over: Keys = EPISODE, known: KnownAnswers | None = None) -> list[CallOutcome]:
        """Run the program on each row: list of outcomes; a memory lasts for a key of `over`, its rows in order.

        Args:
            turns: The table.
            over: Key of a memory.
            known: Answers of earlier tables, which are not asked for again and to which new ones are added.

        Raises:
            MissingColumnError: the table lacks a column that the program sees.
        """
        keys = joined(over)
        name = ("program", self.digest, *map(str, keys), *self.sees)
        if name not in turns._cache:
            turns._cache[name] = self._run(turns, keys, known)
        found: list[CallOutcome] = turns._cache[name]
        return found

    def _run(self, turns: Turns, keys: tuple[str | Signal, ...], known: KnownAnswers | None) -> list[CallOutcome]:
        for column in self.sees:
            turns._require(column, "reward program: ")
        rows = [_plain(row) for row in turns.frame.select(self.sees).to_dicts()]
        order, starts = self._memories(turns, keys)
        calls = [[rows[row] for row in memory] for memory in np.split(order, starts[1:])] if rows else []
        known = KnownAnswers() if known is None else known
        answers = known.complete(f"{self.digest} {self.limits}", calls, self._call)
        outcomes = [CallOutcome()] * len(turns)
        for row, outcome in zip(order.tolist(), chain.from_iterable(answers), strict=True):
            outcomes[row] = outcome
        blocked = [outcome.error for outcome in outcomes if outcome.blocked]
        if blocked:
            text = f"{self.function}: {len(blocked)} of {len(turns)} rows have no score, and not because of the program"
            warnings.warn(f"reward program {text}; {blocked[0]}", stacklevel=4)
        return outcomes

    def _call(self, calls: Calls) -> list[list[CallOutcome]]:
        """Outcomes of the turns of each memory."""
        flat = [[row] for call in calls for row in call]
        owner = np.repeat(np.arange(len(calls)), [len(call) for call in calls]).tolist()
        found = run_table(self.source, self.function, flat, keys=owner if self.remembers else None, limits=self.limits)
        outcomes = iter(found)
        return [list(islice(outcomes, len(call))) for call in calls]

    def _memories(self, turns: Turns, keys: tuple[str | Signal, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Rows in the order of play, and where the rows of each memory start; every row where none is used."""
        if not _uses_memory(self.source, self.function):
            return np.arange(len(turns)), np.arange(len(turns))
        segments = Evaluation(turns).segments(keys)
        return np.arange(len(turns)) if segments.order is None else segments.order, segments.starts

    def score(
        self, turns: Turns, *, item: int | None = None, over: Keys = EPISODE, known: KnownAnswers | None = None
    ) -> tuple[np.ndarray, list[str | None]]:
        """(scores float64[rows], NaN where there is none; errors) of a run; item: of a program that returns lists."""
        outcomes = self.run(turns, over=over, known=known)
        values, problems = np.full(len(outcomes), np.nan), [outcome.error for outcome in outcomes]
        for row, outcome in enumerate(outcomes):
            value = outcome.value
            if isinstance(value, list):
                if item is None or not -len(value) <= item < len(value):
                    problems[row] = f"result: a list of {len(value)}; choose an item of it"
                    continue
                value = value[item]
            values[row] = np.nan if value is None else value
        return values, problems


def declared_columns(source: str) -> tuple[str, ...]:
    """Tuple of the names in a program's `COLUMNS = [...]`, read without running it; empty if it has none."""
    try:
        body = read(source).body
    except SyntaxError:
        return ()
    for node in body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", None) for target in node.targets] == ["COLUMNS"]:
            try:
                names = ast.literal_eval(node.value)
            except ValueError:
                return ()
            return tuple(map(str, names)) if isinstance(names, list | tuple) else (str(names),)
    return ()


def _function(source: str, name: str) -> ast.FunctionDef | None:
    """The last function of this name at the top of a program; None if there is none."""
    try:
        body = read(source).body
    except SyntaxError:
        return None
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def _arguments(source: str, function: str) -> int:
    """Number of arguments that a function must be given; 1 if it cannot be found."""
    node = _function(source, function)
    return 1 if node is None else len([*node.args.posonlyargs, *node.args.args]) - len(node.args.defaults)


def _uses_memory(source: str, function: str) -> bool:
    """Whether a function takes a memory and names it; the turns of one that does not are independent."""
    node = _function(source, function)
    if node is None or _arguments(source, function) != 2:
        return False
    memory = [*node.args.posonlyargs, *node.args.args][1].arg
    return any(isinstance(each, ast.Name) and each.id == memory for each in ast.walk(node))


def _plain(value: Any) -> Any:
    """As JSON knows it: NaN and infinity are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def annotate(
    turns: Turns, program: RewardProgram, name: str, *, over: Keys = EPISODE, known: KnownAnswers | None = None
) -> Turns:
    """A copy of `Turns` with values of a `RewardProgram` as column `r_<name>` (lists: `name_0`, `name_1` …) and errors.

    The text column `r_<name>_error` (`name_error`) is null where nothing did. A list that is shorter than the longest
    leaves the rest missing.

    >>> program = RewardProgram("def reward(turn): return [turn['cost'], 1]", columns=("cost",))
    >>> annotate(Turns({"cost": [1.0, 0.5]}), program, "factor", over=())["factor_0"].to_list()
    [1.0, 0.5]
    """
    outcomes = program.run(turns, over=over, known=known)
    lists = [outcome.value for outcome in outcomes if isinstance(outcome.value, list)]
    problems = pl.Series([outcome.error for outcome in outcomes], dtype=pl.String)
    if not lists:
        scores: dict[str, Any] = {f"r_{name}": program.score(turns, over=over)[0], f"r_{name}_error": problems}
        return turns.with_column(**scores)
    matrix = np.full((len(outcomes), max(map(len, lists))), np.nan)
    for row, outcome in enumerate(outcomes):
        if isinstance(outcome.value, list):
            matrix[row, : len(outcome.value)] = [np.nan if each is None else each for each in outcome.value]
    columns: dict[str, Any] = {f"{name}_{number}": values for number, values in enumerate(matrix.T)}
    return turns.with_column(**columns | {f"{name}_error": problems})


# -- as signals -------------------------------------------------------------------------------------------------------


@register()
def program(
    path: str, *columns: str, function: str = "reward", item: int | None = None, over: Keys = EPISODE
) -> Signal:
    """Signal: value of the reward program in a file for each turn; missing where it fails or returns None.

    columns: what it sees, if its `COLUMNS` does not say. item: of a program that returns lists, e.g. LaRe's factors:
    redistribute(program("factors.py", item=0), program("factors.py", item=1), 1). A table is scored once.

    Raises:
        StorageError: the file cannot be read. ExpressionError: the program does not say which columns it sees.
        RewardError: it fails on every row.
    """
    return program_signal(RewardProgram.load(path, function=function, columns=tuple(columns)), item=item, over=over)


def program_signal(program: RewardProgram, *, item: int | None = None, over: Keys = EPISODE) -> Signal:
    """Signal: the values of a `RewardProgram` object for each turn, or one `item` of the lists that it returns."""
    if not program.sees:
        raise ExpressionError('program: which columns does it see? Let it say COLUMNS = ["observation", "action"]')
    _PROGRAMS[program.digest] = program
    return program_values(*program.sees, digest=program.digest, item=item, over=over)


@register()
def program_values(*columns: SignalLike, digest: str, item: int | None = None, over: Keys = EPISODE) -> Signal:
    """Signal: values of the program with this digest, loaded earlier in this process; `program` makes it.

    Raises:
        ExpressionError: no such program was loaded.
    """
    if digest not in _PROGRAMS:
        raise ExpressionError(f"program_values: no program {digest!r} was loaded{nearest(digest, _PROGRAMS)}")
    inputs = [each if isinstance(each, Signal) else col(str(each)) for each in columns]
    return Signal("program_values", *inputs, digest=digest, item=item, over=joined(over))


@kernel("program_values")
def _program_values(evaluation: Evaluation, node: Signal) -> np.ndarray:
    program = _PROGRAMS[node.options["digest"]]
    values, problems = program.score(
        evaluation.turns, item=node.options["item"], over=node.options["over"], known=_KNOWN
    )
    if len(values) and all(problems):
        raise RewardError(f"the reward program fails on every row, on the first with: {problems[0]}")
    return values


@register()
def auto_mc_reward(sparse: SignalLike = "r_sparse", dense: SignalLike = "r_dense", *, weight: float = 0.1) -> Signal:
    """Signal: sgn(sparse) + `weight` · sgn(dense), of two program-written rewards; [34] Auto MC-Reward (2312.09238).

    sparse, dense: columns that `annotate` added, or program("reward.py", function="sparse"). From secondary text.
    """
    return sign_scale(sparse) + sign_scale(dense, size=weight)
