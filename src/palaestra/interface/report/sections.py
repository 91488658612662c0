"""Content of the numbered sections of a page, as plain values for the template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.algebra.schema import episode_failed
from palaestra.errors import StorageError
from palaestra.interface.report.formatting import ABSENT, number, seconds
from palaestra.interface.report.load import Interval, Run, SeedRun

PLAYED = ("success", "score")
"""Measures that are estimated from play; all others are exact, a number per seed."""
MOST = 8
"""Trials of pass@k and pass^k in a table: of hundreds of trials of one task one succeeds, and not all do."""


@dataclass(frozen=True)
class RunResult:
    """Data of the outcome of one run: the checked content of `summary.json`. percent: the measure is a share."""

    measure: str
    percent: bool
    verdict: str
    before: Interval | None
    after: Interval | None
    difference: Interval | None
    controls: dict[str, Interval]
    claims: list[Claim]
    tuning: list[Tuned]
    rows: list[ComparisonRow]
    per_seed: list[tuple[str, Interval | None, Interval | None, Interval | None]]
    games: dict[str, list[tuple[str, float, float]]]
    scores: dict[str, dict[str, Interval]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuned:
    """Result data of the hyperparameter search for one system: settings, values, trials and cost."""

    side: str
    settings: str
    value: float | None
    as_written: float | None
    trials: int
    pruned: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Claim:
    """Data of the trained team's comparison with one control: its name, the verdict, a note, and whether it learned."""

    control: str
    verdict: str
    note: str
    trained: bool = False


@dataclass(frozen=True)
class ComparisonRow:
    """Data of a row of the comparison table. percent: its difference is one of shares (success), not of scores."""

    system: str
    percent: bool
    n_tasks: Any
    per_task: str
    success: Interval | None
    score: Interval | None
    difference: Interval | None
    p: Any
    detectable: Any
    possible: Any
    comparisons: int
    errors: int
    verdict: str
    pass_at: dict[str, Interval] = field(default_factory=dict)
    pass_hat: dict[str, Interval] = field(default_factory=dict)


def result(run: Run) -> RunResult | None:
    """`RunResult` of a loaded `Run`: the checked content of its `summary.json`; None if it has none.

    Raises:
        StorageError: a field has a shape that cannot be shown.
    """
    if run.summary is None:
        return None
    summary, where = run.summary, str(run.path / "summary.json")
    table = _list(summary, "table", where)
    measure = str(summary.get("measure") or (table[0].get("value") if table else None) or "success")
    controls, learned = _object(summary, "controls", where), _object(summary, "spent", where)
    games = {
        name: [
            (str(row.get("seed")), float(row["before"]), float(row["after"]))
            for row in _list({name: rows}, name, f"{where}: metrics")
            if all(isinstance(row.get(k), int | float) for k in ("before", "after"))
        ]
        for name, rows in _object(summary, "metrics", where).items()
    }

    seeds = _list(summary, "per_seed", where)

    def interval(value: Any, place: str) -> Interval | None:
        return Interval.read(value, f"{where}: {place}")

    def measured(value: Any, place: str, over: int = 1) -> Interval | None:
        """An exact measure has an interval over seeds only."""
        read = interval(value, place)
        return Interval(read.mean) if read and over == 1 and measure not in PLAYED else read

    return RunResult(
        measure=measure,
        percent=measure == "success",
        verdict=str(summary.get("verdict") or ""),
        before=measured(summary.get("before"), "before", len(seeds)),
        after=measured(summary.get("after"), "after", len(seeds)),
        difference=measured(summary.get("difference"), "difference", len(seeds)),
        controls={name: read for name, value in controls.items() if (read := interval(value, f"controls.{name}"))},
        claims=[
            Claim(name, str(value["verdict"]), str(value.get("note") or ""), name in learned)
            for name, value in controls.items()
            if isinstance(value, Mapping) and value.get("verdict")
        ],
        tuning=[
            Tuned(
                "the team" if name == "after" else name,
                ", ".join(f"{field} = {_short(setting)}" for field, setting in dict(side.get("found") or {}).items()),
                side.get("value"),
                side.get("as_written"),
                int(side.get("trials") or 0),
                int(side.get("pruned") or 0),
                int(side.get("tokens") or 0),
                float(side.get("cpu_seconds") or 0.0),
            )
            for name, side in _object(summary, "tuning", where).items()
            if isinstance(side, Mapping)
        ],
        rows=[row_of(row, f"{where}: table[{i}]") for i, row in enumerate(table)],
        per_seed=[
            (
                str(row.get("seed")),
                measured(row.get("before"), "per_seed.before"),
                measured(row.get("after"), "per_seed.after"),
                measured(row.get("difference"), "per_seed.difference"),
            )
            for row in seeds
        ],
        games={name: rows for name, rows in games.items() if rows},
        scores={
            name: {
                system: read
                for system, each in _object(value, "systems", f"{where}: scores.{name}").items()
                if (read := interval(each, f"scores.{name}.{system}"))
            }
            for name, value in _object(summary, "scores", where).items()
        },
    )


