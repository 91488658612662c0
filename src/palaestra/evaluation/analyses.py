"""Questions to a file that are neither a comparison nor a ranking: `palaestra analyze 'swiss(eliminate=1)' FILE`.

An analysis is made with its options and gets the files; it answers with a table. One of your own is a function and a
registration, here or in a package that names its module under the entry point `palaestra.plugins`:

    @ANALYSES.register("mine")
    def mine(*, level: float = 0.95) -> Analysis:
        \"\"\"What it answers, from a table with which columns.\"\"\"
        return lambda file: question(table(file), level)
"""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import polars.selectors as cs

from palaestra.errors import InputError, StorageError, nearest, need_columns
from palaestra.evaluation import (
    anchors,
    attempts,
    population,
    ranking,
    reliability,
    rubric,
    sequences,
    suite,
    tolerance,
    triage,
    trials,
)
from palaestra.evaluation.dominance import cost_per_success, frontier
from palaestra.evaluation.factors import effects as factor_effects
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.logs.columns import flag, read_text_table, with_whole_names
from palaestra.evaluation.logs.detect import is_trace
from palaestra.evaluation.logs.researchgym import ResearchBudget, read_runs
from palaestra.evaluation.pivot import matrix_table
from palaestra.evaluation.ranking.alpha_rank import alpha_rank
from palaestra.foundation.registry import Registry, load_object

Analysis = Callable[..., pl.DataFrame]
"""From paths to a table."""
ANALYSES: Registry[Analysis] = Registry(
    "analysis",
    home=(
        "palaestra.evaluation.analyses",
        "palaestra.evaluation.teamwork.analyses",
        "palaestra.evaluation.scorers.analyses",
        "palaestra.evaluation.games.analyses",
        "palaestra.evaluation.games.peer_analyses",
        "palaestra.evaluation.adaptability",
        "palaestra.evaluation.chain_runs",
        "palaestra.evaluation.lifelong",
        "palaestra.evaluation.sampling",
        "palaestra.judges.analyses",
        "palaestra.learning.diversity.analyses",
        "palaestra.learning.simulation_fit",
        "palaestra.teams.goal_play",
        "palaestra.teams.method_matrix",
        "palaestra.teams.pipeline_stream",
        "palaestra.runs.adaptation",
        "palaestra.runs.partners",
        "palaestra.runs.workflow_search",
    ),
    example='rubric("net")',
)
"""Every analysis by the name that `palaestra analyze` takes."""
KINDS = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")


def analyze(text: str, *files: str | Path) -> pl.DataFrame:
    """Runs the registered analysis named by a text on files, gives its table: `analyze('swiss(eliminate=1)', "a.csv")`.

    Raises:
        InputError: there is no such analysis, it takes other files, or one of them is not what it reads.
    """
    made = ANALYSES.build(text)
    wanted = inspect.signature(made)
    try:
        wanted.bind(*files)
    except TypeError:
        names = " ".join(name.upper() for name in wanted.parameters)
        raise InputError(f"analysis {text!r}: {len(files)} files were given; it takes {names}") from None
    try:
        return made(*map(Path, files))
    except pl.exceptions.PolarsError as error:  # a column of another kind than the analysis reads
        raise InputError(f"{', '.join(map(str, files))}: {str(error).splitlines()[0]}") from error


def table(path: Path, *needed: str) -> pl.DataFrame:
    """Reads a table file (CSV, Parquet, JSON lines …) or a trace (as turns) to a DataFrame; `needed` must be columns.

    What a turn of a trace says is its `answer`.

    Raises:
        InputError, StorageError: no such file, an unknown kind, or a damaged one. MissingColumnError: names the column.
    """
    if path.is_file() and is_trace(path):
        turns = read_logs(path).turns.frame
        if "action" not in turns.columns and not {"action", "answer"}.isdisjoint(needed):
            raise InputError(f"{path}: it keeps no words; record the trace with message content switched on")
        turns = turns.with_columns(answer="action") if "action" in turns.columns else turns
        need_columns(path, turns.columns, needed)
        return turns
    if path.suffix not in KINDS or not path.is_file():
        raise InputError(f"{path}: no such file" if path.suffix in KINDS else f"{path}: read are {', '.join(KINDS)}")
    try:
        if path.suffix in (".csv", ".tsv"):
            sign = "\t" if path.suffix == ".tsv" else ","
            frame = read_text_table(path, sign)
        elif path.suffix == ".parquet":
            frame = with_whole_names(pl.read_parquet(path, glob=False))
        else:  # from memory, for polars takes brackets in a path for a pattern
            read = pl.read_json if path.suffix == ".json" else pl.read_ndjson
            frame = with_whole_names(read(io.BytesIO(path.read_bytes()), infer_schema_length=None))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise StorageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    need_columns(path, frame.columns, needed)
    return frame


