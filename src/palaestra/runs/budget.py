"""Matched budgets: variants that may spend as much as each other on training, and what they spent.

A budget is of what is played in training: tokens (read and written), their price, or turns. An iteration that would
not fit is not begun, so a variant that talks more learns fewer times. Left out: held-out play, which is the same tasks
for all, and whose price is the other axis (`evaluation.teamwork.economy`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palaestra.agents import Team
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, RecipeError, nearest
from palaestra.play.executors import Executor, Plan

if TYPE_CHECKING:
    from palaestra.runs.config import TrainPart

UNITS = ("tokens", "price", "turns")
PRICES = {"input": 1.0, "output": 4.0}
"""Of a token that is read, and of one that is written: [140] (arXiv 2601.12307) counts so."""
UNBOUND = 1_000_000
"""Iterations of a training that ends when its budget does."""
Budget = Mapping[str, float]
"""{"tokens": 200000}, or {"price": 2.5, "input": 1e-6, "output": 4e-6}."""


def validated(budget: Budget) -> Budget:
    """The budget itself, if it is valid: one unit, numbers above 0; else raises InputError.

    Raises:
        InputError: it does not name one unit, or a number is not above 0.
    """
    for name, value in budget.items():
        if name not in (*UNITS, *PRICES):
            raise InputError(f"budget: {name!r}{nearest(name, (*UNITS, *PRICES))}")
        if value < 0 or (name in UNITS and not value > 0):
            raise InputError(f"budget: {name}={value}, expected more than 0")
    if sum(name in UNITS for name in budget) != 1 or ("price" not in budget and len(budget) > 1):
        raise InputError(f"budget: {dict(budget)}: one of {', '.join(UNITS)}; input and output are prices of a token")
    return budget


def read(text: str) -> Budget:
    """Parse a budget text, `tokens=200000` or `price=2.5,input=1e-6,output=4e-6`, into a dict of numbers by unit.

    >>> read("tokens=2e5")
    {'tokens': 200000.0}
    """
    found = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--budget {text!r}: write tokens=200000, turns=5000 or price=2.5") from None
    return validated(found)


def unit(budget: Budget) -> str:
    """Name of the unit that a budget dict limits: "tokens", "turns" or "price"."""
    return next(name for name in budget if name in UNITS)


def cost(budget: Budget, line: Mapping[str, Any]) -> Any:
    """Amount of the budget's unit that one iteration's metrics dict spent, from its turns, tokens_in and tokens_out."""
    if unit(budget) == "turns":
        return line["turns"]
    prices = {name: budget.get(name, price) for name, price in PRICES.items()} if "price" in budget else {}
    columns = {"input": "tokens_in", "output": "tokens_out"}
    known = {name: line[column] for name, column in columns.items() if line.get(column) is not None}
    return sum(prices.get(name, 1.0) * value for name, value in known.items())


def spent(budget: Budget, lines: Sequence[Mapping[str, Any]]) -> float:
    """Total amount of the budget's unit that all given metrics dicts (one an iteration) spent; float."""
    return float(sum(cost(budget, line) for line in lines))


def should_stop(budget: Budget, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one more iteration like the dearest of metrics dicts `lines` exceeds a budget; raises if none is counted.

    Raises:
        InputError: turns were played and nothing of the budget was spent: no policy says its tokens, so it never ends.
    """
    each: list[float] = [cost(budget, line) for line in lines]
    if not sum(each) and any(line["turns"] for line in lines):
        raise InputError(
            f"budget: {unit(budget)} cannot be counted: none of the {sum(line['turns'] for line in lines)} turns says "
            "its tokens; give a budget of turns, or policies whose decisions have tokens_in and tokens_out"
        )
    return sum(each) + max(each, default=0.0) > budget[unit(budget)]


def stopper(budget: Budget | None) -> Callable[[Sequence[Mapping[str, Any]]], bool] | None:
    """Makes the callback for `Trainer(should_stop=…)` that ends training when the budget is spent; None for None."""
    return None if budget is None else functools.partial(should_stop, budget)


def check(part: TrainPart, env: EnvFactory, team: Team, executor: Executor, name: str = "") -> None:
    """Play two episodes of an env factory by a team; raise RecipeError if no iteration of a `TrainPart` fits budget.

    A turn reads a token at least, and writes one.

    Raises:
        RecipeError: it cannot; says how much it takes at least.
    """
    if part.budget is None:
        return
    played = executor.play(env, team, Plan(groups=2, retries=0)).frame
    turns = min(played.group_by("group").len()["len"]) * part.groups * part.group_size
    least = cost(part.budget, {"turns": turns, "tokens_in": turns, "tokens_out": turns})
    refuse(part.budget, least, part, name, "at least ")


def refuse(budget: Budget, least: float, part: TrainPart, name: str = "", about: str = "about ") -> None:
    """Raise RecipeError if `least`, the cost of one iteration of a `TrainPart`, exceeds the budget."""
    most = budget[unit(budget)]
    if least > most:
        raise RecipeError(
            f"train.budget: {unit(budget)}={most:g} cannot be kept{f' by {name}' if name else ''}: one iteration of "
            f"{part.groups} x {part.group_size} episodes takes {about}{least:g}; give more, or lower train.groups"
        )


def budget_summary(budget: Budget | None, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Dict {budget, spent: {variant: mean cost, iterations}, budget_said} of {variant: result dicts}; {} if None."""
    if budget is None:
        return {}
    each = {
        name: {
            "spent": sum(cost(budget, result["spent"]["after"]) for result in own) / len(own),
            "iterations": sum(result["spent"]["after"]["iterations"] for result in own) / len(own),
        }
        for name, own in results.items()
    }
    told = "; ".join(f"{name} spent {use['spent']:,.0f} in {use['iterations']:,.0f}" for name, use in each.items())
    most = (
        f"{budget[unit(budget)]:,g} {unit(budget)}" if unit(budget) != "price" else f"a price of {budget['price']:,g}"
    )
    said = f"the same budget for all, {most} of play in training: {told} iterations"
    return {"budget": dict(budget), "spent": each, "budget_said": said}


def total(lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Dict of totals over metrics dicts of training: iterations, episodes, turns, tokens_in and tokens_out."""
    names = ("episodes", "turns", "tokens_in", "tokens_out")
    return {"iterations": len(lines)} | {name: sum(line.get(name) or 0 for line in lines) for name in names}
