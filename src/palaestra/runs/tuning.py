"""Search for settings before training: for the team, and for every control that is trained, with the same effort.

Optuna proposes settings (TPE); a trial trains a variant of the recipe on seeds and held-out tasks that take no part in
the proof. Trials are proposed `TOGETHER` at a time, however many run at once, so what is found does not depend on
workers. A trial ends early if a look of it is worse than the median over the finished ones of their best up to that
look. Finished trials are lines of a journal, and a search that was interrupted goes on from them to the same result.
Left out: several objectives, spaces whose fields depend on one another.
"""

from __future__ import annotations

import functools
import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, PalaestraError, RecipeError, missing_extra
from palaestra.evaluation import trials as trials_of
from palaestra.foundation.files import read_object, write_json, write_text
from palaestra.foundation.progress import Bars
from palaestra.learning import checkpoints
from palaestra.learning.journal import Journal
from palaestra.runs.build import Setup, resolve
from palaestra.runs.config import TunePart, search_space
from palaestra.runs.inline import learn, started
from palaestra.runs.measures import AVERAGE, Table, lower_is_better, measure, table_of
from palaestra.runs.recipe import Recipe, alone, override
from palaestra.runs.resume_checks import read_kept, refuse_other
from palaestra.runs.seed import BEFORE_LEARNING, evaluate
from palaestra.runs.summary import PLAYED, counted_agents, value_of

if TYPE_CHECKING:
    import optuna

TOGETHER = 4
"""Trials that are proposed at once."""
ENOUGH = 4
"""Finished trials before others are compared with their median."""
TUNING = 2
"""Seed of the held-out tasks of a search; `runs.seed` has those of the proof and of looks."""
SEEDS = 1_000_000
"""First seed of the trainings of a search."""
RESULT = "tuning.json"
RECIPE = "tuning/recipe.yaml"
"""File with the recipe that is searched for, as it was written."""


class Processes(Protocol):
    """Protocol of what trials run in: processes, or actors of a cluster."""

    def map(self, function: Callable[..., Any], /, *arguments: Iterable[Any]) -> Iterable[Any]:
        """Results of `function` of each tuple of arguments, in their order."""


Pool = Callable[[], AbstractContextManager[Processes]]