@ANALYSES.register("adaptive")
def adaptive(
    play: str,
    strategies: Sequence[int],
    *,
    method: Literal["uniform_exhaustive", "uniform", "valence", "count", "in_turn"] = "uniform_exhaustive",
    interval: Literal["hoeffding", "clopper_pearson"] = "clopper_pearson",
    delta: float = 0.01,
    most: int = 50_000,
    seed: int = 0,
) -> Analysis:
    """Returns a function () -> table per profile of `strategies` (numbers per player): α-Rank by few matches of `play`.

    Its columns have intervals.

    `play` is `module:function(profile, rng)`, which plays a match and returns the payoffs.

    Payoffs are in 0 to 1.
    """

    def answer() -> pl.DataFrame:
        found = ranking.response_graph_ucb(
            load_object(play, "play"),
            tuple(strategies),
            method=method,
            interval=interval,
            delta=delta,
            most=most,
            seed=seed,
        )
        means = found.estimate.mean
        drawn = ranking.alpha_rank_draws(found.estimate, resamples=200, seed=seed)
        low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
        score = alpha_rank(list(means))
        rows = [
            {"profile": " ".join(map(str, v)), "score": score[v], "low": low[v], "high": high[v],
             **{f"payoff_{k}": mean[v] for k, mean in enumerate(means)}, "n": found.estimate.n[v],
             "plays": found.plays, "edges": found.edges, "settled": found.settled}
            for v in np.ndindex(*found.estimate.n.shape)
        ]  # fmt: skip
        return pl.DataFrame(rows).sort("score", descending=True, maintain_order=True)

    return answer


@ANALYSES.register("agreement")
def agreement(a: str = "a", b: str = "b") -> Analysis:
    """Returns a function (VERDICTS file, 0/1 columns `a`, `b`) -> one-row table: share that are equal, Cohen's kappa.

    VERDICTS: a column of each judge, of 1/0, true/false or yes/no.
    """

    def answer(verdicts: Path) -> pl.DataFrame:
        both = table(verdicts, a, b).with_columns(cs.float().fill_nan(None)).drop_nulls([a, b])
        same, kappa = rubric.agreement(both[a], both[b])
        return pl.DataFrame({"verdicts": [len(both)], "same": [same], "kappa": [kappa]})

    return answer


@ANALYSES.register("attempts")
def attempts_of() -> Analysis:
    """Returns a function (LOGS of AgencyBench) -> table per system and attempt: share passed by then, mean scores.

    Scores are per attempt and per 1e6 tokens of the system.
    """

    def answer(logs: Path) -> pl.DataFrame:
        turns = read_logs(logs).turns.frame
        return attempts.pass_by_attempt(turns).join(attempts.resource_efficiency(turns), on="system", how="left")

    return answer


@ANALYSES.register("cost_of_pass")
def cost_of_pass(by: str | Sequence[str] = "system", *, level: float = 0.95) -> Analysis:
    """Returns a function (ATTEMPTS file) -> table per system (`by`): cost per solved task, all tries; cheapest first.

    Costs of failures are included.

    Columns of ATTEMPTS: task, success, cost and those of `by`.
    """
    names = [by] if isinstance(by, str) else list(by)

    def answer(attempts: Path) -> pl.DataFrame:
        found = table(attempts, "task", "success", "cost", *names)
        system = pl.concat_str([pl.col(name).cast(pl.String) for name in names], separator=", ")
        return cost_per_success(found.with_columns(system=system), level=level).sort(
            "cost_per_success", nulls_last=True, maintain_order=True
        )

    return answer


