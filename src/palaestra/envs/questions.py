"""Short wordings and solvers for reasoning-gym's data sets with short questions.

A small model pays for every token, and a scripted policy must find the answer in the text that the agent sees, in
either wording. Left out: data sets whose questions are long by nature. Beware of `basic_arithmetic` with
`allow_parentheses: false`: reasoning-gym 0.1.25 then works from left to right, and its answers to questions with
`*` or `/` after `+` or `-` are not those of arithmetic; the solver's are.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """Data of one form of question of a data set: pattern, short wording, and the function that solves it.

    raw: matches the question as the data set words it. short: filled with its groups. known: matches the short form.
    solve: groups of either match -> answer. spaced: a group -> the same with the data set's white space.
    """

    raw: re.Pattern[str]
    short: str
    known: re.Pattern[str]
    solve: Callable[..., str]
    spaced: Callable[[str], str]


_OPERATORS: dict[type, Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _evaluate(expression: str) -> int:
    """The value of an expression of whole numbers; `/` is whole division, as reasoning-gym has it."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.UnaryOp):
            return _OPERATORS[type(node.op)](value(node.operand))
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"{expression!r} is not arithmetic")

    return value(ast.parse(expression.strip(), mode="eval").body)


def _calculate(expression: str) -> str:
    return str(_evaluate(expression))


def _calculate_hexadecimal(expression: str) -> str:
    return hex(_evaluate(expression))


def _greatest_divisor(numbers: str) -> str:
    return str(math.gcd(*map(int, numbers.split(","))))


def _least_multiple(numbers: str) -> str:
    return str(math.lcm(*map(int, numbers.split(","))))


def _count_bits(number: str) -> str:
    return str(int(number).bit_count())


def _count_letter(letter: str, text: str) -> str:
    return str(text.lower().count(letter.lower()))


def _sort(direction: str, numbers: str) -> str:
    ordered = sorted(re.findall(r"-?[\d.]+", numbers), key=float, reverse=direction.startswith("d"))
    return f"[{', '.join(ordered)}]"


def _reverse(word: str) -> str:
    return word[::-1]


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _spaced_list(numbers: str) -> str:
    return ", ".join(map(_spaced, numbers.split(",")))


def _spaced_hexadecimal(expression: str) -> str:
    """Space around operators; a sign before its number stays with it."""
    return re.sub(r"(?<=[\da-f)])([-+*/]|<<|>>)", r" \1 ", "".join(expression.split()))


def _spaced_sum(expression: str) -> str:
    return _spaced_hexadecimal(expression).replace("(", "( ").replace(")", " )")


_SUM = r"[-+*/()\d\s]*\d[-+*/()\d\s]*"
_HEXADECIMAL = r"[-+*<>()x\da-f\s]*0x[-+*<>()x\da-f\s]*"

FORMS = {
    "chain_sum": Form(
        re.compile(rf"State the final answer to the following arithmetic problem: ({_SUM}) =\Z"),
        "{} =", re.compile(rf"({_SUM}) =\Z"), _calculate, _spaced_sum,
    ),
    "products": Form(
        re.compile(rf"Solve the following multiplication: ({_SUM})\. Give only the result as your final answer\.\Z"),
        "{} =", re.compile(rf"({_SUM}) =\Z"), _calculate, _spaced_sum,
    ),
    "basic_arithmetic": Form(
        re.compile(rf"(?:Calculate|What is|Solve|Compute|Evaluate:) ({_SUM})[.?]\Z"),
        "{} =", re.compile(rf"({_SUM}) =\Z"), _calculate, _spaced_sum,
    ),
    "bitwise_arithmetic": Form(
        re.compile(rf"Please solve this problem\. .*\n({_HEXADECIMAL})\Z", re.DOTALL),
        "{} =", re.compile(rf"({_HEXADECIMAL}) =\Z"), _calculate_hexadecimal, _spaced_hexadecimal,
    ),
    "gcd": Form(
        re.compile(r"Find the Greatest Common Divisor \(GCD\) of these numbers: ([\d, ]+)\. Give only .*\Z"),
        "gcd {} =", re.compile(r"gcd ([\d, ]+) =\Z"), _greatest_divisor, _spaced_list,
    ),
    "lcm": Form(
        re.compile(r"Find the Least Common Multiple \(LCM\) of these numbers: ([\d, ]+)\Z"),
        "lcm {} =", re.compile(r"lcm ([\d, ]+) =\Z"), _least_multiple, _spaced_list,
    ),
    "count_bits": Form(
        re.compile(r"How many 1 bits are there in the binary representation of the number (\d+)\?\Z"),
        "bits {} =", re.compile(r"bits (\d+) =\Z"), _count_bits, _spaced,
    ),
    "letter_counting": Form(
        re.compile(r'How many times does the letter "(.)" appear in the text: "(.*)"\?\Z', re.DOTALL),
        "count {} in {} =", re.compile(r"count (.) in (.*) =\Z", re.DOTALL), _count_letter, _spaced,
    ),
    "number_sorting": Form(
        re.compile(r"Sort these numbers in (ascending|descending) order: ([-\d., ]+)\nPlease follow .*\Z", re.DOTALL),
        "sort {} {} =", re.compile(r"sort (ascending|descending) ([-\d., ]+) =\Z"), _sort, _spaced_list,
    ),
    "spell_backward": Form(
        re.compile(r"Spell this word backward \(example: sun -> nus\): (\S+)\Z"),
        "reverse {} =", re.compile(r"reverse (\S+) =\Z"), _reverse, _spaced,
    ),
}  # fmt: skip
"""By the name of the data set."""


def shorten(dataset: str, question: str) -> str:
    """A question in the short wording of its data set (by name); unchanged if none is known."""
    found = FORMS[dataset].raw.match(question) if dataset in FORMS else None
    return FORMS[dataset].short.format(*found.groups()) if found else question


def canonical(question: str) -> str:
    """A question of a known form in the short wording and spacing of its data set; other questions as they are.

    >>> canonical("What is 4+3?"), canonical("gcd 12,18 ="), canonical("Why  not?")
    ('4 + 3 =', 'gcd 12, 18 =', 'Why  not?')
    """
    form, groups = _read(re.sub(r"[^\S\n]+", " ", question))
    return form.short.format(*map(form.spaced, groups)) if form else question


def solve(question: str) -> str | None:
    """Right answer (text) to a question of a known form, computed from its text; None for other questions.

    >>> solve("4 - 1 - 7 ="), solve("gcd 12, 18 ="), solve("reverse sun ="), solve("Why?")
    ('-4', '6', 'nus', None)
    """
    form, groups = _read(question)
    try:
        return form.solve(*groups) if form else None
    except (ArithmeticError, LookupError, SyntaxError, ValueError):
        return None


def _read(question: str) -> tuple[Form | None, tuple[str, ...]]:
    """Form of a question in either wording, and its groups."""
    question = question.strip()
    for form in FORMS.values():
        if found := form.raw.match(question) or form.known.match(question):
            return form, found.groups()
    return None, ()
