"""[90] AstaBench: a suite's score is a mean over tags, cost comes from pinned prices, and a missing part is not free.

Exact, on the worked numbers of the released scorer. Left out: the benchmark's own tasks.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.dominance import frontier
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.suite import Price, Prices, Suite, price, suite_score
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SCORES = {"papers": 0.6, "tables": 0.4, "code": 0.3, "data": 0.2}
SUITE = Suite.of({"tasks": [
    {"name": "papers", "tags": ["lit"]}, {"name": "tables", "tags": ["lit"], "weight": 0.5},
    {"name": "code", "tags": ["code"]}, {"name": "data", "tags": ["data"]},
]})  # fmt: skip
AGENTS: dict[str, list[Any]] = {
    "agent": list("abcdef"),
    "cost": [1, 2, 4, 5, 10, 2],
    "score": [0.30, 0.50, 0.55, 0.54, 0.80, 0.45],
}


def overall(names: Sequence[str], missing: str = "zero") -> float:
    """The suite's score of a system that was run on these tasks."""
    common = {"system": "s", "run": "run", "trial": 0, "cost": 1.0}
    rows = [common | {"task": f"{name}/1", "score": SCORES[name]} for name in names]
    table = suite_score(pl.DataFrame(rows), SUITE, missing=missing)  # type: ignore[arg-type]
    return float(table.filter(pl.col("level") == "overall")["score"].item())


MILLION = 1_000_000
TAGS = "".join(f"  - {{name: {task.name}, tags: [{task.tags[0]}], weight: {task.weight}}}\n" for task in SUITE.tasks)


def asked(scores: Mapping[str, Mapping[str, float]], costs: Mapping[str, float | None]) -> dict[str, dict[str, Any]]:
    """What `palaestra analyze suite` says of systems, by system and level: each used a million tokens a problem.

    costs: dollars per million tokens of a system's model; None: no price is known.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), scores, costs)
        table = analyze("suite", *(files[name] for name in ("trials", "suite", "prices")))
    return {(row["system"] if row["level"] == "overall" else f"{row['system']}/{row['name']}"): row
            for row in table.iter_rows(named=True)}  # fmt: skip


def written(
    folder: Path, scores: Mapping[str, Mapping[str, float]], costs: Mapping[str, float | None]
) -> dict[str, Path]:
    """Trials without a cost, the suite and the prices, as files."""
    rows = [
        {"system": system, "task": f"{task}/1", "episode": n, "success": False, "score": score, "policy": system,
         "tokens_in": MILLION, "tokens_out": 0}
        for system, own in scores.items() for n, (task, score) in enumerate(own.items())
    ]  # fmt: skip
    pl.DataFrame(rows).write_csv(folder / "trials.csv")
    (folder / "suite.yaml").write_text(f"tasks:\n{TAGS}")
    models = {name: {"input": dollars, "output": 0.0} for name, dollars in costs.items() if dollars is not None}
    (folder / "prices.json").write_text(json.dumps({"date": "2026-01-01", "models": models}))
    return {"trials": folder / "trials.csv", "suite": folder / "suite.yaml", "prices": folder / "prices.json"}


@exact
def tag_means() -> None:
    """Weighted within a tag, then over tags; a task without a score counts as 0 unless it is preserved."""
    found = asked({"all": SCORES, "three": {name: SCORES[name] for name in ("papers", "tables", "code")}},
                  {"all": 1.0, "three": 1.0})  # fmt: skip
    np.testing.assert_allclose([found[f"all/{tag}"]["score"] for tag in ("lit", "code", "data")], [8 / 15, 0.3, 0.2])
    assert abs(found["all"]["score"] - 0.3444) < 5e-5, found["all"]["score"]
    assert abs(found["three"]["score"] - 0.2778) < 5e-5, found["three"]["score"]
    assert abs(overall(["papers", "tables", "code"], "preserve") - 0.4167) < 5e-5


@exact
def bills() -> None:
    """A bill in dollars, with cached tokens at their own price; what has no price has no cost."""
    models = {"m": Price(3.0, 15.0, cache_read=0.3), "n": Price(3.0, 15.0)}
    calls = {"policy": ["m", "m", "n", "new"], "tokens_in": 1000, "tokens_cached": [0, 800, 800, 0], "tokens_out": 100}
    costs = price(pl.DataFrame(calls), Prices("2026-01-01", models))["cost"].to_list()
    assert costs[2:] == [None, None], costs
    np.testing.assert_allclose(costs[:2], [(1000 * 3 + 100 * 15) / 1e6, (200 * 3 + 800 * 0.3 + 100 * 15) / 1e6])


@exact
def front_of_agents() -> None:
    """The six worked agents, each priced by its model, and one whose model has no price: it is on no frontier."""
    scores = {name: dict.fromkeys(SCORES, score) for name, score in zip(AGENTS["agent"], AGENTS["score"], strict=True)}
    costs = dict(zip(AGENTS["agent"], map(float, AGENTS["cost"]), strict=True))
    found = asked({**scores, "unpriced": dict.fromkeys(SCORES, 0.25)}, {**costs, "unpriced": None})
    assert {name: found[name]["cost"] for name in costs} == costs
    assert found["unpriced"]["cost"] is None, found["unpriced"]["cost"]
    best = "".join(name for name in (*costs, "unpriced") if found[name]["frontier"])
    assert best == "abce", best


@exact
def judges_are_not_billed() -> None:
    """An Inspect log whose scorer asked a model holds the agent's tokens alone."""
    with tempfile.TemporaryDirectory() as folder:
        turns = read_logs(inspect_log(Path(folder) / "log.json")).turns.frame
    assert turns["tokens_in"].to_list() == [30], turns["tokens_in"].to_list()
    assert turns["tokens_cached"].to_list() == [10]


