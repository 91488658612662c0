"""How a model writes a reward program: propose, check, train briefly, summarise, revise.

The model is a function from prompts to answers (`palaestra.judges.writer` makes one of any endpoint), training is
a function from a program to a score and a summary. Everything that a model gets wrong is told to it in a sentence.
Left out: evolution over many programs (`design` keeps the best of its rounds).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.sandbox import read, screen
from palaestra.errors import InputError, nearest
from palaestra.judges.programs import RewardProgram
from palaestra.judges.prompts import repair_prompt, revise_prompt

Ask = Callable[[Sequence[str]], list[str]]
"""Prompts to answers, in order."""
Train = Callable[[RewardProgram], tuple[float, str]]
"""Brief training under a program: the score by which programs are compared, and what the trained policy does."""
Audit = Callable[[Turns, np.ndarray], str | None]
"""A further check of a reward: the table and the values, and what is wrong with them, or None."""


@dataclass(frozen=True)
class Issue:
    """Data of one reason why a reward program is not accepted: its kind, and what it is.

    kind: syntax, language, unknown column, error, result, non-deterministic, constant or audit.
    """

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True)
class Proposal:
    """Data of a reward program that a model proposed, and the issues that were found in it."""

    program: RewardProgram
    issues: list[Issue]


@dataclass(frozen=True)
class Round:
    """Data of a round of `design`: accepted program or None, all attempts, and the score and summary of training."""

    program: RewardProgram | None
    attempts: list[Proposal]
    score: float = float("-inf")
    summary: str = ""


def check(
    program: RewardProgram,
    sample: Turns,
    *,
    functions: Sequence[str] = (),
    audits: Sequence[Audit] = (),
    rare: Sequence[str] = ("sparse",),
) -> list[Issue]:
    """List of the `Issue`s of a `RewardProgram`, checked on a sample of `Turns`; empty if there are none.

    Args:
        program: the program.
        sample: a table of a few episodes.
        functions: those to check; default, the program's one.
        audits: further checks of the values on the sample, such as `palaestra.evaluation.audits` has.
        rare: functions that may be 0 all over the sample: what they tell of need not have happened in it.
    """
    issues: list[Issue] = []
    for name in functions or (program.function,):
        each = replace(program, function=name)
        issues += _check_text(each) or _check_values(each, sample, audits, may_rest=name in rare)
    return list(dict.fromkeys(issues))


def _check_text(program: RewardProgram) -> list[Issue]:
    found = screen(program.source, program.function, parameters=2 if program.remembers else 1)
    issues = [Issue("syntax" if "syntax error" in f.what else "language", str(f)) for f in found]
    if issues:
        return issues
    body = read(program.source).body
    node = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == program.function][-1]
    turn = next((argument.arg for argument in [*node.args.posonlyargs, *node.args.args]), None)
    for each in ast.walk(node):
        match each:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name == turn:
                if key not in program.sees:
                    known = nearest(key, program.sees)
                    issues.append(Issue("unknown column", f"line {each.lineno}: the turn has no {key!r}{known}"))
    return issues


def _check_values(
    program: RewardProgram, sample: Turns, audits: Sequence[Audit], *, may_rest: bool = False
) -> list[Issue]:
    outcomes = program.run(sample)
    for row, outcome in enumerate(outcomes):
        if outcome.error is not None:
            kind = "result" if outcome.error.startswith(("result:", "TypeError: return")) else "error"
            return [Issue(kind, f"in row {row} of the sample: {outcome.error}")]
    again = program.run(Turns(sample.frame))
    for row, (one, other) in enumerate(zip(outcomes, again, strict=True)):
        if one != other:
            return [Issue("non-deterministic", f"row {row} of the sample got {one.value}, then {other.value}")]
    values = [tuple(each.value) if isinstance(each.value, list) else (each.value,) for each in outcomes]
    if len(values) > 1 and len(set(values)) == 1 and not (may_rest and values[0][0] == 0):
        return [Issue("constant", f"every turn of the sample gets {outcomes[0].value}; nothing can be learned from it")]
    if len(set(map(len, values))) > 1:
        return [Issue("result", f"lists of {sorted(set(map(len, values)))} values; always return as many")]
    if len(values[0] if values else ()) != 1:
        return []
    scores = np.array([np.nan if value is None else value for (value,) in values], float)
    return [Issue("audit", found) for audit in audits if (found := audit(sample, scores)) is not None]


def read_code(answer: str) -> str:
    r"""The code in a model's answer: its last fenced block, or all of it.

    >>> read_code("Here:\n```python\ndef reward(turn): return 1\n```\nGood luck!")
    'def reward(turn): return 1'
    """
    blocks = re.findall(r"```[a-zA-Z]*\n(.*?)```", answer, re.DOTALL)
    return (blocks[-1] if blocks else answer).strip()


def write(
    ask: Ask,
    prompt: str,
    template: RewardProgram,
    sample: Turns,
    *,
    functions: Sequence[str] = (),
    audits: Sequence[Audit] = (),
    attempts: int = 5,
    specific: Callable[[str], str] = str,
) -> tuple[RewardProgram | None, list[Proposal]]:
    """Ask a model (`ask`) until a `RewardProgram` made of `template` passes `check` on `Turns`: (it or None, attempts).

    The pair (program or None, proposals).

    Each refusal is told to the model with its reasons.

    Args:
        ask: from a prompt to the model's answer.
        prompt: what is asked for.
        template: a program without source: its function, columns and limits.
        sample: a table of a few episodes, for `check`.
        functions: those to check; default, the template's one.
        audits: further checks of the values on the sample.
        attempts: most answers that are read.
        specific: from the code that the model wrote to what is run, such as `NameMap(...).to_specific`.

    Returns:
        The program, None if none of the attempts passed, and the attempts.
    """
    if attempts < 1:
        raise InputError(f"write: attempts={attempts} must be at least 1")
    made: list[Proposal] = []
    question = prompt
    for _ in range(attempts):
        code = read_code(ask([question])[0])
        program = replace(template, source=specific(code))
        issues = check(program, sample, functions=functions, audits=audits)
        made.append(Proposal(program, issues))
        if not issues:
            return program, made
        question = repair_prompt(prompt, code, issues)
    return None, made


def design(
    ask: Ask, prompt: str, template: RewardProgram, sample: Turns, train: Train, *, rounds: int = 3, **options: object
) -> list[Round]:
    """Reward design by model `ask`: write a `RewardProgram`, check on `Turns`, `train`, revise; a list of `Round`.

    The best round is `max(rounds, key=score)`.

    options: of `write`. A round in which no program passes ends the loop.
    """
    done: list[Round] = []
    question = prompt
    for _ in range(rounds):
        program, made = write(ask, question, template, sample, **options)  # type: ignore[arg-type]
        if program is None:
            return [*done, Round(None, made)]
        score, summary = train(program)
        done.append(Round(program, made, score, summary))
        question = revise_prompt(prompt, program.source, summary)
    return done


def write_factors(
    ask: Ask,
    prompt: str,
    template: RewardProgram,
    sample: Turns,
    *,
    candidates: int = 5,
    repairs: int = 5,
    summarise: Ask | None = None,
) -> tuple[RewardProgram | None, list[Proposal]]:
    """[51] LaRe: model `ask` writes and merges factor `RewardProgram`s, checked on `Turns`; (it or None, proposals).

    arXiv 2412.11120.

    ask: at temperature 1 in the released code; summarise: at 0.3, default the same. The factors become columns by
    `annotate(turns, program, "factor")`, and step rewards by `decompose` or `redistribute`. Checked against the card.
    """
    proposed = [read_code(answer) for answer in ask([prompt] * candidates)]
    listed = "\n\n".join(f"Candidate {number}:\n```python\n{code}\n```" for number, code in enumerate(proposed, 1))
    merged = f"{prompt}\n\nThese were proposed:\n\n{listed}\n\nMake one function of them that keeps what is useful."
    return write(summarise or ask, merged, template, sample, attempts=repairs + 1)