def row_of(row: Mapping[str, Any], where: str) -> ComparisonRow:
    """Makes a `ComparisonRow` from a dict of the summary or of `palaestra.evaluation.SystemResult.to_dict()`.

    There p is inside the difference.
    """
    errors = row.get("errors") or 0
    difference = row.get("difference")
    apart = difference if isinstance(difference, Mapping) else {}
    return ComparisonRow(
        system=str(row.get("system")),
        percent=(row.get("value") or "success") == "success",
        n_tasks=row.get("n_tasks", row.get("tasks")),
        per_task=str(row.get("per_task") or row.get("trials") or ""),
        success=Interval.read(row.get("success"), f"{where}.success"),
        score=Interval.read(row.get("score"), f"{where}.score"),
        difference=Interval.read(difference, f"{where}.difference"),
        p=row.get("p", apart.get("p")),
        detectable=row.get("detectable", apart.get("detectable")),
        possible=apart.get("possible"),
        comparisons=int(apart.get("comparisons") or 1),
        errors=sum(errors.values()) if isinstance(errors, Mapping) else int(errors),
        verdict=str(row.get("verdict") or ""),
        pass_at=_by_k(_object(row, "pass_at_k", where), where),
        pass_hat=_by_k(_object(row, "pass_hat_k", where), where),
    )


def shared_k(rows: Sequence[ComparisonRow]) -> str | None:
    """Text of the largest k from 2 to `MOST` that all `ComparisonRow`s have; else the first row's, or None."""
    if not rows or len(rows[0].pass_hat) < 2:
        return None
    common = set(rows[0].pass_hat).intersection(*(row.pass_hat for row in rows)) - {"1"}
    return max([k for k in common if int(k) <= MOST] or common or rows[0].pass_hat, key=int)


def _by_k(values: Mapping[str, Any], where: str) -> dict[str, Interval]:
    read = {k: Interval.read(values[k], f"{where}.pass[{k}]") for k in sorted(values, key=lambda k: (len(k), k))}
    return {k: value for k, value in read.items() if value}


