"""[139] HAL (arXiv 2510.11977): the same accuracy may hide different agents; reliability and cost tell them apart.

Two agents solve 60 % of trials: one every task 6 times in 10, the other 6 tasks in 10 always. Consistency, pass^5 and
calibration see what the mean does not; a cost frontier keeps who is best at a price. Left out: HAL's logs (a reader of
its own) and its fault injector, whose faults are swallowed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.evaluation import (
    calibration,
    consistency,
    frontier,
    k_estimate,
    outcome_consistency,
    resource_consistency,
    sequence_similarity,
)
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.robustness import sensitivity
from palaestra.evaluation.suite import Price, Prices, price
from palaestra_atlas.catalog.evaluation.coverage import table
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

TASKS, TRIALS = 2000, 10
PRICES = pl.DataFrame(
    {"system": list("abcdef"), "cost": [1, 2, 4, 5, 10, 2], "score": [0.30, 0.50, 0.55, 0.54, 0.80, 0.45]}
)


def reliable(rows: Sequence[dict[str, Any]], base: str = "") -> dict[str, dict[str, Any]]:
    """What `palaestra analyze reliability` says of these turns, by system."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turns.parquet"
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
        found = analyze(f"reliability(base={base!r})" if base else "reliability", path)
    return {row["system"]: row for row in found.iter_rows(named=True)}


def one_turn(system: str, success: Sequence[bool], **columns: Sequence[Any]) -> list[dict[str, Any]]:
    """Trials of one task, a turn each."""
    return [
        {"system": system, "task": "t", "episode": n, "turn": 0, "agent": "a", "success": won}
        | {name: values[n] for name, values in columns.items()}
        for n, won in enumerate(success)
    ]


@exact
def same_again() -> None:
    """Outcome consistency of systems that succeed in .2, .5, .6 and all of ten trials; resources of three trials."""
    rates = {"rare": 2, "coin": 5, "often": 6, "always": 10}
    rows = [row for name, wins in rates.items() for row in one_turn(name, [n < wins for n in range(10)])]
    found = reliable(rows)
    np.testing.assert_allclose([found[name]["outcome"] for name in rates], [0.36, 0, 0.04, 1], atol=1e-12)
    assert abs(reliable(one_turn("a", [True] * 3, cost=[1.0, 2.0, 3.0]))["a"]["resources"] - 0.6065) < 5e-5


@exact
def same_way() -> None:
    """Successful trials that call the same tools in another order are alike as histograms and not as sequences."""
    rows = [
        {"system": system, "task": "t", "episode": n, "turn": place, "agent": "a", "success": True, "tool": tool}
        for system, words in (("a", ("aabc", "abcc")), ("b", ("ab", "ba")))
        for n, word in enumerate(words) for place, tool in enumerate(word)
    ]  # fmt: skip
    found = reliable(rows)
    assert abs(found["a"]["actions"] - 0.9387) < 5e-5, found["a"]
    assert found["a"]["sequence"] == 0.5
    assert (found["b"]["actions"], found["b"]["sequence"]) == (1, 0)


@exact
def thirds() -> None:
    """Outcome, trajectory (the mean of both its parts) and resources weigh alike; what is unknown leaves the mean."""
    rows = [
        {"task": "t", "episode": n, "turn": place, "agent": "a", "success": True, "tool": tool, "cost": (n + 1) / 4}
        for n, word in enumerate(("aabc", "abcc")) for place, tool in enumerate(word)
    ]  # fmt: skip
    found = reliable([row | {"system": "s"} for row in rows])["s"]
    spread = np.exp(-np.array([np.std([1, 2], ddof=1) / 1.5, 0]).mean())  # of costs and of the number of calls
    np.testing.assert_allclose(found["resources"], spread)
    np.testing.assert_allclose(found["overall"], (1 + (0.9387 + 0.5) / 2 + spread) / 3, atol=5e-5)
    assert abs(reliable(one_turn("a", [True, True, False, False, False]))["a"]["overall"] - 0.04) < 1e-12


@exact
def rewordings() -> None:
    """Two wordings of one task with .8 and .4: a variance of .04, a gap of .4; a task with one wording has neither."""
    rows = [{"task": "t", "variant": v, "success": n < wins} for v, wins in (("x", 4), ("y", 2)) for n in range(5)]
    found = sensitivity(pl.DataFrame([*rows, {"task": "u", "variant": "x", "success": True}]), variant="variant")
    np.testing.assert_allclose(found.row(0)[1:4], [0.6, 0.04, 0.4])
    assert found.row(1)[2:4] == (None, None)


@exact
def bill_of_two_conventions() -> None:
    """One call, logged as two providers report it, costs the same; a model without a price has no cost."""
    usages = {
        "inside": {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 800}},
        "apart": {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 10},
    }
    with tempfile.TemporaryDirectory() as folder:
        for agent, usage in usages.items():
            messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
            upload = {
                "config": {"agent_name": agent, "benchmark_name": "sums", "run_id": agent},
                "results": {}, "raw_eval_results": {"a": {"reward": 1.0}},
                "raw_logging_results": {"a": {"messages": messages, "call_metadata": [{"usage": usage}], "model": "m"}},
            }  # fmt: skip
            (Path(folder) / f"{agent}_UPLOAD.json").write_text(json.dumps(upload))
        turns = read_logs(folder).turns.frame
    costs = price(turns, Prices("2026-01-01", {"m": Price(3.0, 15.0, cache_read=0.3)}))["cost"]
    np.testing.assert_allclose(costs, [(200 * 3 + 800 * 0.3 + 10 * 15) / 1e6] * 2)
    assert price(turns, Prices("2026-01-01", {"n": Price(3.0, 15.0)}))["cost"].null_count() == 2


