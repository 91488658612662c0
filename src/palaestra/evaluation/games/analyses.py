"""Analyses of games and mechanisms: `palaestra analyze 'cce_gap("history")' GAME.json PROFILES.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.envs.worlds.exact.deference import allowed, deference_value
from palaestra.errors import InputError, StorageError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.games import auctions, cascades, hiring, hiring_online, markov, society, walks


def _object(path: Path, *needed: str) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise StorageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    lacking = [name for name in needed if not isinstance(found, dict) or name not in found]
    if lacking:
        raise InputError(f"{path}: an object with {', '.join(needed)} is needed; {', '.join(lacking)} missing")
    return dict(found)


@ANALYSES.register("cce_gap")
def cce_gap(deviations: Literal["history", "markov"] = "history") -> Analysis:
    """Returns a function (GAME, PROFILES JSON) -> one-row table: coarse correlated equilibrium gap of a mixture.

    GAME: rewards, transitions, start, horizon of a Markov game. PROFILES: profiles, weights.
    """

    def answer(game: Path, profiles: Path) -> pl.DataFrame:
        told = _object(game, "rewards", "transitions", "start", "horizon")
        mixture = _object(profiles, "profiles")
        arrays = [np.array(told[name], float) for name in ("rewards", "transitions", "start")]
        world = markov.MarkovGame(arrays[0], arrays[1], arrays[2], int(told["horizon"]))
        gap, gains = markov.cce_gap(world, mixture["profiles"], mixture.get("weights"), deviations)
        return pl.DataFrame(
            {
                "deviations": [deviations],
                "profiles": [len(mixture["profiles"])],
                "gap": [gap],
                "gains": [gains.tolist()],
                "limit": [markov.HARDNESS],
            }
        )

    return answer


@ANALYSES.register("position_auction")
def position_auction(method: Literal["joint", "greedy", "cascade"] = "joint") -> Analysis:
    """Returns a function (TABLE file, a weight column per slot) -> table: slot, clicks, VCG payment per creative.

    Columns of TABLE: creative, value, and weights, one per slot.

    method: "joint", exact under the multinomial logit. "greedy": each slot on its own, without payments. "cascade": for
    users who read in order and stop at a click, weights are probabilities of a click; a column `read` has the order of
    reading from 0. Exact and with payments up to `cascades.EXACT_SLOTS` slots, beyond that an approximation without.
    """
    if method not in ("joint", "greedy", "cascade"):
        raise InputError(f"position_auction: method={method!r} must be 'joint', 'greedy' or 'cascade'")

    def answer(file: Path) -> pl.DataFrame:
        frame = table(file, "creative", "value")
        slots = [name for name in frame.columns if name not in ("creative", "value")]
        values, weights = frame["value"].to_numpy(), frame.select(slots).to_numpy()
        exact = method == "joint" or (method == "cascade" and len(slots) <= cascades.EXACT_SLOTS)
        found = _placed(method, exact, values, weights)
        pay = auctions.vcg_payments if method == "joint" else cascades.cascade_payments
        paid = pay(values, weights) if exact else np.full(len(values), np.nan)
        columns = {
            "creative": frame["creative"].cast(pl.String),
            "slot": [slots[j] if j >= 0 else None for j in found.slots],
            "clicks": found.clicks,
            "payment": pl.Series(paid).fill_nan(None),
            "welfare": found.welfare,
        }
        if method == "cascade":
            order = [i for i in cascades.by_value(values).tolist() if found.slots[i] >= 0]
            columns["read"] = [order.index(i) if i in order else None for i in range(len(values))]
        return pl.DataFrame(columns)

    return answer


def _placed(method: str, exact: bool, values: np.ndarray, weights: np.ndarray) -> auctions.Placement:
    if method == "cascade":
        return (cascades.best_cascade if exact else cascades.assign_cascade)(values, weights)
    return auctions.assign(values, weights) if method == "joint" else auctions.assign_greedily(values, weights)


@ANALYSES.register("virtual_values")
def virtual_values() -> Analysis:
    """Returns a function (TABLE, SAMPLE files) -> TABLE with `value` replaced by ironed virtual values (Myerson).

    TABLE: creative, value, …. SAMPLE: value, a sample of bidders' values.
    """

    def answer(file: Path, sample: Path) -> pl.DataFrame:
        frame, earlier = table(file, "value"), table(sample, "value")
        return frame.with_columns(value=auctions.virtual_values(frame["value"].to_numpy(), earlier["value"].to_numpy()))

    return answer


@ANALYSES.register("drift")
def drift(column: str = "violated", by: str = "round", at: float = 0.5) -> Analysis:
    """Returns a function (TURNS file) -> table per round (`by`): rate of 0/1 `column`, first round at `at`, contagion.

    TURNS have the columns `column` and `by`.

    contagion: the rate after a `group_success` less that after a failure, where TURNS has that column.
    """

    def answer(turns: Path) -> pl.DataFrame:
        return society.drift(table(turns, column, by), column, by=by, at=at)

    return answer


@ANALYSES.register("exploration")
def exploration() -> Analysis:
    """Returns a function (METRICS.jsonl) -> table per q_network policy: mean ε or temperature of the run's first half.

    It is the intensity B of exploration. A row per policy and rule, with the first and last level.

    B is the mean of the first half.
    """

    def answer(metrics: Path) -> pl.DataFrame:
        lines = table(metrics, "policies").sort("iteration")["policies"].to_list()
        found = [
            {"policy": name, "rule": rule, "intensity": society.exploration_intensity(levels)}
            | {"first": levels[0], "last": levels[-1]}
            for name in lines[0]
            for rule in ("temperature", "epsilon")
            if (levels := [line[name][rule] for line in lines if line[name].get(rule) is not None])
        ]
        if not found:
            raise InputError(f"{metrics}: no policy has a temperature or epsilon; it is of q_network policies")
        return pl.DataFrame(found)

    return answer


@ANALYSES.register("hire")
def hire(cap: float = 10.0, mixed: bool = True) -> Analysis:
    """Returns a function (PROBLEM.json) -> table per profile of efforts: payments for effort and truthful reports.

    PROBLEM.json: prior, signals, costs, reward. A row per recommended profile of efforts.
    """

    def answer(problem: Path) -> pl.DataFrame:
        told = _object(problem, "prior", "signals", "costs", "reward")
        arrays = (told["prior"], np.array(told["signals"], float), told["costs"], np.array(told["reward"], float))
        find = hiring.scoring_rule if mixed else hiring.best_fixed
        found = find(*arrays, cap=cap)
        kept = [b for b in np.ndindex(found.profile.shape) if found.profile[b] > 1e-9]
        return pl.DataFrame(
            {
                "efforts": [list(b) for b in kept],
                "probability": [float(found.profile[b]) for b in kept],
                "largest_payments": [[float(each[b].max()) for each in found.payments] for b in kept],
                "expected_pay": [found.pay.tolist()] * len(kept),
                "value": [found.value] * len(kept),
            }
        )

    return answer


@ANALYSES.register("hire_online")
def hire_online(
    rounds: int = 1_000_000, cap: float = 2.0, slack: float | None = None, runs: int = 8, seed: int = 0
) -> Analysis:
    """Returns a function (PROBLEM.json) -> table per run: regret of hiring agents whose signal law is learned.

    PROBLEM.json as for `hire`; it is the truth.

    Args:
        rounds: T, of which T^(2/3) explore.
        cap: Largest payment.
        slack: Of the incentives that are committed to; None: by the error of the counts.
        runs: A row for each.
        seed: Of the first run.
    """

    def answer(problem: Path) -> pl.DataFrame:
        told = _object(problem, "prior", "signals", "costs", "reward")
        arrays = (told["prior"], np.array(told["signals"], float), told["costs"], np.array(told["reward"], float))
        rows = []
        for run in range(runs):
            rng = np.random.default_rng([seed, run])
            found = hiring_online.explore_then_commit(*arrays, rng, rounds=rounds, slack=slack, cap=cap)
            rows.append(
                {
                    "run": run,
                    "explored": found.explored,
                    "best": found.best,
                    "committed": found.response.value,
                    "regret_per_round": found.regret / rounds,
                    "slack": found.slack,
                    "gain_of_deviator": found.response.gain,
                    "obeyed": found.response.obeyed,
                }
            )
        return pl.DataFrame(rows)

    return answer


@ANALYSES.register("deference")
def deference(error: float = 0.0) -> Analysis:
    """Returns a function (SAMPLES file) -> table per `decision`: value of leaving it to a person who errs by `error`.

    Columns of SAMPLES: decision, utility; p_allow if known.
    """

    def answer(samples: Path) -> pl.DataFrame:
        frame = table(samples, "decision", "utility")
        rows = []
        for (decision,), each in frame.group_by("decision", maintain_order=True):
            utility = each["utility"].to_numpy()
            given = "p_allow" in each.columns
            found = deference_value(utility, each["p_allow"].to_numpy() if given else allowed(utility, error))
            rows.append({"decision": decision, **found._asdict(), "incentive": found.incentive, "best": found.best})
        return pl.DataFrame(rows)

    return answer


@ANALYSES.register("commons")
def commons(sustainable: float = 50.0, rounds: int = 12) -> Analysis:
    """Returns a function (TURNS file) -> table per system: mean survival, gain, efficiency, equality, over-use.

    TURNS may be a run's `evaluation.parquet`.

    sustainable: what all may take in the first round, F. rounds: T of the efficiency.
    """

    def answer(turns: Path) -> pl.DataFrame:
        frame = table(turns, "agent", "collected", "over_used", "survived", "success")
        return society.commons_meters(frame, sustainable=sustainable, rounds=rounds)

    return answer


@ANALYSES.register("self_repellent")
def self_repellent(alpha: float = 10.0, steps: int = 4000, runs: int = 400, seed: int = 0) -> Analysis:
    """Returns a function (SITES, EDGES files) -> table per site: share of visits of self-repellent walks, variances.

    The same in each row: scaled_variance, of averages of `value` over a walk, times its steps; iterate_variance, of
    iterates that descend to the mean of `value` by the value of the visited site, over their last rate (`descend`, on
    walks whose visit measure moves by (n + 1)^-0.8).

    Columns: SITES site, target, value; EDGES a, b.
    """

    def answer(sites: Path, edges: Path) -> pl.DataFrame:
        frame, links = table(sites, "site", "target", "value"), table(edges, "a", "b")
        names = frame["site"].cast(pl.String).to_list()
        target = frame["target"].to_numpy() / frame["target"].sum()
        adjacent = np.zeros((len(names),) * 2, bool)
        for a, b in links.select(pl.col("a", "b").cast(pl.String)).rows():
            if a not in names or b not in names:
                raise InputError(f"{edges}: edge {a} - {b}: there is no such site in {sites}")
            adjacent[names.index(a), names.index(b)] = adjacent[names.index(b), names.index(a)] = True
        chain, values = walks.metropolis(adjacent, target), frame["value"].to_numpy()
        plain, fast = (
            walks.SelfRepellentSampler(target, alpha, chain, walks=runs, seed=seed, decay=decay) for decay in (1.0, 0.8)
        )
        visits, variance = walks.sampling_variance(values, plain, steps)
        variances = {"scaled_variance": variance, "iterate_variance": walks.descend(values, fast, steps)}
        return pl.DataFrame({"site": names, "target": target, "share": visits.mean(axis=0) / steps, **variances})

    return answer
