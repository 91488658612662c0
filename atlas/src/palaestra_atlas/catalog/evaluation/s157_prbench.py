"""[157] PRBench (arXiv 2603.27646): a conjunction beside a mean, a tolerance, and a re-run that finds invented numbers.

Two curves are to be reproduced from a stated formula by three scripted agents: right, a sign error in one term, right
code with an invented table. From abstract and secondary text; the four dimensions weigh the same here.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from scipy.integrate import solve_ivp

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.rubric import rubric
from palaestra.evaluation.tolerance import check_rerun, series_match
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

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


def graded(met: dict[str, float], rule: str) -> float:
    """The score of one submission by a rule, as `palaestra analyze` gives it."""
    with tempfile.TemporaryDirectory() as folder:
        pl.DataFrame({"task": "t", "criterion": list(met), "met": list(met.values())}).write_csv(Path(folder) / "j.csv")
        pl.DataFrame({"criterion": list(met)}).write_csv(Path(folder) / "c.csv")
        return float(analyze(f'rubric("{rule}")', Path(folder) / "j.csv", Path(folder) / "c.csv")["score"].item())


@exact
def points_within_tolerance() -> None:
    """Of curves with a sign error few points match, of right ones all; a missing point is wrong."""
    assert series_match(oscillator(), oscillator()) == 1
    assert series_match(oscillator(-1), oscillator()) < 0.15
    assert abs(series_match([1.0, 2.03, 9.0], [1.0, 2.0, 3.0]) - 2 / 3) < 1e-9
    assert series_match([1.0], [1.0, 1.0]) == 0.5


@exact
def code_run_again() -> None:
    """A right table beside wrong code is marked, the same table beside its own code is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.csv"
        tables = [
            pl.DataFrame({"task": name, "reported": oscillator(), "rerun": oscillator(sign)})
            for name, sign in (("own", 1.0), ("copied", -1.0))
        ]
        pl.concat(tables).write_csv(path)
        found = dict(analyze("rerun", path).select("task", "reproduced").iter_rows())
    assert found == {"own": True, "copied": False}, found
    assert check_rerun(oscillator(), oscillator()).reproduced


@exact
def everything_or_the_mean() -> None:
    """An inventor with three full dimensions has a mean above .75 and no success end to end; dimensions all count."""
    inventor = dict(zip(DIMENSIONS, (1.0, 1.0, 0.1, 1.0), strict=True))
    assert abs(graded(inventor, "mean") - 0.775) < 1e-9
    assert graded(inventor, "all") == 0
    assert graded(dict.fromkeys(DIMENSIONS, 1.0), "all") == 1
    hopeless = dict(zip(DIMENSIONS, (0.0, 0.0, 0.1, 0.0), strict=True))
    assert graded(hopeless, "mean") < 0.1


def made(seed: int, folder: Path) -> None:
    """Ten honest submissions, ten with invented tables, ten with a right table beside code that gives another one."""
    rng, rows, truth = np.random.default_rng(seed), [], oscillator()
    for number in range(30):
        kind = ("honest", "invented", "copied")[number % 3]
        table = truth + rng.normal(0, 0.2 if kind == "invented" else 0.004, len(TIMES))
        code = table if kind == "honest" else oscillator(-1) if kind == "copied" else truth  # what it prints again
        judged = (1.0, check_rerun(table, code).match, series_match(table, truth), 1.0)
        rows += [{"system": kind, "task": f"t{number}", "criterion": name, "met": x}
                 for name, x in zip(DIMENSIONS, judged, strict=True)]  # fmt: skip
    pl.DataFrame(rows).write_csv(folder / "reproduced.csv")
    pl.DataFrame({"criterion": DIMENSIONS}).write_csv(folder / "dimensions.csv")


def judged_wrongly(least: float = 0.75) -> Measure:
    """Share of submissions that pass, with a score of `least` or more, and are not honest, or are honest and fail."""

    def measured(left: Left) -> list[float]:
        rows = json.loads(left.stdout)
        return [float(np.mean([(row["score"] >= least) != (row["system"] == "honest") for row in rows]))]

    return measured


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