@ANALYSES.register("effects")
def effects(value: str, factors: Sequence[str], *, cluster: str | None = None, level: float = 0.95) -> Analysis:
    """Returns a function (GAMES file) -> table: effect of each level of the columns `factors` on column `value`.

    Of a sparse design.
    GAMES has the columns `value` and `factors`.
    """
    return lambda games: factor_effects(table(games, value, *factors), value, factors, cluster=cluster, level=level)


@ANALYSES.register("exposure")
def exposure(test: Literal["slope", "square"] = "slope") -> Analysis:
    """Returns a function (ADOPTIONS, EDGES files) -> one-row table: how adoption rises with exposure to neighbours.

    Columns: ADOPTIONS item, agent, time; EDGES agent, source.

    kind: by the slope of log exposure, or by the sign of exposure² as published.
    """
    if test not in ("slope", "square"):
        raise InputError(f"analysis exposure: test={test!r}{nearest(test, ('slope', 'square'))}")

    def answer(adoptions: Path, edges: Path) -> pl.DataFrame:
        seen = population.exposure(table(adoptions, "item", "agent", "time"), table(edges, "agent", "source"))
        slope, (square, p) = population.exposure_slope(seen), population.quadratic_test(seen)
        bent = "independent" if p > 0.05 else "saturating" if square < 0 else "complex"
        kind = slope.kind if test == "slope" else bent
        hazard = population.hazard_ratio(seen).ratio
        return pl.DataFrame([{**slope._asdict(), "kind": kind, "square": square, "square_p": p, "hazard": hazard}])

    return answer


@ANALYSES.register("fresh_seeds")
def fresh_seeds(by: str = "task") -> Analysis:
    """Returns a function (RUNS file) -> table per task: excess, p of the run marked true in `reported` over the others.

    So it tells a picked seed.

    Columns of RUNS: `score`, `reported` (true in one row per task, false or blank in the others), `by`.
    """

    def answer(runs: Path) -> pl.DataFrame:
        rows = []
        found = table(runs, by, "score", "reported")
        found = found.with_columns(flag(found, "reported", "fresh_seeds").fill_null(False))
        for (key,), own in found.group_by(by, maintain_order=True):
            claimed = own.filter(pl.col("reported"))["score"]
            if len(claimed) != 1:
                raise InputError(f"{runs}: {by} {key!r} has {len(claimed)} reported scores; mark one")
            if claimed.cast(pl.Float64).fill_nan(None).has_nulls():
                raise InputError(f"{runs}: the reported score of {by} {key!r} is missing")
            again = own.filter(~pl.col("reported"))["score"].to_list()
            rows.append({by: key, "reported": claimed[0], **vars(tolerance.check_fresh_seeds(claimed[0], again))})
        return pl.DataFrame(rows, infer_schema_length=None)

    return answer


@ANALYSES.register("gap_closed")
def gap_closed(reducer: Literal["dev", "max", "mean", "median"] = "dev") -> Analysis:
    """Returns a function (RUNS file) -> table per task: share of the gap `baseline` to `reference` that its runs close.

    Columns of RUNS: task, dev, test (null: failed), baseline, reference; or a row per snapshot with run and snapshot.
    """
    return lambda runs: anchors.gap_closed(table(runs, "task", "dev", "test", "baseline", "reference"), reducer)


@ANALYSES.register("gated")
def gated(k: int = 3, *, threshold: float = reliability.PASS) -> Analysis:
    """Returns a function (LOGS) -> table per system: Claw-Eval's gated score, parts, share passed in any, in all of k.

    In any and in all of k trials of a task, by mean gated score.

    LOGS have the HTTP-like `status` of calls.
    """
    return lambda logs: reliability.gated(read_logs(logs).turns.frame, k=k, threshold=threshold)


@ANALYSES.register("integrity")
def integrity() -> Analysis:
    """Returns a function (RUN folder, HASHES, [REPORTED]) -> table of violations: edited graders, typed-in metrics.

    HASHES.json: hashes of the graders from before the run. REPORTED.json: metrics that were reported.
    """

    def answer(run: Path, hashes: Path, reported: Path | None = None) -> pl.DataFrame:
        said = None if reported is None else _mapping(reported)
        return triage.integrity(run, graders=_mapping(hashes), reported=said)

    return answer


