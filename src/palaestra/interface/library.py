"""The commands as functions: the same work, from Python, with the same pages at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.interface.report import write_attack, write_comparison, write_report
from palaestra.learning import need_torch
from palaestra.runs.recipe import Recipe, load, override, typed

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.algebra.folders import Applied
    from palaestra.evaluation.audits import Finding
    from palaestra.evaluation.comparison import Comparison
    from palaestra.evaluation.ranking import Matches, Ranking


def train(
    recipe: Recipe | str | Path,
    directory: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    jobs: int | None = None,
    ranks: int = 1,
    console: Console | None = None,
    trust: bool = False,
    learner: str | None = None,
) -> dict[str, Any]:
    """Train a team by a recipe on every seed, compare with its start; writes and returns the summary (dict), a report.

    The report is `report.html`.

    recipe: a shipped recipe by name, a file, or a `Recipe`. directory: default runs/NAME. jobs: seeds at once.
    overrides: fields such as "train.iterations=20".
    ranks: processes that learn together in each seed, see `learn.devices` and docs/scale.md.
    trust: run the code that a recipe file names; see docs/security.md.
    learner: "ray" or "ray(cpus=2, gpus=1)": each seed learns in an actor of a Ray cluster; None: on this machine.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        InputError: the recipe asks for what is not there, or the directory holds another run. Nothing was played.
        PalaestraError: what stopped a seed.
    """
    need_torch()
    from palaestra.runs import jobs as runs
    from palaestra.runs.learner_actors import LearnerActors

    made = override(recipe, typed(overrides)) if isinstance(recipe, Recipe) else load(recipe, overrides, trust=trust)
    folder = Path("runs") / made.name if directory is None else Path(directory)
    actors = None if learner is None else LearnerActors.read(learner)
    with contextlib.nullcontext() if actors is None else actors.joined():
        summary = runs.train(made, folder, resume=resume, jobs=jobs, ranks=ranks, console=console, learner=actors)
    write_report(folder)
    for name in summary["attacks"]:
        write_attack(folder / "attacks" / name)
    return summary


def compare(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    vary: str,
    seeds: int | None = None,
    directory: str | Path | None = None,
    budget: str | None = None,
    jobs: int | None = None,
    console: Console | None = None,
    trust: bool = False,
    learner: str | None = None,
) -> dict[str, Any]:
    """Train variants of a recipe with the same seeds and compare each pair; writes a report, returns a dict.

    vary: `credit=grpo,dr_mas`, a field and its values. seeds: how many; None: those of the recipe or of `overrides`, or
    3 where neither names any. budget: what each may spend on training: `tokens=2e5`,
    `turns=5000`, `price=2.5,input=1e-6,output=4e-6`; it replaces the number of iterations. trust, learner: as in
    `train`.

    Returns:
        The comparison, as in `comparison.json`.
    """
    need_torch()
    from palaestra.runs import jobs as runs
    from palaestra.runs.learner_actors import LearnerActors

    folder = Path("runs") / f"{Path(recipe).stem}-compare" if directory is None else Path(directory)
    actors = None if learner is None else LearnerActors.read(learner)
    with contextlib.nullcontext() if actors is None else actors.joined():
        comparison = runs.compare(
            recipe,
            overrides,
            vary=vary,
            seeds=seeds,
            directory=folder,
            budget=budget,
            jobs=jobs,
            console=console,
            trust=trust,
            learner=actors,
        )
    for name in comparison["variants"].values():
        write_report(folder / name)
    write_comparison(folder)
    return comparison


def attack(
    run: str | Path,
    seat: str,
    *,
    target: str | None = None,
    influence: float | None = None,
    observations: str | None = None,
    kind: str | None = None,
    iterations: int | None = None,
    seeds: int | None = None,
    overrides: Sequence[str] = (),
    directory: str | Path | None = None,
    jobs: int | None = None,
    console: Console | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Train an adversary in one `seat` of the team of a run's folder; writes and returns a dict of what the team loses.

    run: what `train` wrote. seat: the agent that it plays. target: an expression over the table of turns that is above
    0 where the targeted behaviour happened; None: it is paid minus the team's reward. influence: weight of the bonus
    for turning the others to target actions; None: no bonus. observations: the seat keeps its policy, and what it sees
    is shifted so that the target happens: "epsilon=0.5". kind: of its policy, default as the seat's. seeds: number
    of attackers. directory: default RUN/attacks/SEAT. More in docs/attacks.md.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        InputError: the run, the seat, the kind or the target cannot be used. Nothing was played.
    """
    need_torch()
    from palaestra.runs import attacks
    from palaestra.runs import jobs as runs
    from palaestra.runs.observation_attacks import attack_observations

    folder = attacks.folder_of(Path(run), seat) if directory is None else Path(directory)
    if observations is not None:
        if target is None or influence is not None or kind is not None:
            raise InputError("--observations: give --target with it, and neither --influence nor --kind")
        summary = attack_observations(
            Path(run), train=runs.train, seat=seat, shift=observations, target=target, iterations=iterations,
            seeds=seeds, overrides=overrides, directory=folder, jobs=jobs, console=console, trust=trust,
        )  # fmt: skip
        write_attack(folder)
        return summary
    summary = attacks.attack(
        Path(run), train=runs.train, seat=seat, target=target, influence=influence, kind=kind, iterations=iterations,
        seeds=seeds, overrides=overrides, directory=folder, jobs=jobs, console=console, trust=trust,
    )  # fmt: skip
    write_attack(folder)
    return summary