def tuned(recipe: Recipe, directory: Path, pool: Pool, bars: Bars) -> tuple[Recipe, dict[str, Any]]:
    """Search a recipe's `tune` space by Optuna in processes of `pool`, kept in `directory`: (recipe as found, results).

    Args:
        recipe: with `tune`.
        directory: of the run; the search writes into `tuning/` there, and `tuning.json` when it is done.
        pool: makes the processes that train.
        bars: shows how far it is.

    Raises:
        RecipeError: a field of the space is none of the recipe.
        InputError: the directory holds a search with another recipe, or no trial of a side could be finished.
        StorageError: the recipe that it keeps of that search is damaged.
        MissingExtraError: Optuna is not installed.
    """
    assert recipe.tune is not None
    asked = {"tune": recipe.tune.model_dump(mode="json"), "sides": {}}
    variants = dict(sides(recipe))
    for name, (_, space) in variants.items():
        asked["sides"][name] = space
    there = read_object(directory / RESULT)
    if there is not None:
        if there.get("asked") != asked:
            raise InputError(f"{directory / RESULT} is of a search with other settings; choose another --out")
        _refuse_other(directory, applied(recipe, there["found"]), there["found"])
        return applied(recipe, there["found"]), there["found"]
    found = {}
    check_space(recipe)
    _refuse_other(directory, recipe)
    (directory / "tuning").mkdir(exist_ok=True)
    write_text(directory / RECIPE, recipe.dump())
    with pool() as processes, bars:
        for name, (variant, space) in variants.items():
            journal = Journal(directory / "tuning" / f"{name}.jsonl")
            journal.rewind(recipe.tune.trials - 1)  # the first is number 0
            if (kept := len(journal.lines)) < recipe.tune.trials:  # what is proposed together is known together
                journal.rewind(kept // TOGETHER * TOGETHER - 1)
            starts = directory / "tuning" / f"start-{name}"
            side = found[name] = _search(name, variant, space, recipe.tune, journal, starts, processes, bars)
            shutil.rmtree(starts, ignore_errors=True)
            bars.say(f"tuned {'the team' if name == 'after' else name}: {described(side)}")
    write_json(directory / RESULT, {"asked": asked, "found": found})
    return applied(recipe, found), found


def _refuse_other(directory: Path, recipe: Recipe, found: Mapping[str, Any] | None = None) -> None:
    """Refuse to go on with a search for another recipe. found: by it, which `recipe` has; None: it is not finished."""
    path = directory / RECIPE
    if not path.exists() or (found is None and not any((directory / "tuning").glob("*.jsonl"))):
        return
    old = read_kept(path)
    refuse_other(path, old if found is None else applied(old, found), recipe)
    assert recipe.tune is not None
    if found is None and recipe.tune.iterations is None and old.train.iterations != recipe.train.iterations:
        raise InputError(
            f"{path}: trials of {old.train.iterations} iterations cannot be compared with such of "
            f"{recipe.train.iterations}: go on with as many, or choose another --out"
        )


def sides(recipe: Recipe) -> Iterator[tuple[str, tuple[Recipe, dict[str, str]]]]:
    """Iterator of (name, (recipe, search space)) of all that is tuned: "after", the team, and trained controls.

    A control is searched over the space of the recipe, without the fields that its `train` sets or does not have, and
    over its own `tune`.
    """
    assert recipe.tune is not None
    yield "after", (alone(recipe), dict(recipe.tune.space))
    for name, part in recipe.evaluation.controls.items():
        if part.train is None:
            continue
        variant = override(alone(recipe), part.train, f"evaluation.controls.{name}.train")
        own = {field: text for field, text in recipe.tune.space.items() if not _has(part.train, field.split("."))}
        space = own | dict(part.tune)
        there = {field: text for field, text in space.items() if field in part.tune or _known(variant, field)}
        yield name, (variant, there)


def applied(recipe: Recipe, found: Mapping[str, Any]) -> Recipe:
    """A new recipe with the values that the searches found, for the team and for each tuned control."""
    changed = override(recipe, nested(found["after"]["found"]), "tune") if "after" in found else recipe
    for name, side in found.items():
        if name == "after":
            continue
        train = recipe.evaluation.controls[name].train or {}
        controls = {name: {"train": _merged(train, nested(side["found"]))}}
        changed = override(changed, {"evaluation": {"controls": controls}}, "tune")
    return changed


def described(side: Mapping[str, Any]) -> str:
    """Text of one line on what a hyperparameter search found and what it cost, from its result dict."""
    settings = ", ".join(f"{field}={short_value(value)}" for field, value in side["found"].items())
    early = f", {side['pruned']} ended early" if side["pruned"] else ""
    before = f" ({short_value(side['as_written'])} as written)" if side["as_written"] is not None else ""
    cost = f"{side['trials']} trials{early}, {side['cpu_seconds']:.0f} CPU-s"
    return f"{settings}; {short_value(side['value'])}{before} in {cost}"


def short_value(value: Any) -> str:
    """Text of a value for messages: three significant digits for a float, `str` otherwise."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _search(
    name: str,
    recipe: Recipe,
    space: Mapping[str, str],
    part: TunePart,
    journal: Journal,
    starts: Path,
    processes: Processes,
    bars: Bars,
) -> dict[str, Any]:
    """Every trial of one side.

    starts: a folder for the parameters that its trials begin with.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise missing_extra("optuna", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    lower = lower_is_better(recipe.evaluation.measure)
    distributions = {field: _distribution(text) for field, text in space.items()}
    study = optuna.create_study(direction="minimize" if lower else "maximize")
    written = {field: value for field in space if (value := _written(recipe, field, distributions[field])) is not None}
    report = bars.task(f"tuning {'the team' if name == 'after' else name}")
    for line in journal.lines:
        study.add_trial(_again(line, distributions))
    report("searching", len(journal.lines), part.trials)
    changes = {"train": {"iterations": part.iterations}} if part.iterations else {}
    begun: list[Path] = []
    spent = 0.0
    if len(journal.lines) < part.trials and _starts_alike(recipe, space):
        begun = [starts / f"seed-{place}" for place in range(part.seeds)]
        spent = sum(processes.map(functools.partial(keep_start, recipe), begun, range(SEEDS, SEEDS + part.seeds)))
    while len(journal.lines) < part.trials:
        first = len(journal.lines)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of options of Optuna that are called experimental
            study.sampler = optuna.samplers.TPESampler(seed=first, n_startup_trials=2 * TOGETHER, constant_liar=True)
        if not first:
            study.enqueue_trial(written)
        asked = [study.ask(distributions) for _ in range(min(TOGETHER, part.trials - first))]
        bounds = _medians(journal.lines, lower) if part.prune else {}
        variants = [override(recipe, _merged(changes, nested(each.params)), "tune") for each in asked]
        run = functools.partial(run_trial, seeds=part.seeds, bounds=bounds, starts=begun)
        for trial, line in zip(asked, processes.map(run, variants), strict=True):
            for step, value in _steps(line).items():
                trial.report(value, step)
            study.tell(trial, line["value"], state=_state(line))
            as_written = not journal.lines and written.keys() == space.keys()
            line["cpu_seconds"] += 0.0 if journal.lines else spent
            journal.append(
                {"iteration": len(journal.lines), "settings": trial.params, "as_written": as_written, **line}
            )
            report("searching", len(journal.lines), part.trials)
    return _best(journal.lines, space, lower, name)


def _starts_alike(recipe: Recipe, space: Mapping[str, str]) -> bool:
    """Whether every trial begins with the same warm start."""
    part = recipe.warm_start
    return part is not None and part.steps > 0 and not any(field.split(".")[0] in BEFORE_LEARNING for field in space)


def keep_start(recipe: Recipe, folder: Path, seed: int) -> float:
    """Save a recipe's team of a seed after its warm start as a checkpoint if `folder` has none; returns CPU seconds."""
    if (found := checkpoints.latest(folder)) is not None:
        return float(checkpoints.load(found)["cpu_seconds"])
    torch.set_num_threads(recipe.train.threads)
    began, setup = time.process_time(), resolve(recipe)
    executor = setup.executor()
    team, _ = started(setup, executor, seed)
    executor.close()
    seconds = time.process_time() - began
    checkpoints.save(folder, 0, {"team": team.state_dict(), "cpu_seconds": seconds})
    return seconds


def run_trial(
    recipe: Recipe, *, seeds: int, bounds: Mapping[str, float], starts: Sequence[Path] = ()
) -> dict[str, Any]:
    """Train a recipe on `seeds` seeds, stopped at a look that misses `bounds`; dict of curves, last value, cost, error.

    Args:
        recipe: the variant.
        seeds: number of trainings.
        bounds: "seed/iteration" -> the value that a look there must reach.
        starts: folders of `keep_start`, one a seed; none: each training makes its own warm start.
    """
    torch.set_num_threads(recipe.train.threads)
    began, lower = time.process_time(), lower_is_better(recipe.evaluation.measure)
    line: dict[str, Any] = {"curves": {}, "pruned": False, "error": None, "turns": 0, "tokens": 0}
    setup = resolve(recipe)
    executor = setup.executor()

    def count(iteration: int, turns: Turns) -> None:
        line["turns"] += len(turns)
        counted = [name for name in ("tokens_in", "tokens_out") if name in turns.columns]
        line["tokens"] += int(sum(turns[name].fill_null(0).sum() for name in counted))

    last = []
    try:
        for place in range(seeds):
            curve: dict[str, float] = {}
            tables: list[Table] = []

            def look(
                iteration: int,
                team: Team,
                place: int = place,
                curve: dict[str, float] = curve,
                tables: list[Table] = tables,
            ) -> dict[str, float]:
                due = iteration % recipe.train.evaluate_every == 0 or iteration == recipe.train.iterations
                if found := _look(setup, executor, team, tables, due):
                    curve[str(iteration)] = found[0]
                    key = f"{place}/{iteration}"
                    line["curves"][key] = found[0]
                    bound = bounds.get(key)
                    if bound is not None and (found[0] > bound if lower else found[0] < bound):
                        raise _WorseError
                return {}

            start = checkpoints.load(found)["team"] if starts and (found := checkpoints.latest(starts[place])) else None
            learned = learn(recipe, seed=SEEDS + place, after_iteration=look, on_turns=count, start=start)
            if (ended := str(len(learned.lines))) not in curve:  # a budget ended it between two looks
                (curve[ended],) = _look(setup, executor, learned.team, tables[:-1], True)
                line["curves"][f"{place}/{ended}"] = curve[ended]
            last.append([*curve.values()][-1])
    except _WorseError:
        line["pruned"] = True
    except PalaestraError as error:
        line["error"] = f"{type(error).__name__}: {error}"
    executor.close()
    line["value"] = float(np.mean(last)) if len(last) == seeds else None
    if line["value"] is not None and not math.isfinite(line["value"]):
        line |= {"value": None, "error": f"{recipe.evaluation.measure} is not finite"}
    return line | {"cpu_seconds": time.process_time() - began}


class _WorseError(Exception):
    """A look that is worse than the median over the finished trials of their best up to there."""


def _look(setup: Setup, executor: Any, team: Team, tables: list[Table], due: bool) -> list[float]:
    """Held-out value of a team on the tasks of the search, as one number; none if no look is due."""
    part = setup.evaluation
    if part.measure in PLAYED:
        if not due:
            return []
        played = evaluate(part, executor, setup.test, team, seed=TUNING, run="tuning", look=True)
        table = trials_of(played, where=counted_agents(part))
        value = table[value_of(part.measure, table)].cast(float).mean()
        return [value if isinstance(value, float) else math.nan]
    if not due and not part.measure.startswith(AVERAGE):
        return []
    game, table_now = table_of(setup.test, team)
    tables.append(table_now)
    return [measure(part.measure, game, tables if part.measure.startswith(AVERAGE) else [table_now])] if due else []


def _medians(lines: Sequence[Mapping[str, Any]], lower: bool) -> dict[str, float]:
    """Of each look of a seed the median over the finished trials of the best value up to it."""
    done = [line["curves"] for line in lines if line["value"] is not None]
    if len(done) < ENOUGH:
        return {}
    best = min if lower else max
    found = {}
    for key in done[0]:
        seed, _, iteration = key.partition("/")
        until = [
            best(values)
            for curves in done
            if (
                values := [
                    value
                    for each, value in curves.items()
                    if each.partition("/")[0] == seed and int(each.partition("/")[2]) <= int(iteration)
                ]
            )
            if key in curves
        ]
        found[key] = float(np.median(until))
    return found


def _best(lines: Sequence[Mapping[str, Any]], space: Mapping[str, str], lower: bool, name: str) -> dict[str, Any]:
    done = [line for line in lines if line["value"] is not None]
    if not done:
        raise InputError(f"tune: no trial of {name!r} could be finished; the first: {lines[0]['error'] or 'stopped'}")
    sign = -1 if lower else 1  # among equals the one that was better on the way
    best = max(done, key=lambda line: (sign * line["value"], sign * float(np.mean([*line["curves"].values()]))))
    total = {key: sum(line[key] for line in lines) for key in ("cpu_seconds", "turns", "tokens")}
    return {
        "space": dict(space),
        "trials": len(lines),
        "pruned": sum(line["pruned"] for line in lines),
        "failed": sum(line["error"] is not None for line in lines),
        "found": best["settings"],
        "value": best["value"],
        "as_written": lines[0]["value"] if lines[0]["as_written"] else None,
        **total,
    }


def _state(line: Mapping[str, Any]) -> optuna.trial.TrialState:
    from optuna.trial import TrialState

    if line["value"] is not None:
        return TrialState.COMPLETE
    return TrialState.PRUNED if line["pruned"] else TrialState.FAIL


def _steps(line: Mapping[str, Any]) -> dict[int, float]:
    """Looks of a trial's first seed, by iteration."""
    return {int(key.partition("/")[2]): value for key, value in line["curves"].items() if key.startswith("0/")}


def _again(line: Mapping[str, Any], distributions: Mapping[str, Any]) -> optuna.trial.FrozenTrial:
    """A trial of the journal."""
    from optuna.trial import create_trial

    return create_trial(
        params=line["settings"],
        distributions=dict(distributions),
        value=line["value"],
        state=_state(line),
        intermediate_values=_steps(line),
    )


def _distribution(text: str) -> Any:
    """Optuna's form of one field's space."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    kind, values = search_space(text)
    if kind == "choice":
        return CategoricalDistribution(values)
    if kind == "int":
        return IntDistribution(*values)
    low, high = values
    return FloatDistribution(low, high, log=kind == "log")


def _written(recipe: Recipe, field: str, distribution: Any) -> Any:
    """Value of a field in the recipe, if it lies in the space; None if it does not."""
    data: Any = recipe.model_dump(mode="json")
    for key in field.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    try:
        return data if data is not None and distribution._contains(distribution.to_internal_repr(data)) else None
    except (TypeError, ValueError):
        return None


def _known(recipe: Recipe, field: str) -> bool:
    """Whether the recipe has a field of that name; options of a policy or env count if the part is there."""
    data: Any = recipe.model_dump(mode="json")
    *path, name = field.split(".")
    for key in path:
        if not isinstance(data, Mapping) or data.get(key) is None:
            return False
        data = data[key]
    return isinstance(data, Mapping) and (name in data or path[-1:] == ["options"])


def check_space(recipe: Recipe) -> None:
    """Raise RecipeError if a tuned variant is not valid with the first two values of each field of its search space.

    Raises:
        RecipeError: a field is none of the recipe, or its value does not fit; names it.
    """
    for name, (variant, space) in sides(recipe):
        for field, text in space.items():
            if not _known(variant, field):
                raise RecipeError(f"tune.space: {field!r} is no field of the recipe of {name!r}")
            for value in search_space(text)[1][:2]:
                override(variant, nested({field: value}), f"tune.space.{field}")


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dict from settings by dotted name, as `override` takes it.

    >>> nested({"learn.lr": 0.1, "learn.epochs": 2, "credit": "grpo()"})
    {'learn': {'lr': 0.1, 'epochs': 2}, 'credit': 'grpo()'}
    """
    found: dict[str, Any] = {}
    for field, value in settings.items():
        *path, name = field.split(".")
        inner = found
        for key in path:
            inner = inner.setdefault(key, {})
        inner[name] = value
    return found


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in more.items():
        old = found.get(key)
        found[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def _has(data: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True