def _object(parent: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = parent.get(key) or {}
    if not isinstance(value, Mapping):
        raise StorageError(f"{where}: {key!r} should be an object, found {type(value).__name__}")
    return value


def _list(parent: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    value = parent.get(key) or []
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        raise StorageError(f"{where}: {key!r} should be a list of objects")
    return value


def facts(run: Run) -> list[tuple[str, str]]:
    """List of (label, value) facts of a loaded `Run` for the report's header."""
    summary = run.summary or {}
    rows = [seed.metrics for seed in run.seeds if seed.metrics]
    total = {name: sum(r.get(name) or 0 for seed in rows for r in seed) for name in ("episodes", "turns")}
    # seeds may have been trained one after the other or side by side: only their sum is a fact
    spent = {name: sum(seed[-1].get(name) or 0 for seed in rows) for name in ("wall_seconds", "cpu_seconds")}
    names = [seed.name for seed in run.seeds] or [str(s) for s in summary.get("seeds") or []]
    listed = f"{len(names)} ({', '.join(names[:8])}{', …' if len(names) > 8 else ''})" if names else ABSENT
    per_task = summary.get("per_task") or number(summary.get("trials"))
    sampled = summary.get("measure", "success") in ("success", "score")  # what is exact needs no proof by play
    items = [
        ("Seeds", listed),
        ("Held-out tasks", f"{number(summary.get('n_tasks'))} × {per_task} trials{_met(summary)}")
        if summary.get("n_tasks")
        else None,
        ("Iterations per seed", number(max(len(seed) for seed in rows))) if rows else None,
        ("Training episodes", number(total["episodes"])) if total["episodes"] else None,
        ("Training turns", number(total["turns"])) if total["turns"] else None,
        ("Wall time", seconds(summary.get("wall_seconds") or spent["wall_seconds"] or None)),
        ("CPU time", seconds(summary.get("cpu_seconds") or spent["cpu_seconds"] or None)),
        (
            "CPU time until the gain was significant",
            median_seconds(summary.get("seconds_to_significance")) if _is_gain(summary) else NO_GAIN,
        )
        if summary and sampled
        else None,
    ]
    return [item for item in items if item]


def _met(summary: Mapping[str, Any]) -> str:
    """How many of the tasks are none that were held out; a game that always starts alike has only one."""
    met, tasks = summary.get("met_in_training"), summary.get("n_tasks")
    return f", {met} of them trained on as well" if isinstance(met, int) and met and tasks != 1 else ""


NO_GAIN = "none: the final comparison does not say better"


def _is_gain(summary: Mapping[str, Any]) -> bool:
    """Whether the final verdict is a gain: without one an early significant evaluation does not count."""
    return not re.search(r"\bcannot tell\b|(^|: )worse\b", str(summary.get("verdict") or ""))


def median_seconds(value: Any) -> str:
    """Text of the median of seconds to significance (`value`, per seed) over the seeds that reached it, with how many.

    >>> median_seconds({"0": 12.0, "1": 20.0, "2": None})
    '16.0 s (2 of 3 seeds)'
    """
    per_seed = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
    reached = sorted(v for v in per_seed if isinstance(v, int | float))
    if not reached:
        return "not reached"
    middle = (reached[(len(reached) - 1) // 2] + reached[len(reached) // 2]) / 2
    return seconds(middle) + (f" ({len(reached)} of {len(per_seed)} seeds)" if len(per_seed) > 1 else "")


def versions(run: Run) -> list[tuple[str, str]]:
    """List of (dotted name, value): package versions and platform of a loaded `Run`."""

    def flatten(prefix: str, value: Any) -> list[tuple[str, str]]:
        if isinstance(value, Mapping):
            return [item for key, inner in value.items() for item in flatten(f"{prefix}{key}.", inner)]
        return [(prefix.rstrip("."), str(value))]

    source = run.environment or (run.summary or {}).get("versions") or {}
    return [(name.removeprefix("versions."), value) for name, value in flatten("", source)]


@dataclass(frozen=True)
class Share:
    """Data of an additive term of the credit and its share, mean and range over seeds."""

    term: str
    mean: float
    low: float
    high: float


def contributions(seeds: Sequence[SeedRun]) -> list[Share]:
    """List of `Share` of each additive credit term, largest first, over `SeedRun`s with credit in the last batch."""
    seeds = [seed for seed in seeds if any(seed.contributions.values())]
    terms = dict.fromkeys(term for seed in seeds for term in seed.contributions)
    shares = []
    for term in terms:
        values = [float(s.contributions[term]) for s in seeds if term in s.contributions]
        shares.append(Share(term, sum(values) / len(values), min(values), max(values)))
    return sorted(shares, key=lambda s: -s.mean)


@dataclass(frozen=True)
class ErrorKind:
    """Data of failed episodes with errors at one boundary (env, policy, …): counts, and the most frequent message."""

    boundary: str
    training: int
    evaluation: int
    message: str


def error_kinds(seeds: Sequence[SeedRun]) -> list[ErrorKind]:
    """List of `ErrorKind`, counts of failed episodes by boundary over these `SeedRun`s, the most frequent first."""
    training: dict[str, int] = {}
    for seed in seeds:
        for row in seed.metrics:
            for boundary, count in (row["errors"] or {}).items():
                training[boundary] = training.get(boundary, 0) + int(count)
    evaluation: dict[str, int] = {}
    messages: dict[str, dict[str, int]] = {}
    for seed in seeds:
        for frame, counts in ((seed.training, None), (seed.evaluation, evaluation)):
            if frame is None or "error" not in frame.columns:
                continue
            key = [k for k in ("system", "iteration", "group", "episode") if k in frame.columns]
            for text in frame.filter(episode_failed()).unique(key, maintain_order=True)["error"]:
                boundary, _, message = text.partition(": ")
                kind = messages.setdefault(boundary, {})
                kind[message] = kind.get(message, 0) + 1
                if counts is not None:
                    counts[boundary] = counts.get(boundary, 0) + 1
    found = {**training, **evaluation}
    kinds = [
        ErrorKind(
            b, training.get(b, 0), evaluation.get(b, 0), max(m, key=m.__getitem__) if (m := messages.get(b)) else ""
        )
        for b in found
    ]
    return sorted((k for k in kinds if k.training or k.evaluation), key=lambda k: -(k.training + k.evaluation))


@dataclass(frozen=True)
class Alarm:
    """Data of a warning of the trainer: its text, how often, in which seeds, from which iteration to which."""

    text: str
    count: int
    seeds: tuple[str, ...]
    first: int
    last: int


def alarms(seeds: Sequence[SeedRun]) -> list[Alarm]:
    """List of `Alarm` of the trainer over these `SeedRun`s; those that differ only in their numbers are one."""
    raised: dict[str, list[tuple[str, str, int]]] = {}
    for seed in seeds:
        for row in seed.metrics:
            for text in row.get("alarms") or []:
                kind = re.sub(r"(?<!\w)[-+]?\d[\d.,e+-]*", "#", str(text))
                raised.setdefault(kind, []).append((str(text), seed.name, row["iteration"]))
    return [
        Alarm(
            at[0][0], len(at), tuple(dict.fromkeys(s for _, s, _ in at)), min(i for *_, i in at), max(i for *_, i in at)
        )
        for at in raised.values()
    ]


def _short(setting: Any) -> str:
    return f"{setting:.3g}" if isinstance(setting, float) else str(setting)
