"""Prices of teams: what the best can do for so much, what so much costs, what a cache of prefixes saves.

Who is on the frontier is `evaluation.frontier`, what a success costs is `evaluation.cost_per_success` ([54], arXiv
2508.02694); here are the two readings of a frontier of [53] (arXiv 2601.14192), all of these for systems that met the
same tasks (`economy`), and the cost model of [140] (arXiv 2601.12307): what the same workflow costs as one
conversation (`workflow_cost`), and what play cost (`play_cost`). Left out: price lists (`evaluation.suite`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.dominance import cost_per_success, frontier

_RESAMPLED = ("cost_low", "cost_high", "value_low", "value_high", "pass_low", "pass_high", "on_frontier")


def score_at_cost(frame: pl.DataFrame, budget: float, *, cost: str = "cost", score: str = "score") -> float | None:
    """The best score among rows of a table that cost at most `budget`; None if none does.

    >>> points = pl.DataFrame({"cost": [1, 2, 2, 3, 4], "score": [0.2, 0.5, 0.4, 0.5, 0.9]})
    >>> score_at_cost(points, 3), cost_at_score(points, 0.6), cost_at_score(points, 0.95)
    (0.5, 4.0, None)
    """
    need_columns("score_at_cost", frame.columns, (cost, score))
    best = frame.filter(pl.col(cost) <= budget)[score].cast(pl.Float64).fill_nan(None).drop_nulls()
    return float(best.to_numpy().max()) if len(best) else None


def cost_at_score(frame: pl.DataFrame, target: float, *, cost: str = "cost", score: str = "score") -> float | None:
    """The least cost among rows of a table that score at least `target`; None if none does."""
    need_columns("cost_at_score", frame.columns, (cost, score))
    reached = pl.col(score).cast(pl.Float64).fill_nan(None) >= target  # NaN is above everything
    least = frame.filter(reached)[cost].cast(pl.Float64).fill_nan(None).drop_nulls()
    return float(least.to_numpy().min()) if len(least) else None


def cost_over_levels(trials: pl.DataFrame, over: str, *, cost: str = "cost") -> pl.DataFrame:
    """Table per system: cost per success as a mean over values of column `over`, cheapest first ([54]).

    Columns: `system, cost_per_success, levels`.

    Another number than `cost_per_success`, which pools all trials. Infinite where nothing of a level was solved.
    levels: how many the mean is over; one of which no cost is known is not among them. Who has more of them is first.

    Raises:
        MissingColumnError: there is no such column.
    """
    found = _passes(trials, over, cost)
    price = pl.col("cost_per_success")
    means = found.group_by("system", maintain_order=True).agg(price.mean(), levels=price.count().cast(pl.Int64))
    return means.sort("levels", "cost_per_success", descending=[True, False], maintain_order=True)


def cheapest(trials: pl.DataFrame, kind: str, *, cost: str = "cost") -> pl.DataFrame:
    """Table per value of column `kind` of `trials`: the system with the least cost per success ([54]).

    Null where no cost is known.

    Raises:
        MissingColumnError: there is no such column.
    """
    found = _passes(trials, kind, cost).sort(kind, "cost_per_success", nulls_last=[False, True], maintain_order=True)
    found = found.with_columns(system=pl.when(pl.col("cost_per_success").is_not_null()).then("system"))
    return found.group_by(kind, maintain_order=True).first().select(kind, "system", "cost_per_success")


def best_settings(
    trials: pl.DataFrame, factors: Sequence[str], *, by: str = "cost", cost: str = "cost"
) -> pl.DataFrame:
    """Table per column of `factors`: setting cheapest per success, or most successful, others at their commonest.

    One factor at a time: of a factor only the trials count in which all others have their commonest setting. What is
    chosen is put together by whoever plays it.

    Returns:
        factor, setting (text), cost_per_success, success; a row for each factor.

    Raises:
        MissingColumnError, InputError: there is no such column, or `by` is neither.
    """
    need_columns("best_settings", trials.columns, ("task", "success", cost, *factors))
    if by not in ("cost", "success"):
        raise InputError(f"best_settings: by={by!r}, expected 'cost' or 'success'")
    # of settings that are equally common the first that came
    base = {name: trials[name].mode(maintain_order=True)[0] for name in factors}
    rows = []
    for name in factors:
        others = [pl.col(other) == value for other, value in base.items() if other != name]
        own = trials.filter(*others).with_columns(system=pl.col(name).cast(pl.String))
        won = own.group_by("system").agg(pl.col("success").cast(pl.Float64).fill_nan(None).mean())  # costs known or not
        found = cost_per_success(own, cost=cost).join(won, on="system", nulls_equal=True, maintain_order="left")
        found = found.with_columns(pl.col("cost_per_success").fill_null(float("inf")))
        column = "cost_per_success" if by == "cost" else "success"
        best = found.sort(column, descending=by != "cost", nulls_last=True, maintain_order=True).row(0, named=True)
        rows.append((name, best["system"], best["cost_per_success"], best["success"]))
    return pl.DataFrame(rows, schema=["factor", "setting", "cost_per_success", "success"], orient="row")


def _passes(trials: pl.DataFrame, level: str, cost: str) -> pl.DataFrame:
    """Cost per success of each system and level; infinite where nothing was solved, null where no cost is known."""
    need_columns("cost_per_success", trials.columns, ("system", "task", "success", cost, level))
    unsolved = (pl.col("successes") == 0) & (pl.col("n") > 0)
    price = pl.when(unsolved).then(float("inf")).otherwise("cost_per_success").alias("cost_per_success")
    parts = [
        cost_per_success(part, cost=cost).select("system", pl.lit(value).alias(level), price)
        for (value,), part in trials.group_by(level, maintain_order=True)
    ]
    return pl.concat(parts, how="vertical_relaxed")  # a blank level has no type


def workflow_cost(
    shared: int,
    prompts: Sequence[int],
    outputs: Sequence[int],
    *,
    input_price: float = 1.0,
    output_price: float = 4.0,
    cached: float = 0.1,
    models: Sequence[str] = (),
) -> tuple[float, float]:
    """(as a team, as one conversation): prices of a workflow of tokens `shared`, `prompts`, `outputs` ([140]).

    All nodes read what was said before.

    Team: Σ_i (S + p_i + Σ_{j<i} o_j) · in + o_i · out. One conversation: what is new at the price of input, the prefix
    at `cached` of it. shared: S, tokens that every node reads; prompts: p_i of the roles; outputs: o_i. models: which
    one each node is, if they are not all the same; a model's cache holds what it read or wrote itself, up to then.

    Raises:
        InputError: there is no node, or lists of different lengths.

    >>> team, alone = workflow_cost(1000, [200] * 4, [200] * 4)
    >>> team, alone
    (9200.0, 5540.0)
    """
    if len(prompts) != len(outputs) or not prompts:
        raise InputError(f"workflow_cost: {len(prompts)} prompts and {len(outputs)} outputs; give one for each node")
    if models and len(models) != len(prompts):
        raise InputError(f"workflow_cost: {len(models)} models for {len(prompts)} nodes; give one for each")
    team = alone = 0.0
    before = 0
    prefix = 0
    held: dict[str, int] = {}
    for at, (prompt, output) in enumerate(zip(prompts, outputs)):
        team += (shared + prompt + before) * input_price + output * output_price
        new = shared + prompt if at == 0 else prompt
        model = models[at] if models else ""
        known = held.get(model, 0)
        alone += (new + prefix - known) * input_price + cached * known * input_price + output * output_price
        prefix += new + output
        held[model] = prefix
        before += output
    return team, alone


def play_cost(turns: pl.DataFrame, *, cached: float = 0.1, output: float = 4.0) -> pl.DataFrame:
    """Table per episode of a table of turns: group, episode, calls, cost with a cache of prefixes ([140]).

    cost = Σ new input + cached · input that is in the cache + output · what is said, in tokens where the turns say them
    (`tokens_in`, `tokens_out`), else in words. In the cache is, of chat messages, the longest prefix that a policy read
    or wrote before in this episode; without messages all that the same agent read and said before, of which its
    observation repeats the question and its last answer alone.

    Raises:
        MissingColumnError: an episode, turn, agent, observation or action is not there.
    """
    need_columns("play_cost", turns.columns, ("group", "episode", "turn", "agent", "observation", "action"))
    text, whole = pl.String, pl.Int64
    kinds = {"policy": text, "messages": text, "answer": text, "tokens_in": whole, "tokens_out": whole}
    absent = [pl.lit(None, kind).alias(name) for name, kind in kinds.items() if name not in turns.columns]
    frame = turns.with_columns(absent).with_columns(pl.col("agent", "policy", "action").cast(text))
    rows = []
    for (group, episode), part in frame.sort("turn", maintain_order=True).group_by(
        "group", "episode", maintain_order=True
    ):
        kept: dict[str, list[list[str]]] = {}
        held: dict[str, tuple[int, int]] = {}
        total = 0.0
        for row in part.iter_rows(named=True):
            said = (row["action"] or row["answer"] or "").split()
            if row["messages"] is not None:
                read = [
                    word
                    for each in json.loads(row["messages"])
                    for word in (f"<{each['role']}>", *str(each.get("content") or "").split())
                ]
                before = kept.setdefault(row["policy"] or row["agent"], [])
                known = max((_shared(read, each) for each in before), default=0)
                before.append([*read, "<assistant>", *said])
                size = len(read)
            else:
                read = (row["observation"] or "").split()
                known, last = held.get(row["agent"], (0, 0))
                repeated = len((row["observation"] or "").split(" | ")[0].split()) + last if known else 0
                size = known + max(len(read) - repeated, 0)
                held[row["agent"]] = size + len(said), len(said)
            tokens = size if row["tokens_in"] is None else row["tokens_in"]
            share = known / size if size else 0.0
            written = len(said) if row["tokens_out"] is None else row["tokens_out"]
            total += tokens * (1 - share) + cached * tokens * share + output * written
        rows.append((group, episode, len(part), total))
    return pl.DataFrame(rows, schema=["group", "episode", "calls", "cost"], orient="row")


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common prefix."""
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def best_of_n(chance: float, n: int, *, tpr: float = 1.0, fpr: float = 0.0) -> float:
    """Accuracy of best-of-n: n tries, each right with `chance`, one drawn of those a verifier accepts, else of all.

    The verifier has these error rates.

    It accepts the share tpr of right tries, fpr of wrong ones.

    One of the accepted is drawn, of all if none is: (1 - r^n) · pt/q + r^n · p(1 - t)/r, q = pt + (1 - p)f, r = 1 - q.

    >>> [round(best_of_n(0.3, n), 2) for n in (2, 4, 8)], [round(best_of_n(0.3, n, tpr=0.8, fpr=0.2), 3) for n in (2,)]
    ([0.51, 0.76, 0.94], [0.426])
    """
    if n < 1 or any(not 0 <= share <= 1 for share in (chance, tpr, fpr)):
        raise InputError(f"best_of_n: n={n} must be at least 1, chance={chance}, tpr={tpr} and fpr={fpr} from 0 to 1")
    taken = chance * tpr + (1 - chance) * fpr
    none = (1 - taken) ** n
    among = chance * tpr / taken if taken > 0 else 0.0
    left = chance * (1 - tpr) / (1 - taken) if taken < 1 else 0.0
    return (1 - none) * among + none * left


