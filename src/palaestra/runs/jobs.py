"""Many seeds: `train` one recipe, `compare` variants of it.

Seeds run in processes of their own, one core each, and every process writes to its own directory; this module starts
them, shows their progress, and has what they wrote turned into a summary, a verdict and a report. A process whose
parent is gone ends itself.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.errors import InputError, PalaestraError, RecipeError, StorageError, nearest
from palaestra.evaluation import trials
from palaestra.foundation.checksums import signed
from palaestra.foundation.files import plain, read_object, write_json, write_text
from palaestra.foundation.progress import Bars, report_to_file
from palaestra.learning import checkpoints
from palaestra.learning.journal import Journal
from palaestra.learning.ranks import by_itself, world
from palaestra.learning.run_lock import locked
from palaestra.play import forkserver
from palaestra.runs import build
from palaestra.runs.budget import UNBOUND, budget_summary
from palaestra.runs.budget import read as read_budget
from palaestra.runs.envs import agents_of, env
from palaestra.runs.learner_actors import LearnerActors
from palaestra.runs.policies import FROM_DISK, LANGUAGE_MODELS
from palaestra.runs.ranks import by_torchrun, dismissed, ranks_fit, started
from palaestra.runs.recipe import Recipe, alone, import_modules, load, override, typed
from palaestra.runs.resume_checks import admit, refuse_comparison, refuse_run
from palaestra.runs.seed import Clock, finished, run_seed
from palaestra.runs.seed_jobs import NOTE, SeedJob, WatchedSeed
from palaestra.runs.summary import after_training, economics, pairs, summarise

if TYPE_CHECKING:
    from rich.console import Console


# -- train ------------------------------------------------------------------------------------------------------------


def train(
    recipe: Recipe,
    directory: Path,
    *,
    resume: bool = False,
    jobs: int | None = None,
    ranks: int = 1,
    console: Console | None = None,
    learner: LearnerActors | None = None,
) -> dict[str, Any]:
    """Train all seeds of a recipe, compare with start and controls; writes `summary.json` to `directory`, returns it.

    A run that is finished is not played again; its summary is made anew from what its seeds left. With `resume` it may
    be asked for more of the same: more iterations, seeds, held-out tasks, trials or controls.

    ranks: processes that learn together in each seed, as `learn.devices` says. learner: actors in which seeds run, in
    a cluster that this process has joined; None: processes of this machine.

    Raises:
        InputError: the directory holds another run, or a run and `resume` is False; or somebody else is training in
            it; or the recipe asks for something that cannot be made. Nothing was played.
        StorageError: the directory cannot be written.
        PalaestraError: what stopped a seed.
    """
    ranks_fit(recipe, ranks)
    if learner is not None and by_torchrun():
        raise RecipeError("--learner under torchrun, which has started the processes that learn: give one of both")
    if learner is None and not by_torchrun() and not (directory / "summary.json").exists():  # there will be processes
        forkserver.prepare(*_imports([recipe]))
    _check_where_it_learns(recipe, learner)
    directory = directory if learner is None else directory.absolute()
    _check_attacks(recipe)
    with locked(directory):
        refuse_comparison(directory)
        recipe, searched = _tuned(recipe, directory, resume=resume, jobs=jobs, console=console, learner=learner)
        resume = admit(recipe, directory, resume=resume)
        _open(recipe, directory)
        clock = Clock(directory / "clock.json", resume=resume)
        seeds = [SeedJob(recipe, seed, directory / f"seed-{seed}", f"seed {seed}") for seed in recipe.seeds]
        there = [finished(recipe, job.seed, job.directory) for job in seeds] if resume else []
        results = [result for result in there if result is not None]
        if len(results) < len(seeds):
            if changed := _keep_environment(directory):
                said = f"this run goes on with other versions: {changed}; the earlier ones are in environments.jsonl"
                Bars(console).say(said, "yellow")
            with on_one_cluster(seeds, jobs, ranks) as placed:
                results = run_jobs(
                    placed, resume=resume, jobs=jobs, console=console, clock=clock, ranks=ranks, learner=learner
                )
            clock.keep()
            clock = Clock(directory / "clock.json", resume=True)
        say = Bars(console).say
        seconds = clock.before.get("wall_seconds", sum(result["wall_seconds"] for result in results))
        attacked = _attacked(recipe, directory, jobs, console)
        summary = _summary(recipe, directory, results, seconds, searched, attacked)
        if summary["n_tasks"] > 1 and summary["met_in_training"]:  # a game that always starts alike has one
            say(
                f"{summary['met_in_training']} of the {summary['n_tasks']} held-out tasks were trained on as well: "
                "the comparison says little about new ones",
                "yellow",
            )
        return summary


def _tuned(
    recipe: Recipe,
    directory: Path,
    *,
    resume: bool,
    jobs: int | None,
    console: Console | None,
    learner: LearnerActors | None,
) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with settings that were searched for, if it asks for a search, and what was found of each side."""
    if recipe.tune is None:
        return recipe, {}
    from palaestra.runs import tuning  # brings Optuna

    done = (directory / tuning.RESULT).exists()
    if not done and (directory / "recipe.yaml").exists():
        admit(recipe, directory, resume=resume)
    if not (done or resume) and any((directory / "tuning").glob("*.jsonl")):
        raise InputError(f"{directory} holds a search already: go on with --resume, or choose another --out")
    pool: tuning.Pool = functools.partial(_pool, jobs or os.cpu_count() or 1, _imports([recipe]))
    if learner is not None:
        pool = functools.partial(learner.pool, jobs or tuning.TOGETHER)
    return tuning.tuned(recipe, directory, pool, Bars(console))


