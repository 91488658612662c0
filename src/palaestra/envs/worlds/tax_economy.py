"""`TaxEconomy`: a planner moves tax rates once a year, and workers answer several times within it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.taxes import BRACKETS, bracket_tax, gb2, inequality, saez_rates
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])
LABOUR = np.linspace(0.04, 2.0, 50)
"""Amounts of labour that a worker compares; 1 is what it chooses without taxes."""
ADAPT = 0.5
"""Share of the way to its best answer that a worker goes in one step within the year."""
BINS = np.geomspace(2.0, 400.0, 7)
"""Ends of the bins of the planner's histogram of incomes, in thousands."""


@dataclass
class _TaxEconomyState:
    skills: np.ndarray
    rates: np.ndarray
    labour: np.ndarray
    utility: np.ndarray = field(default_factory=lambda: np.zeros(0))
    income: np.ndarray = field(default_factory=lambda: np.zeros(0))
    best: tuple[float, np.ndarray] = (-np.inf, np.zeros(0))
    first: float = 0.0
    office: int = 0
    year: int = 0


@ENVS.register("native/tax_economy")
class TaxEconomy(NativeEnv):
    """Tax-policy env: each year a planner sees the economy and changes tax rates; paid the relative welfare gain.

    Leader and followers on two time scales: `years` moves of the planner, `timescale` answers of workers in each.

    A worker of skill s earns z = s l with labour l, pays T(z) by marginal rates over `brackets`, gets an equal share of
    all revenue, and likes log(what it then has) - l²/2. In each of `timescale` steps of a year every worker goes half
    the way to its best labour, the others' revenue given. The planner's action is a text of a number from 0 to 4 for
    each bracket, by which its rate moves: -20, -10, 0, 10 or 20 points, from 0 to 100. It is paid the relative gain of
    welfare from year to year. Skills are drawn for the episode as U.S. incomes are distributed.

    With `candidates` of at least 2 there is an election every `term` years: the seats `planner_0` … move all at once,
    each worker votes for the moves under which it would like the year best, the most votes win, ties are drawn, and the
    winner is the planner until the next election. The others are paid nothing.

    As an array: rates, the best rates so far, the shares of incomes in eight bins, mean and deviation of utility, what
    is left of the episode. facts: welfare; income, its mean; unequal, the Gini coefficient of incomes; revenue, per
    head; rates; planner, the number of whoever is in office. Success: the last welfare is above the first year's.

    Args:
        start: first rates; "saez": those of Saez's formula at untaxed incomes.
        elasticity: of "saez".
        welfare: "mean" of utilities, or "by_income", the sum of u / max(z, 1) of the paper's code.
        fixed: rates stay as they began, whatever the planner does, for comparison.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"welfare": float, "income": float, "unequal": float, "revenue": float, "rates": list[float],
             "planner": int}  # fmt: skip

    def __init__(
        self,
        *,
        workers: int = 40,
        years: int = 8,
        timescale: int = 6,
        brackets: Sequence[float] = BRACKETS,
        start: Sequence[float] | Literal["saez"] = (0.0, 0.0, 0.0, 0.0),
        elasticity: float = 0.5,
        welfare: Literal["mean", "by_income"] = "mean",
        candidates: int = 1,
        term: int = 4,
        fixed: bool = False,
    ) -> None:
        self.brackets = np.array(brackets, float)
        if isinstance(start, str):
            fits = start == "saez"
        else:
            fits = len(start) == len(brackets) and all(0 <= rate <= 1 for rate in start)
        if min(workers - 1, years, timescale, candidates, term) < 1 or not fits:
            raise InputError(
                f"TaxEconomy: workers={workers} above 1; years={years}, timescale={timescale}, candidates={candidates} "
                f"and term={term} at least 1; start={start!r} saez, or a rate from 0 to 1 for each bracket"
            )
        if (np.diff(self.brackets) <= 0).any() or welfare not in ("mean", "by_income"):
            raise InputError(f"TaxEconomy: brackets={brackets} must rise; welfare={welfare!r} is mean or by_income")
        self.workers, self.years, self.timescale, self.start = workers, years, timescale, start
        self.elasticity, self.welfare, self.term, self.fixed = elasticity, welfare, term, fixed
        self.agents: tuple[str, ...] = tuple(f"planner_{number}" for number in range(candidates))

    def begin(self) -> tuple[str, _TaxEconomyState]:
        """Draw workers' skills, and simulate a year under the first rates."""
        skills = gb2(self.rng, self.workers)
        if isinstance(self.start, str):
            rates = saez_rates(skills, self.brackets, self.elasticity)
        else:
            rates = np.array(self.start, float)
        state = _TaxEconomyState(skills, rates, np.ones(self.workers))
        self._settle(state, *self.year(skills, state.labour, rates))
        return f"economy {float(skills.sum())!r}", state

    def year(self, skills: np.ndarray, labour: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Simulate a year: workers' labour at its end and what each then has, float64[workers] each.

        Args:
            skills: float[workers].
            labour: At the beginning of the year.
            rates: Of the year.
        """
        gross = skills[:, None] * LABOUR
        net = gross - bracket_tax(gross, self.brackets, rates)
        for _ in range(self.timescale):
            shared = bracket_tax(skills * labour, self.brackets, rates).mean()
            liked = np.log(np.maximum(net + shared, 1e-9)) - LABOUR**2 / 2
            labour = labour + ADAPT * (LABOUR[liked.argmax(1)] - labour)
        paid = bracket_tax(skills * labour, self.brackets, rates)
        return labour, skills * labour - paid + paid.mean()

    def worth(self, utility: np.ndarray, income: np.ndarray) -> float:
        """Social welfare (float) of all workers' utilities and incomes, float[workers]."""
        return float(utility.mean() if self.welfare == "mean" else (utility / np.maximum(income, 1.0)).sum())

    def look(self) -> dict[str, Observation]:
        """The planner in office, and before an election all candidates, see the economy."""
        state = self.state
        if state.year == self.years:
            return {}
        shares = np.bincount(np.digitize(state.income, BINS), minlength=len(BINS) + 1) / self.workers
        mood = [state.utility.mean() / 5, state.utility.std() / 5, 1 - state.year / self.years]
        array = np.concatenate([state.rates, state.best[1], shares, mood]).astype(np.float32)
        text = (
            f"year {state.year}, rates {_percent(state.rates)}, best so far {_percent(state.best[1])}, incomes "
            f"{' '.join(f'{share:.2f}' for share in shares)}, utility {state.utility.mean():.3f}; for each rate 0 to "
            "4: -20, -10, 0, 10 or 20 points"
        )
        due = self.agents if self._elects() else (self.agents[state.office],)
        return {agent: Observation(text, array=array) for agent in due}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Elect if due, change the rates, and simulate a year."""
        state = self.state
        moves = {agent: self.moves(text) for agent, text in chosen.items()}
        rates = {agent: self._moved(found) for agent, found in moves.items()}
        lived = {agent: self.year(state.skills, state.labour, each) for agent, each in rates.items()}
        if self._elects():
            state.office = self.elected([np.log(has) - labour**2 / 2 for labour, has in lived.values()])
        seat, before = self.agents[state.office], self.worth(state.utility, state.income)
        state.rates, state.year = rates[seat], state.year + 1
        paid = self._settle(state, *lived[seat])
        after = self.worth(state.utility, state.income)
        info: dict[str, Any] = {
            "welfare": after,
            "income": float(state.income.mean()),
            "unequal": inequality(state.income),
        }
        info |= {"revenue": paid, "rates": state.rates.tolist(), "planner": state.office}
        info["valid"] = {agent: found is not None for agent, found in moves.items()}
        if state.year == self.years:
            info["success"] = after > state.first
        return {seat: (after - before) / abs(before)}, info

    def moves(self, action: Any) -> np.ndarray | None:
        """Changes of the rates by an action such as `2 3 3 4`, float64[brackets]; None if it cannot be read."""
        words = str(action).split()
        fits = len(words) == len(self.brackets) and all(word in {"0", "1", "2", "3", "4"} for word in words)
        return MOVES[[int(word) for word in words]] if fits else None

    def elected(self, liked: Sequence[np.ndarray]) -> int:
        """Index of the candidate with the most votes, by each worker's utility under each; ties are drawn."""
        table = np.stack(liked)
        best = np.isclose(table, table.max(0), rtol=0, atol=1e-9)
        votes = (best * (self.rng.random(best.shape) + 1)).argmax(0)
        count = np.bincount(votes, minlength=len(table))
        return int(self.rng.choice(np.flatnonzero(count == count.max())))

    def _elects(self) -> bool:
        return len(self.agents) > 1 and self.state.year % self.term == 0

    def _moved(self, moves: np.ndarray | None) -> np.ndarray:
        if moves is None or self.fixed:
            return np.asarray(self.state.rates)
        return np.asarray(np.clip(self.state.rates + moves, 0.0, 1.0).round(10))

    def _settle(self, state: _TaxEconomyState, labour: np.ndarray, has: np.ndarray) -> float:
        """Write down how the year ended; revenue per head."""
        state.labour, state.income = labour, state.skills * labour
        state.utility = np.log(np.maximum(has, 1e-9)) - labour**2 / 2
        worth = self.worth(state.utility, state.income)
        if not state.year:
            state.first = worth
        if worth > state.best[0]:
            state.best = worth, state.rates
        return float(bracket_tax(state.income, self.brackets, state.rates).mean())


def _percent(rates: np.ndarray) -> str:
    return "/".join(f"{100 * rate:.0f}" for rate in rates)
