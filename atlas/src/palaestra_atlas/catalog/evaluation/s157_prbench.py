"""[157] PRBench (arXiv 2603.27646): a conjunction beside a mean, a tolerance, and a re-run that finds invented numbers.

Two curves are to be reproduced from a stated formula by three scripted agents: right, a sign error in one term, right
code with an invented table. From abstract and secondary text; the four dimensions weigh the same here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy.integrate import solve_ivp

from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.rubric import rubric
from palaestra.evaluation.tolerance import check_rerun, series_match
from palaestra_atlas.reproductions import Outcome, reproduction

TIMES = np.linspace(0.0, 10.0, 50)
DIMENSIONS = ("method", "code", "data", "completeness")


def oscillator(sign: float = 1.0) -> np.ndarray:
    """X'' = -2·.2·x' - 4x from x = 1; sign -1: the friction drives."""
    path = solve_ivp(lambda t, y: [y[1], -sign * 0.4 * y[1] - 4 * y[0]], (0, 10), [1.0, 0.0], t_eval=TIMES, rtol=1e-8)
    return np.asarray(path.y[0])


def epidemic(sign: float = 1.0) -> np.ndarray:
    """Infected share of SIR with β = 1.5, γ = .5; sign -1: nobody recovers, they multiply."""

    def slope(t: float, y: np.ndarray) -> list[float]:
        return [-1.5 * y[0] * y[1], 1.5 * y[0] * y[1] - sign * 0.5 * y[1]]

    return np.asarray(solve_ivp(slope, (0, 10), [0.99, 0.01], t_eval=TIMES, rtol=1e-8).y[1])


INVENTED = {
    "oscillator": np.exp(-0.15 * TIMES) * np.cos(2.1 * TIMES),
    "epidemic": 0.25 * np.exp(-(((TIMES - 5.5) / 2.2) ** 2)),
}
"""What looks like such a curve."""


@reproduction(
    157,
    claim="Whoever invents the data keeps a high mean over dimensions; neither the conjunction nor a re-run is fooled.",
    baseline="the mean over the four dimensions",
    criterion="points within 2 % + .01: right 1.0, sign error <= .15, invented <= .35; the inventor's mean >= .7, "
    "conjunction 0; the re-run marks the inventor alone; 0 of 30 has Wilson's upper limit .1135",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Match, rubric by two rules, re-run."""
    measured: dict[str, float] = {}
    holds = True
    for name, solve in (("oscillator", oscillator), ("epidemic", epidemic)):
        truth = solve()
        reported = {"right": truth, "sign": solve(-1.0), "invented": INVENTED[name]}
        code = {"right": truth, "sign": solve(-1.0), "invented": truth}  # what each agent's code prints when run again
        match = {agent: series_match(table, truth) for agent, table in reported.items()}
        verdicts = [
            {
                "task": agent,
                "criterion": d,
                "met": match[agent] if d == "data" else float((agent, d) != ("sign", "code")),
            }
            for agent in reported
            for d in DIMENSIONS
        ]
        criteria = pl.DataFrame({"criterion": DIMENSIONS})
        mean, whole = (
            dict(rubric(pl.DataFrame(verdicts), criteria, rule).select("task", "score").iter_rows())
            for rule in ("mean", "all")
        )
        rerun = {agent: check_rerun(table, code[agent]) for agent, table in reported.items()}
        measured |= {f"{name}_match_{agent}": value for agent, value in match.items()}
        measured |= {f"{name}_mean_invented": mean["invented"], f"{name}_deviation": rerun["invented"].deviation}
        holds &= match["right"] == 1 and match["sign"] <= 0.15 and match["invented"] <= 0.35
        holds &= mean["invented"] >= 0.7 and whole["invented"] == 0 and whole["right"] == 1
        holds &= [agent for agent, found in rerun.items() if not found.reproduced] == ["invented"]
    measured["upper_limit_of_0_in_30"] = float(wilson(0, 30)[1])
    return Outcome(measured, bool(holds and abs(measured["upper_limit_of_0_in_30"] - 0.1135) < 5e-5))