def _check_attacks(recipe: Recipe) -> None:
    """Whether the seats of `evaluation.attacks` are there, and others too, before anything is played."""
    if not recipe.evaluation.attacks:
        return
    agents = agents_of(env(recipe.env, "train"))
    for name, part in recipe.evaluation.attacks.items():
        if (seat := part.seat or name) not in agents:
            raise InputError(f"evaluation.attacks.{name}: no seat {seat!r} in the team{nearest(seat, agents)}")
        if len(agents) == 1:
            raise InputError(f"evaluation.attacks.{name}: {seat!r} is the only seat, so nobody is left to attack")


def _attacked(recipe: Recipe, directory: Path, jobs: int | None, console: Console | None) -> dict[str, Any]:
    """The attacks of `evaluation.attacks` on the trained team, in attacks/NAME: what it loses, and the verdict."""
    from palaestra.runs.attacks import attack, folder_of

    found = {}
    for name, part in recipe.evaluation.attacks.items():
        options = part.model_dump() | {"seat": part.seat or name, "directory": folder_of(directory, name)}
        made = attack(directory, train=train, **options, jobs=jobs, console=console, trust=True)  # as the recipe was
        found[name] = {key: made[key] for key in ("seat", "measure", "systems", "differences", "verdict")}
    return found


def _keep_environment(directory: Path) -> str:
    """Note the versions of what runs now; what differs from those that the run had last, in words.

    A result depends on all versions that a run had, so earlier ones are kept as lines of environments.jsonl.
    """
    now, before = build.versions(), read_object(directory / "environment.json") or {}
    names = [name for name in {**before, **now} if before and before.get(name) != now.get(name)]
    if names:
        Journal(directory / "environments.jsonl").append(before)
    write_json(directory / "environment.json", now)
    return ", ".join(f"{name} {before.get(name, 'none')} → {now.get(name, 'none')}" for name in names)


def _check(recipe: Recipe) -> None:
    """Check a recipe before a directory is made."""
    kinds = {part.kind for part in recipe.policies.values()}
    with by_itself():
        build.check(build.resolve(recipe), from_disk=not kinds.isdisjoint(FROM_DISK))


def _check_where_it_learns(recipe: Recipe, learner: LearnerActors | None) -> None:
    """Check a recipe here, or in an actor: this machine may have no GPU."""
    if learner is None:
        _check(recipe)
    else:
        with learner.pool(1) as pool:
            pool.submit(_imported_and_checked, recipe).result()


