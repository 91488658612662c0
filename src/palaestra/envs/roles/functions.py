"""`Functions`: short Python functions specified in words, scored by hidden tests in the sandbox.

A specification takes some numbers of a list, changes each, and reduces them: "Take the even numbers of xs, square each,
and return the sum." The answer is one expression in `xs`, or a program with a function `f(xs)`. Hidden tests follow
from the task's key, and specifications are held out by it (`palaestra.envs.task_keys`). Four visible tests make the
task's report on an answer, for a reviewer. Left out: programs of several files.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from palaestra.envs.registry import ENVS
from palaestra.envs.sandbox import Limits, run_table
from palaestra.envs.task_keys import is_held_out, task_id, task_key
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, nearest

LIMITS = Limits(cpu=2, wall=2.0, memory=256 * 2**20, values=64)
TESTS = 6
VISIBLE = 4
ONE_PROCESS = "def _test(xs, memory): return f(xs)"
"""All tests of a program share a process, which takes half the time."""
SPLITS = ("train", "test", "all")
DIGITS = range(1, 10)
TAKES: Mapping[str, str] = {
    "all numbers": "",
    "even numbers": "x % 2 == 0",
    "odd numbers": "x % 2 == 1",
    "positive numbers": "x > 0",
    "negative numbers": "x < 0",
    **{f"numbers above {k}": f"x > {k}" for k in DIGITS},
}
"""Filter of the numbers: words to a condition."""
CHANGES: Mapping[str, str] = {
    "keep each": "x",
    "square each": "x * x",
    "double each": "2 * x",
    "negate each": "-x",
    **{f"add {k} to each": f"x + {k}" for k in DIGITS},
}
"""Change of each number: words to an expression."""
RETURNS: Mapping[str, str] = {
    "the list": "[{}]",
    "the sum": "sum({})",
    "the largest": "max(({}), default=0)",
    "the smallest": "min(({}), default=0)",
    "how many are distinct": "len({{{}}})",
}
"""Result of the function: words to a template of an expression."""
FULL = (
    "Take the {} of xs, a list of whole numbers, {}, and return {} (0 if there are none and a number is asked for).\n"
    "The answer is one Python expression in xs, such as len(xs); or else a program that defines f(xs), in a fence that "
    "begins on the line below `Answer:`. It is run on hidden tests."
)
SHORT = "{} ; {} ; {}"


class Specification(NamedTuple):
    """Data of a list function as three phrases (takes, changes, returns); `expression` writes it as Python."""

    takes: str
    changes: str
    returns: str

    @property
    def expression(self) -> str:
        """The function as an expression in `xs`."""
        condition = TAKES[self.takes]
        inner = f"{CHANGES[self.changes]} for x in xs{f' if {condition}' if condition else ''}"
        return RETURNS[self.returns].format(inner)


@functools.cache
def specifications() -> tuple[Specification, ...]:
    """Tuple of all 910 `Specification`s, every combination of the three phrases."""
    return tuple(Specification(a, b, c) for a in TAKES for b in CHANGES for c in RETURNS)


@functools.lru_cache(4096)
def hidden_tests(specification: Specification) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Hidden tests of a `Specification`: tuple of (input list, expected result), the same in every process.

    The first list is empty.
    """
    rng = np.random.default_rng(task_key(SHORT.format(*specification)))
    lists = [tuple(int(n) for n in rng.integers(-12, 13, size)) for size in (0, *rng.integers(3, 9, TESTS - 1))]
    function = eval(f"lambda xs: {specification.expression}")  # built from the tables above alone
    return tuple((each, function(each)) for each in lists)