@exact
def sure_when_right() -> None:
    """Confidence that tells successes from failures has an AUROC of 1 and errors near 0."""
    won = [n % 2 == 0 for n in range(20)]
    found = reliable(one_turn("a", won, confidence=[0.95 if each else 0.05 for each in won]))["a"]
    assert found["confidence_order"] == 1, found
    assert min(found["calibrated"], found["sharp"]) > 0.94, found


@exact
def front_and_safety() -> None:
    """The six worked agents on the frontier; what is left under a perturbation; safety of episodes with violations."""
    rows: list[dict[str, Any]] = []
    for name, cost, score in PRICES.iter_rows():
        rows += one_turn(name, [n < round(100 * score) for n in range(100)], cost=[float(cost)] * 100)
    found = reliable(rows, base="e")
    assert "".join(name for name in "abcdef" if found[name]["frontier"]) == "abce"
    assert abs(found["b"]["robustness"] - 0.5 / 0.8) < 1e-9
    assert found["e"]["robustness"] is None
    assert reliable(rows, base="b")["e"]["robustness"] == 1
    marked = reliable(one_turn("a", [True] * 4, severity=[None, None, "medium", "high"]))["a"]
    assert abs(marked["safety"] - (1 - 0.5 * 0.75)) < 1e-9


def made(seed: int, folder: Path) -> None:
    """Two agents with an accuracy of .6: one solves every task six times of ten, the other six tasks of ten always."""
    rng = np.random.default_rng(seed)
    rows = []
    for system in ("coin", "steady"):
        for task in range(30):
            won = rng.permutation(10) < 6 if system == "coin" else np.full(10, task % 10 < 6)
            rows += [row | {"task": f"t{task}", "episode": 10 * task + row["episode"]}
                     for row in one_turn(system, won.tolist(), cost=rng.uniform(1, 1.2, 10).tolist())]  # fmt: skip
    pl.DataFrame(rows).write_parquet(folder / "turns.parquet")


def steady_is_named() -> Measure:
    """1 if what was printed puts the steady agent above the other by more than .2 in some number, else 0."""

    def measured(left: Left) -> list[float]:
        rows = {row["system"]: row for row in json.loads(left.stdout)}
        known = {name: (_mean(rows["steady"][name]), _mean(rows["coin"][name])) for name in rows["coin"]}
        above = [a - b for a, b in known.values() if a is not None and b is not None]
        return [float(max(above) > 0.2)]

    return measured


def _mean(value: Any) -> float | None:
    value = value.get("mean") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@reproduction(
    139,
    claim="Agents of equal accuracy differ in consistency, in pass^5 and in whether their confidence means something.",
    baseline="Mean accuracy.",
    criterion="Worked numbers exact (consistency .36/0/.04/1, similarity .9387, resources .6065, frontier abce, hull "
    "abe); equal accuracy to 2 points, outcome consistency above .95 against below .2, pass^5 above .55 against "
    "below .11, each outside the other's interval; expected calibration error below .02 against above .3.",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The two agents, and the formulas' worked numbers."""
    rng = np.random.default_rng(seeds[0])
    rates = {"coin": np.full(TASKS, 0.6), "specialist": np.where(np.arange(TASKS) < 0.6 * TASKS, 1.0, 0.0)}
    played = {name: rng.random((TASKS, TRIALS)) < p[:, None] for name, p in rates.items()}
    trials = pl.concat([table(name, success=x) for name, x in played.items()])
    outcome = {row["system"]: row for row in consistency(trials).filter(pl.col("part") == "outcome").to_dicts()}
    all_five = {name: k_estimate(table(name, success=x), "pass_hat_k", 5) for name, x in played.items()}
    error = {
        name: calibration(np.full(TASKS, 0.6) if name == "coin" else np.full(TASKS, 0.95), x[:, 0]).ece
        for name, x in played.items()
    }
    exact = [
        *np.abs(outcome_consistency([0.2, 0.5, 0.6, 1.0]) - [0.36, 0.0, 0.04, 1.0]),
        abs(sequence_similarity("aabc", "abcc", "histogram") - 0.9387),
        abs(resource_consistency([1, 2, 3]) - 0.6065),
    ]
    best = frontier(PRICES)
    kept = {name: "".join(sorted(best.filter(pl.col(name))["system"])) for name in ("frontier", "hull")}
    measured = {
        "largest_error_of_formulas": float(max(exact)),
        "frontier_as_published": float(kept == {"frontier": "abce", "hull": "abe"}),
        "accuracy_gap": float(abs(played["coin"].mean() - played["specialist"].mean())),
        "consistency_coin": outcome["coin"]["mean"],
        "consistency_specialist": outcome["specialist"]["mean"],
        "pass_hat_5_coin": all_five["coin"].mean,
        "pass_hat_5_specialist": all_five["specialist"].mean,
        "calibration_error_honest": error["coin"].mean,
        "calibration_error_overconfident": error["specialist"].mean,
    }
    holds = (
        measured["largest_error_of_formulas"] < 5e-5
        and kept == {"frontier": "abce", "hull": "abe"}
        and measured["accuracy_gap"] < 0.02
        and measured["consistency_specialist"] > 0.95 > 0.2 > measured["consistency_coin"]
        and measured["pass_hat_5_specialist"] > 0.55
        and measured["pass_hat_5_coin"] < 0.11
        and all_five["coin"].high < all_five["specialist"].low
        and measured["calibration_error_honest"] < 0.02
        and measured["calibration_error_overconfident"] > 0.3
    )
    return Outcome(measured, holds)