def economy(
    trials: pl.DataFrame, *, cost: str = "cost", value: str = "success", resamples: int = 1000, seed: int = 0
) -> pl.DataFrame:
    """Table per system: cost, value and cost per success on tasks that all share, with intervals, Pareto-optimality.

    trials: as `evaluation.trials` gives them, with what each cost in the column `cost` (tokens, dollars, turns).

    Returns: system; cost, and value (mean of success or score) with low and high; cost_of_pass, cost / value ([54],
        arXiv 2508.02694), null without a success, with pass_low and pass_high; score_at_cost and cost_at_score ([53],
        arXiv 2601.14192), the best for as much and the least for as good; frontier; on_frontier, in what share of the
        resamples; tasks, how many all systems share, and dropped, how many others the trials have. Intervals are 95 %
        percentiles of a bootstrap over the shared tasks: who is better is told from the same tasks, and all trials of a
        task stay together. Of one shared task there are none, nor on_frontier: they are null.

    Raises:
        MissingColumnError, InputError: a column is not there, or systems share no task.
    """
    need_columns("economy", trials.columns, ("system", "task", cost, value))
    means = (
        trials.select("system", "task", c=pl.col(cost).cast(pl.Float64), v=pl.col(value).cast(pl.Float64))
        .with_columns(pl.col("c", "v").fill_nan(None))
        .drop_nulls()
        .group_by("system", "task", maintain_order=True)
        .agg(pl.col("c", "v").mean())
    )
    systems = means["system"].unique(maintain_order=True).to_list()
    shared = means.group_by("task").len().filter(pl.col("len") == len(systems))["task"].sort()
    if not len(shared):
        raise InputError(
            f"economy: {', '.join(map(str, systems)) or 'nobody'} have no task in common with a known {cost}"
        )
    rows = means.filter(pl.col("task").is_in(shared.implode()))
    who = rows["system"].replace_strict(systems, range(len(systems))).to_numpy()
    what = rows["task"].replace_strict(shared, range(len(shared))).to_numpy()
    table = np.zeros((2, len(systems), len(shared)))
    table[:, who, what] = rows["c", "v"].to_numpy().T
    drawn = np.random.default_rng(seed).multinomial(len(shared), np.full(len(shared), 1 / len(shared)), resamples)
    costs, values = table @ drawn.T / len(shared)  # float64[systems, resamples]
    with np.errstate(divide="ignore", invalid="ignore"):  # what is free may fail, which is 0 / 0
        passes = np.where(values > 0, costs / values, np.inf)
    cheaper = (costs[None] <= costs[:, None]) & (values[None] >= values[:, None])
    strictly = (costs[None] < costs[:, None]) | (values[None] > values[:, None])
    best = ~(cheaper & strictly).any(1)
    mean_cost, mean_value = table.mean(2)
    points = frontier(pl.DataFrame({"system": systems, "cost": mean_cost, "score": mean_value}))
    ends = [np.quantile(each, (0.025, 0.975), axis=1, method="nearest") for each in (costs, values, passes)]
    found = pl.DataFrame(
        {
            "system": systems,
            "cost": mean_cost,
            "cost_low": ends[0][0],
            "cost_high": ends[0][1],
            "value": mean_value,
            "value_low": ends[1][0],
            "value_high": ends[1][1],
            "cost_of_pass": [c / v if v > 0 else None for c, v in zip(mean_cost, mean_value)],
            "pass_low": ends[2][0],
            "pass_high": ends[2][1],
            "score_at_cost": [score_at_cost(points, c) for c in mean_cost],
            "cost_at_score": [cost_at_score(points, v) for v in mean_value],
            "on_frontier": best.mean(1),
        }
    )
    found = found.with_columns(tasks=len(shared), dropped=trials["task"].n_unique() - len(shared))
    finite = pl.col("pass_low", "pass_high")
    found = found.with_columns(pl.when(finite.is_finite()).then(finite))
    if len(shared) < 2:
        found = found.with_columns(pl.lit(None, pl.Float64).alias(name) for name in _RESAMPLED)
    return found.join(points.select("system", "frontier", "hull"), on="system", how="left", maintain_order="left")