def evaluate(
    *sources: str | Path | Turns,
    baseline: str | None = None,
    score: str | None = None,
    cluster: str | None = None,
    scale: tuple[float, float] | None = None,
    errors: Literal["exclude", "count"] = "exclude",
    format: str | None = None,
) -> Comparison:
    """Success, score and paired differences of systems in logs, as a `Comparison`; as `palaestra evaluate` prints them.

    sources: logs that any reader knows, tables of turns, folders of them, NAME=PATH; or one `Turns` with a column
    `system`. baseline: default "before", else the first. score: a column to compare instead of success. cluster: what
    tasks have in common. scale: lowest and highest possible score; default: (0, 1) if no score lies outside. errors:
    those of env, endpoint, judge or reward are left out, or count as failures.

    Raises:
        InputError: nothing there can be read, or a name is unknown.
    """
    from palaestra.evaluation import comparison_table, trials
    from palaestra.evaluation.logs import read_logs
    from palaestra.runs.summary import baseline_of, value_of

    if len(sources) == 1 and isinstance(sources[0], Turns):
        turns = sources[0]
    else:
        turns = read_logs(*map(str, sources), format=format).turns
    table = trials(turns, score=score, cluster=cluster, errors=errors)
    systems = table["system"].unique(maintain_order=True).to_list()
    first = baseline_of(systems, baseline or None, "evaluate: baseline=")
    value = "score" if score else value_of("success", table)
    return comparison_table(table, baseline=first, value=value, scale=scale)


def apply(
    signal: Signal | str,
    source: str | Path,
    out: str | Path,
    *,
    name: str = "advantage",
    reward: Signal | str | None = None,
    workers: int = 1,
    progress: bool = False,
) -> Applied:
    """Add a `Signal` or its text as a column to every Parquet file of a folder, written to another; `Applied`: counts.

    File by file, as `palaestra apply EXPR DIR -o OUT` does.

    reward: put into the column `reward` first. workers: processes. More in `algebra.folders.apply`. For a table in
    memory it is `turns.with_column(advantage=signal)`.
    """
    from palaestra.algebra import folders

    columns = {name: signal} if reward is None else {"reward": reward, name: signal}
    return folders.apply(columns, source, out, workers=workers, progress=progress)


def rank(matches: str | Path | Matches, *, method: str = "auto", cluster: str | None = None, seed: int = 0) -> Ranking:
    """Rank systems from pairwise matches: a `Ranking` with intervals of scores and ranks, as `palaestra rank` prints.

    matches: a file, or what `evaluation.ranking.read_matches` gives. method: "auto", "elo", "alpha_rank", "nash" …
    cluster: a column of the file whose matches are resampled together, in the place of the task.

    Raises:
        InputError: the matches cannot be read, or there is no such method.
    """
    from palaestra.evaluation import ranking

    played = matches if isinstance(matches, ranking.Matches) else ranking.read_matches(Path(matches), cluster=cluster)
    return ranking.rank(played, method, seed=seed)


def audit(turns: Turns, reward: Signal | str | None = None, *, gamma: float = 1.0) -> list[Finding]:
    """List of `Finding`, one per audit of `Turns`: whether a reward (signal or expression) can be exploited.

    See `evaluation.audits`.

    reward: default: the components r_<name> if there are any, else the column `reward`.
    """
    from palaestra.algebra.parse import parse
    from palaestra.evaluation.audits import audit as run
    from palaestra.evaluation.audits import component_sum

    signal = parse(reward, columns=turns.columns) if isinstance(reward, str) else reward
    return list(run(turns, component_sum(turns) if signal is None else signal, gamma=gamma))


def triage(turns: Turns, budget: int = 100, *, seed: int = 0) -> pl.DataFrame:
    """Table of the `budget` episodes of `Turns` that are most worth reading, and why; see `evaluation.triage`."""
    from palaestra.evaluation.triage import triage as choose

    return choose(turns, budget, seed=seed)


def report(directory: str | Path) -> Path:
    """Write the HTML report of a run or a comparison again; returns its path.

    Raises:
        InputError, StorageError: the directory holds neither, or something there is damaged.
    """
    folder = Path(directory)
    return write_comparison(folder) if (folder / "comparison.json").exists() else write_report(folder)