def inspect_log(path: Path) -> Path:
    """One sample: a call of the agent with 30 tokens, 10 of them cached, and one of the judge with 1000."""
    stamp = "2026-01-01T00:00:00+00:00"

    def call(words: str, tokens: int, cached: int, span: str) -> dict[str, Any]:
        usage = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5 + cached}
        message = {"role": "assistant", "content": words}
        output = {
            "model": "mock/m",
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": usage | ({"input_tokens_cache_read": cached} if cached else {}),
        }
        asked = [{"role": "user", "content": "1+1?"}]
        return {"event": "model", "timestamp": stamp, "span_id": span, "model": "mock/m", "input": asked, "tools": [],
                "tool_choice": "auto", "config": {}, "output": output}  # fmt: skip

    begin = {"event": "span_begin", "timestamp": stamp}
    events = [
        call("2", 20, 10, "agent"),
        begin | {"id": "s", "type": "scorers", "name": "scorers"},
        call("GRADE: C", 1000, 0, "s"),
    ]
    sample = {"id": "one", "epoch": 1, "input": "1+1?", "target": "2", "messages": [], "events": events,
              "scores": {"judged": {"value": "C"}}, "output": {"model": "mock/m", "choices": []}}  # fmt: skip
    header = {"created": stamp, "task": "sums", "model": "mock/m", "dataset": {}, "config": {}, "task_id": "t"}
    path.write_text(json.dumps({"version": 2, "status": "success", "eval": header, "samples": [sample]}))
    return path


def made(seed: int, folder: Path) -> None:
    """Five agents with scores and prices of a seed, one without a price; `logged.csv` has a bill that calls it free."""
    rng = np.random.default_rng(seed)
    scores = {f"agent {n}": dict(zip(SCORES, rng.random(4).tolist(), strict=True)) for n in range(6)}
    costs: dict[str, float | None] = {name: float(rng.uniform(1, 10)) for name in scores}
    costs["agent 0"] = None
    files = written(folder, scores, costs)
    flat = "".join(f"  - {{name: {name}}}\n" for name in SCORES)
    (folder / "flat.yaml").write_text(f"tasks:\n{flat}")
    bill = pl.col("system").replace_strict({name: cost or 0.0 for name, cost in costs.items()})
    pl.read_csv(files["trials"]).with_columns(cost=bill).write_csv(folder / "logged.csv")


def right_order() -> Measure:
    """1 if every agent has its mean over tags and the frontier is that of the priced agents, else 0."""

    def measured(left: Left) -> list[float]:
        rows = [row for row in json.loads(left.stdout) if row["level"] == "overall"]
        trials = pl.read_csv(left.directory / "trials.csv")
        costs = json.loads((left.directory / "prices.json").read_text())["models"]
        means, best = {}, set()
        for name in trials["system"].unique():
            own = dict(trials.filter(pl.col("system") == name).select("task", "score").iter_rows())
            lit = (own["papers/1"] + own["tables/1"] / 2) / 1.5
            means[name] = (lit + own["code/1"] + own["data/1"]) / 3
        for name, model in costs.items():
            others = [means[other] for other in costs if other != name and costs[other]["input"] <= model["input"]]
            best |= {name} if means[name] > max(others, default=-1.0) else set()
        near = all(abs(row["score"] - means[row["system"]]) < 1e-9 for row in rows)
        return [float(near and best == {row["system"] for row in rows if row["frontier"]})]

    return measured


@reproduction(
    90,
    claim="The mean over tags differs from the mean over tasks, a missing task counts as zero unless said otherwise, "
    "and a cost with an unknown part is unknown.",
    baseline="the mean over tasks (.375)",
    criterion="overall .3444, without one task .2778 and .4167, to 5e-5; the frontier is a, b, c, e; a model without a "
    "price has no cost",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Tag means, missing parts, prices, frontier."""
    whole, three = list(SCORES), ["papers", "tables", "code"]
    measured = {
        "overall": overall(whole),
        "task_mean": sum(SCORES.values()) / 4,
        "missing_as_zero": overall(three),
        "missing_left_out": overall(three, "preserve"),
    }
    best = frontier(pl.DataFrame(AGENTS)).filter("frontier")["agent"].str.join("").item()
    turns = pl.DataFrame({"policy": ["m", "new"], "tokens_in": [1000, 1000], "tokens_out": [100, 100]})
    costs = price(turns, Prices("2026-01-01", {"m": Price(3.0, 15.0)}))["cost"].to_list()
    measured["cost"] = costs[0]
    near = {"overall": 0.3444, "missing_as_zero": 0.2778, "missing_left_out": 0.4167}
    holds = all(abs(measured[name] - value) <= 5e-5 for name, value in near.items())
    return Outcome(measured, holds and best == "abce" and costs[1] is None)