def _imported_and_checked(recipe: Recipe) -> None:
    import_modules(recipe.imports)
    _check(recipe)


def _open(recipe: Recipe, directory: Path) -> None:
    """Make the directory, which is ours now, ready."""
    for name in ("summary.json", "environment.json", "report.html"):
        if (directory / name).is_dir():
            raise StorageError(f"{directory / name} is a directory, where a file is to be written")
    checkpoints.check_writable(directory, 0)
    write_text(directory / "recipe.yaml", recipe.dump())


def _summary(
    recipe: Recipe,
    directory: Path,
    results: list[dict[str, Any]],
    seconds: float,
    searched: Mapping[str, Any] | None = None,
    attacked: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    versions = results[-1]["versions"]
    write_json(directory / "environment.json", versions)
    found = summarise(recipe, directory, results) | {"wall_seconds": seconds, "versions": versions}
    found["tuning"], found["attacks"] = dict(searched or {}), dict(attacked or {})
    summary = signed(plain(found))
    write_json(directory / "summary.json", summary)
    return summary


# -- jobs -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_one_cluster(work: Sequence[SeedJob], jobs: int | None, ranks: int = 1) -> Iterator[list[SeedJob]]:
    """Context manager that yields the jobs, those that play on a cluster changed to share one that it starts."""
    with contextlib.ExitStack() as stack:
        texts = {job.recipe.play.executor for job in work}
        placed = {text: build.shared_executor(text, _at_once(work, jobs, ranks), stack) for text in texts}
        yield [job._replace(recipe=_played_by(job.recipe, placed[job.recipe.play.executor])) for job in work]


def _at_once(work: Sequence[SeedJob], jobs: int | None, ranks: int) -> int:
    """As many as there are cores, or some more rather than leave cores idle while the last ones train.

    Five seeds on two cores: three and two at a time take 5/2 of the time of one; two, two and one take 3. Places on a
    cluster are shared out, so there no more are taken than there are cores.
    """
    cores = max((os.cpu_count() or 1) // ranks, 1)
    if jobs is None and any(build.on_a_cluster(job.recipe.play.executor) for job in work):
        jobs = cores
    return min(jobs or math.ceil(len(work) / max(len(work) // cores, 1)), len(work))


def _played_by(recipe: Recipe, executor: str) -> Recipe:
    return recipe.model_copy(update={"play": recipe.play.model_copy(update={"executor": executor})})


def run_jobs(
    work: Sequence[SeedJob],
    *,
    resume: bool,
    jobs: int | None,
    console: Console | None,
    clock: Clock | None = None,
    ranks: int = 1,
    learner: LearnerActors | None = None,
) -> list[dict[str, Any]]:
    """Run `SeedJob`s in up to `jobs` processes (None: about one per core), with progress bars; result dicts in order.

    learner: actors that they run in instead.

    Raises:
        PalaestraError: the first error of a job, after the running ones have been stopped.
    """
    jobs = _at_once(work, jobs, ranks)
    others = set(multiprocessing.active_children())
    with Bars(console) as bars:
        if by_torchrun():  # this process is rank 0, and its own child cannot be
            world(work[0].recipe.learn.timeout)
            with dismissed():
                return [run_seed(*job[:3], resume=resume, progress=bars.task(job.title)) for job in work]
        tasks = [WatchedSeed(job, bars) for job in work]
        opened = _pool(jobs, _imports(job.recipe for job in work)) if learner is None else learner.pool(jobs)
        with opened as pool:
            futures, workers = [], set[multiprocessing.process.BaseProcess]()
            for job in work:
                futures.append(_interruptible(functools.partial(pool.submit, _run_job, job, resume, ranks)))
                workers |= set(multiprocessing.active_children()) - others
            pending = set(futures)
            while pending:
                done, pending = concurrent.futures.wait(pending, 0.5, concurrent.futures.FIRST_EXCEPTION)
                for task, future in zip(tasks, futures):
                    task.show(future)
                if clock is not None:
                    clock.keep()
                for future in done:
                    future.result()
                # the pool overlooks a process that is gone before it began to watch it
                if pending and any(worker.exitcode is not None for worker in workers):
                    raise BrokenProcessPool
    return [future.result() for future in futures]


def _interruptible(call: Callable[[], Any]) -> Any:
    """The result of a call that waits for another process.

    Ctrl-C may reach any thread, and one that waits in the kernel does not see it. So the call waits in a thread of its
    own, and this one looks ten times a second.
    """
    helper = concurrent.futures.ThreadPoolExecutor(1)
    try:
        waiting = helper.submit(call)
        while True:
            with contextlib.suppress(concurrent.futures.TimeoutError):
                return waiting.result(0.1)
    finally:
        helper.shutdown(wait=False)


def _imports(recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Modules that the seeds will import."""
    kinds = {part.kind for recipe in recipes for part in recipe.policies.values()}
    return forkserver.TORCH if kinds.isdisjoint(LANGUAGE_MODELS) else (*forkserver.TORCH, *forkserver.LANGUAGE)


@contextlib.contextmanager
def _pool(jobs: int, imports: Sequence[str]) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Processes that are stopped at once if anything goes wrong here, an interruption included."""
    others = set(multiprocessing.active_children())
    context = forkserver.context(*imports)
    pool = concurrent.futures.ProcessPoolExecutor(jobs, context, forkserver.begin, (dict(os.environ),))
    try:
        yield pool
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            forkserver.end_server()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise PalaestraError(
                "the process of a seed was killed (out of memory?); go on from its last checkpoint with --resume"
            ) from error
        raise
    finally:
        pool.shutdown()  # its own thread waits for the processes: two who wait for one would miss its end
        for process in set(multiprocessing.active_children()) - others:
            process.join()


def _run_job(job: SeedJob, resume: bool, ranks: int = 1) -> dict[str, Any]:
    import torch

    torch.set_num_threads(job.recipe.train.threads)
    try:
        with started(ranks, job.recipe.learn.timeout), report_to_file(job.directory / NOTE) as progress:
            return run_seed(job.recipe, job.seed, job.directory, resume=resume, progress=progress)
    except PalaestraError as error:
        raise type(error)(f"{job.title}: {error}") from error
    except Exception as error:  # as text, for not every exception finds its way from one process to another
        raise PalaestraError(f"{job.title}: {type(error).__name__}: {error}") from error


# -- compare ----------------------------------------------------------------------------------------------------------

SEEDS = (0, 1, 2)
"""Seeds of a comparison for which nobody named any."""


def compare(
    name: str | Path,
    overrides: Sequence[str],
    *,
    vary: str,
    seeds: int | None = None,
    directory: Path,
    budget: str | None = None,
    jobs: int | None = None,
    console: Console | None = None,
    trust: bool = False,
    learner: LearnerActors | None = None,
) -> dict[str, Any]:
    """Train recipe `name` with each value of `vary` (FIELD=A,B) on the same seeds into `directory`; dict of all pairs.

    budget: `tokens=200000`, `turns=5000` or `price=…`, what each may spend in training, see `palaestra.runs.budget`;
    then `iterations` of the recipe is no limit. What is there already is not done again.
    seeds: how many; None: those of the recipe or of `overrides`, or 3 where neither names any. learner: as of `train`.

    Raises:
        RecipeError: besides what a recipe can have wrong, a budget that a variant cannot keep; said before it is spent.
            Or `vary` is of seeds, or they are given twice.
    """
    if by_torchrun():
        raise RecipeError("palaestra compare trains variants side by side: not under torchrun; train each by itself")
    field, values = _variants(vary)
    if field == "seeds":
        raise RecipeError(
            f"--vary {vary!r}: all variants are trained on the same seeds; give their number with --seeds, "
            "or name them with an override, e.g. seeds=[5,6]"
        )
    if seeds is not None and "seeds" in typed(overrides):
        raise RecipeError(f"--seeds {seeds} beside an override of seeds: give one of both")
    asked = list(overrides) if seeds is None else [*overrides, f"seeds={seeds}"]
    recipes = {value: alone(load(name, [*asked, f"{field}={value}"], trust=trust)) for value in values}
    recipes = {
        value: recipe if "seeds" in recipe.model_fields_set else recipe.model_copy(update={"seeds": SEEDS})
        for value, recipe in recipes.items()
    }
    folders = {value: f"variant-{number}" for number, value in enumerate(values)}
    if budget is not None:
        part = {"budget": dict(read_budget(budget)), "iterations": UNBOUND}
        recipes = {value: override(recipe, {"train": part}) for value, recipe in recipes.items()}
    if learner is None:
        forkserver.prepare(*_imports(recipes.values()))
    else:
        directory = directory.absolute()
    for value, recipe in recipes.items():
        try:
            _check_where_it_learns(recipe, learner)
        except RecipeError as error:
            raise RecipeError(f"{field}={value}: {error}") from error
    with contextlib.ExitStack() as stack:
        for folder in (directory, *(directory / name for name in folders.values())):
            stack.enter_context(locked(folder))
        refuse_run(directory)
        return _compare(recipes, field, directory, folders, jobs, console, learner)


def _compare(
    recipes: Mapping[str, Recipe],
    field: str,
    directory: Path,
    folders: dict[str, str],
    jobs: int | None,
    console: Console | None,
    learner: LearnerActors | None,
) -> dict[str, Any]:
    searched: dict[str, dict[str, Any]] = {}
    tuned = {}
    for value, recipe in recipes.items():
        tuned[value], searched[value] = _tuned(
            recipe, directory / folders[value], resume=True, jobs=jobs, console=console, learner=learner
        )
    recipes = tuned
    for value, recipe in recipes.items():
        admit(recipe, directory / folders[value], resume=True)
    for value, recipe in recipes.items():
        _open(recipe, directory / folders[value])
    first = next(iter(recipes.values()))
    work = [
        SeedJob(recipe, seed, directory / folders[value] / f"seed-{seed}", f"{field}={value} seed {seed}")
        for seed in first.seeds
        for value, recipe in recipes.items()
    ]
    with on_one_cluster(work, jobs) as placed:
        done = run_jobs(placed, resume=True, jobs=jobs, console=console, learner=learner)
    results = {
        value: [result for job, result in zip(work, done) if job.recipe is recipe] for value, recipe in recipes.items()
    }
    for value, recipe in recipes.items():
        own = results[value]
        _summary(
            recipe, directory / folders[value], own, sum(result["wall_seconds"] for result in own), searched[value]
        )
    comparison = {
        "recipe": first.name,
        "description": first.description,
        "vary": field,
        "seeds": len(first.seeds),
        "variants": folders,
        **budget_summary(first.train.budget, results),
        "economy": economics(trials(after_training(directory, folders)), first.train.budget),
        "pairs": pairs(first, directory, folders, results),
    }
    write_json(directory / "comparison.json", comparison)
    return comparison


def _variants(vary: str) -> tuple[str, list[str]]:
    """`credit=grpo,gigpo(gamma=0.9, weight=2)` -> field and values; commas inside brackets or quotes do not split."""
    field, equals, text = vary.partition("=")
    values, depth, start, quote = [], 0, 0, ""
    for position, sign in enumerate(text + ","):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and not text[position - 1 : position].isalnum():  # that of don't opens nothing
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and (not (depth or quote) or position == len(text)):
            values.append(text[start:position].strip())
            start = position + 1
    values = list(filter(None, values))
    if not equals or len(values) < 2:
        raise RecipeError(f"--vary {vary!r}: write FIELD=VALUE,VALUE with two values or more, e.g. credit=grpo,dr_mas")
    if len(different := list(dict.fromkeys(values))) < 2:
        raise RecipeError(f"--vary {vary!r}: all values are {values[0]}; give two that differ")
    return field, different