def _mapping(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected an object of JSON, names with values, found {type(found).__name__}")
    return found


@ANALYSES.register("levels")
def levels() -> Analysis:
    """Returns a function (SCORES file) -> its rows with the share of the gap `closed` and capability `level` 1 to 6.

    Columns of SCORES: dev, test, baseline, reference.
    """

    def answer(scores: Path) -> pl.DataFrame:
        names = ("dev", "test", "baseline", "reference")
        frame = table(scores, *names)
        closed = anchors.normalise_between(*(pl.col(name).cast(pl.Float64).fill_nan(None) for name in names[1:]))
        return frame.with_columns(anchors.capability_level(*names), closed=closed)

    return answer


@ANALYSES.register("reliability")
def reliable(base: str | None = None) -> Analysis:
    """Returns a function (LOGS) -> table per system: consistency, calibration, safety, cost of repeated trials.

    base: the unperturbed system.
    """
    return lambda logs: reliability.reliability(read_logs(logs).turns.frame, base=base)


@ANALYSES.register("matrix")
def matrix(rows: str, columns: str, *, value: str = "success", level: float = 0.95) -> Analysis:
    """Returns a function (TRIALS file) -> long table, a row per cell of `rows` x `columns` and margin: mean of `value`.

    Columns of TRIALS: task, `value`, both keys.
    """

    def answer(trials_file: Path) -> pl.DataFrame:
        found = table(trials_file, "task", value, rows, columns)
        given = {"run": pl.lit("run"), "trial": pl.int_range(pl.len()).over("task")}
        found = found.with_columns(made.alias(name) for name, made in given.items() if name not in found.columns)
        if value == "success":
            try:
                found = found.with_columns(flag(found, value, "matrix"))
            except InputError as error:
                raise InputError(f"{error}; a column of numbers has another name, which value= gives") from None
        return matrix_table(found, rows=rows, columns=columns, value=value, level=level)

    return answer


@ANALYSES.register("rerun")
def rerun(by: str = "task", *, rtol: float = 0.02, atol: float = 0.01) -> Analysis:
    """Returns a function (SERIES file, a row per point) -> table per task: does `reported` match `rerun` in tolerance.

    Columns of SERIES: `by`, `reported`, `rerun`, a row per point.
    """

    def answer(series: Path) -> pl.DataFrame:
        rows = []
        for (key,), own in table(series, by, "reported", "rerun").group_by(by, maintain_order=True):
            both = own.select(pl.col("reported", "rerun").cast(pl.Float64))
            found = tolerance.check_rerun(both["reported"], both["rerun"], rtol=rtol, atol=atol)
            rows.append({by: key, "points": len(own), **vars(found)})
        return pl.DataFrame(rows, infer_schema_length=None)

    return answer


@ANALYSES.register("research_runs")
def research_runs(hours: float = 24.0, dollars: float = 10.0) -> Analysis:
    """Returns a function (RUNS, [HASHES], [RERUNS]) -> table per run: score, share of the gap, verdict, over budget.

    RUNS: a folder of ResearchGym's run folders. HASHES.json: hashes of the graders from before the runs; with it
    `integrity` audits every run, and what it finds counts in `violations` and `claimed` and stands in `audit`.
    RERUNS: folder (of the run) and score, a row per re-run with a fresh seed.
    """

    def answer(runs: Path, hashes: Path | None = None, reruns: Path | None = None) -> pl.DataFrame:
        turns, _ = read_runs(runs, budget=ResearchBudget(hours, dollars))
        closed = anchors.normalise_between(pl.col("reward"), pl.col("baseline"), pl.col("reference"))
        kept = ("folder", "system", "task", "reward", "baseline", "reference", "verdict", "violations", "claimed",
                "over_budget")  # fmt: skip
        found = turns.frame.select(*kept, closed=closed).rename({"reward": "score"})
        return found if hashes is None else _audited(found, runs, _mapping(hashes), reruns)

    return answer


def _audited(found: pl.DataFrame, runs: Path, graders: dict[str, Any], reruns: Path | None) -> pl.DataFrame:
    """The table of runs with what `triage.integrity` finds in each of them."""
    again: dict[Any, Any] = {}
    if reruns is not None:
        scores = table(reruns, "folder", "score").select(pl.col("folder").cast(pl.String), pl.col("score"))
        again = dict(scores.group_by("folder").agg("score").iter_rows())
    audits = [
        triage.integrity(
            runs / folder,
            graders=graders,
            reported=None if score is None else {"score": score},
            again={"score": again.get(folder, [])},
        )
        for folder, score in found.select("folder", "score").iter_rows()
    ]
    critical = pl.Series([(each["severity"] == "critical").any() for each in audits], dtype=pl.Boolean)
    return found.with_columns(
        violations=pl.col("violations") + pl.Series([len(each) for each in audits]),
        claimed=pl.col("claimed") & ~critical,
        audit=pl.Series(["; ".join(each["rule"]) or None for each in audits], dtype=pl.String),
    )


@ANALYSES.register("rubric")
def scored(method: rubric.Method = "mean", *, gamma: float = 0.4, threshold: float = 1.0) -> Analysis:
    """Returns a function (JUDGEMENTS, CRITERIA files) -> table per trial: rubric `score`, null if any is unjudged.

    Columns: JUDGEMENTS criterion, met, task …; CRITERIA criterion, weight, kind.
    """
    return lambda judgements, criteria: rubric.rubric(
        table(judgements), table(criteria), method, gamma=gamma, threshold=threshold
    )


@ANALYSES.register("sequences")
def memory(by: str | Sequence[str] = "system", series: str | Sequence[str] = "episode", **columns: Any) -> Analysis:
    """Returns a function (CHOICES file) -> table per system (`by`): tests if 0/1 actions are biased or dependent.

    Columns of CHOICES: system, episode, turn, action.
    """
    names = [each] if isinstance(each := by, str) else list(each)
    parts = [each] if isinstance(each := series, str) else list(each)
    return lambda choices: sequences.sequence_tests(table(choices), by=names, series=parts, **columns)


@ANALYSES.register("shares")
def shares(action: str = "action", by: str = "system") -> Analysis:
    """Returns a function (CHOICES file) -> table per pair of systems: difference of their shares of action 1, p (Holm).

    Columns of CHOICES: `system`, `action`.
    """
    return lambda choices: sequences.share_differences(table(choices, action, by), action=action, by=by)


@ANALYSES.register("suite")
def whole(missing: Literal["zero", "preserve"] = "zero") -> Analysis:
    """Returns a function (LOGS, SUITE.yaml, [PRICES.yaml]) -> table per system and task, tag or overall: score, cost.

    Column `frontier`: Pareto-optimal in cost and score.
    """

    def answer(logs: Path, suite_file: Path, prices: Path | None = None) -> pl.DataFrame:
        turns = read_logs(logs).turns.frame
        turns = turns if prices is None else suite.price(turns, suite.Prices.of(prices))
        scores = suite.suite_score(trials(turns), suite.Suite.of(suite_file), missing=missing)
        best = frontier(scores.filter(pl.col("level") == "overall")).select("system", "level", "frontier")
        return scores.join(best, on=["system", "level"], how="left", maintain_order="left")

    return answer


@ANALYSES.register("swiss")
def swiss(eliminate: int = 0, *, exact: bool = False, simulations: int = 100_000, seed: int = 0) -> Analysis:
    """Returns a function (SCORES file, a column per benchmark) -> table per system: expected Swiss-tournament points.

    The benchmarks are the rounds, in the order of the columns.

    Columns of SCORES: `system`, and one per benchmark.
    """

    def answer(scores: Path) -> pl.DataFrame:
        frame = table(scores, "system")
        try:
            numbers = frame.drop("system").cast(pl.Float64).to_numpy()
        except pl.exceptions.PolarsError as error:
            raise InputError(f"{scores}: all columns but `system` are scores: {str(error).splitlines()[0]}") from error
        names = frame["system"].cast(pl.String).to_list()
        return ranking.swiss(
            numbers, eliminate=eliminate, names=names, exact=exact, simulations=simulations, seed=seed
        ).sort("expected", descending=True)

    return answer