@functools.lru_cache(4096)
def visible_tests(specification: Specification) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Tests of a `Specification` whose outcome may be told: tuple of (input list, expected result)."""
    rng = np.random.default_rng([1, task_key(SHORT.format(*specification))])
    lists = [tuple(int(n) for n in rng.integers(-12, 13, size)) for size in rng.integers(5, 10, VISIBLE)]
    function = eval(f"lambda xs: {specification.expression}")  # built from the tables above alone
    return tuple((each, function(each)) for each in lists)


def report(answer: str, specification: Specification, *, short: bool = False) -> str:
    """Text on an answer in Python: how many visible tests of a `Specification` it passes, and the first that it fails.

    Args:
        answer: An expression or a program.
        specification: That of the task.
        short: One word, "passes" or "fails", for small models.

    >>> report("sum(xs)", Specification("all numbers", "keep each", "the sum"))
    'it passes all 4 visible tests.'
    """
    try:
        failed = [each for each in _ran(_source(answer), specification)[TESTS:] if each]
    except (SyntaxError, ValueError, RecursionError) as error:
        return "fails" if short else f"it cannot be read as Python ({error})."
    if short:
        return "fails" if failed else "passes"
    if not failed:
        return f"it passes all {VISIBLE} visible tests."
    return f"it fails {len(failed)} of {VISIBLE} visible tests. {failed[0]}"


def passed(answer: str, specification: Specification) -> float:
    """Share in [0, 1] of a `Specification`'s hidden tests that an answer (Python expression or function text) passes.

    Raises:
        SyntaxError: the answer is no Python.

    >>> passed("sum(x * x for x in xs)", Specification("all numbers", "square each", "the sum"))
    1.0
    """
    return _passed(_source(answer), specification)


def _source(answer: str) -> str:
    """Program with a function `f` that an answer stands for."""
    tree = ast.parse(answer.strip())
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) and not isinstance(tree.body[0].value, ast.Lambda):
        return f"def f(xs): return {ast.unparse(tree)}"
    return re.sub(r"^lambda\b", "f = lambda", ast.unparse(tree))


@functools.lru_cache(32768)
def _passed(source: str, specification: Specification) -> float:
    right = [not each for each in _ran(source, specification)[:TESTS]]
    return sum(right) / len(right)


@functools.lru_cache(32768)
def _ran(source: str, specification: Specification) -> tuple[str, ...]:
    """For each hidden test and then each visible one: how the program fails it, or ""."""
    tests = hidden_tests(specification) + visible_tests(specification)
    if source == f"def f(xs): return {ast.unparse(ast.parse(specification.expression))}":
        return ("",) * len(tests)  # the expression from which the tests were made
    program = f"{source}\n{ONE_PROCESS}"
    calls, found = [[list(given)] for given, _ in tests], []
    outcomes = run_table(program, "_test", calls, keys=[0] * len(tests), limits=LIMITS)
    for outcome, (given, wanted) in zip(outcomes, tests, strict=True):
        got = f"raises {outcome.error}" if outcome.error is not None else f"is {_whole(outcome.value)}"
        right = outcome.error is None and bool(outcome.value == wanted)
        found.append("" if right else f"f({list(given)}) {got}, but should be {wanted!r}.")
    return tuple(found)


def _whole(value: Any) -> str:
    """A value as Python writes it; whole numbers come out of the sandbox as floats."""
    return re.sub(r"\.0\b", "", repr(value))


@ENVS.register("roles/functions")
class Functions(TaskEnv):
    """One-turn env: `solver` writes a Python function from a specification; reward is the share of tests passed.

    Success: all of them.

    A task env: `env.roles: [writer, reviewer]` makes a pipeline of it, `env.workflow` another team. 910
    specifications, 6 tests of each. An answer that is no Python is not valid.

    Args:
        split: "train", "test" or "all".
        prompt: "full", or "short" for small models, the three phrases alone.
        held_out: share of the specifications that only "test" asks for.

    Raises:
        InputError: there is no such split or prompt, or the share is out of range.
    """

    def __init__(
        self,
        *,
        split: Literal["train", "test", "all"] = "train",
        prompt: Literal["full", "short"] = "full",
        held_out: float = 0.2,
    ) -> None:
        for found, known in ((split, SPLITS), (prompt, ("full", "short"))):
            if found not in known:
                raise InputError(f"Functions: no {found!r} here{nearest(str(found), known)}")
        self.prompt = prompt
        self.known = [
            each
            for each in specifications()
            if split == "all" or bool(is_held_out(task_key(SHORT.format(*each)), held_out)) == (split == "test")
        ]
        if not self.known:
            raise InputError(f"Functions: held_out={held_out} leaves no specification for {split!r}")

    def draw(self, seed: int) -> Task:
        """A specification of the split."""
        found = self.known[int(np.random.default_rng(seed).integers(len(self.known)))]
        text = (SHORT if self.prompt == "short" else FULL).format(*found)
        name = task_id("functions", task_key(SHORT.format(*found)))
        score = functools.partial(passed, specification=found)
        told = functools.partial(report, specification=found, short=self.prompt == "short")
        return Task(name, text, score, found.expression, report=told)


def solve(question: str) -> str | None:
    """Correct Python expression for a question in the short wording `a ; b ; c`; None for another text.

    >>> solve("even numbers ; square each ; the sum")
    'sum(x * x for x in xs if x % 2 == 0)'
    """
    found = Specification(*question.split(" ; ")) if question.count(" ; ") == 2 else None
    if found is None or found.takes not in TAKES or found.changes not in CHANGES or found.returns not in RETURNS:
        return None
    return found.expression


def mistaken(expression: str, rng: np.random.Generator) -> str:
    """Python expression of another specification: a known `expression`'s with one of three parts changed by `rng`."""
    found = by_expression()[expression]
    part = int(rng.integers(3))
    tables: tuple[Mapping[str, str], ...] = (TAKES, CHANGES, RETURNS)
    others = [name for name in tables[part] if name != found[part]]
    parts = list(found)
    parts[part] = others[int(rng.integers(len(others)))]
    return Specification(*parts).expression


@functools.cache
def by_expression() -> Mapping[str, Specification]:
    """Mapping from Python expression to its `Specification`, for all 910."""
    return {each.expression: each for each in specifications()}
