"""The trained team of a run: kept beside its checkpoints, brought back, handed to others.

`RUN/seed-N/policies/NAME/` is what `transformers` (`peft` for adapters) and `Team.load` read; a table or a small
network is a safetensors file and its settings. Left out: optimisers, which are in the checkpoints.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palaestra.agents import Team
from palaestra.agents.team import folder_name
from palaestra.errors import InputError, MissingExtraError, StorageError, nearest
from palaestra.foundation.files import read_text, whole_folder
from palaestra.learning import checkpoints
from palaestra.runs.build import Setup, resolve, scripted_play
from palaestra.runs.measures import lower_is_better
from palaestra.runs.recipe import Recipe, alone, load


def save_team(recipe: Recipe, seed: int, team: Team, folder: Path) -> Path:
    """Save a recipe's trained team of a seed to a folder, scripts and endpoints as recipe entries; returns the path."""
    others = {
        name: {"kind": part.kind, "options": part.options, "seed": seed * 1000 + number}
        for number, (name, part) in enumerate(recipe.policies.items())
    }
    return team.save(folder, others=others)


def export(
    run: Path,
    *,
    seed: int | None = None,
    policy: str | None = None,
    out: Path | None = None,
    best: bool = False,
    trust: bool = False,
) -> dict[str, Path]:
    """Save the policies of a run's checkpoint (the last, or the best) as folders; returns a dict of the paths by name.

    seed: default: the first. policy: only this one; without `out` the others are written too, so that the team there
    stays one of the same moment. out: default RUN/seed-N/policies, the team that the run proved, with `best`
    RUN/seed-N/best. best: of the checkpoints that were kept, the one whose look at held-out tasks was best, not the
    last. trust: code that the recipe names may run.

    Raises:
        InputError: there is no such run, seed or policy, or no checkpoint.
        StorageError: the last checkpoint is damaged; names it.
    """
    recipe, seeds = load_run(run, trust=trust)
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        raise InputError(f"{run}: no seed {seed} there; its seeds: {', '.join(map(str, seeds))}")
    directory = run / f"seed-{seed}"
    found = checkpoints.newest(directory / "checkpoints")
    if found is None:
        raise InputError(f"{directory}: no checkpoint there; go on with `palaestra train … --resume`")
    if fault := checkpoints.damage(found):
        raise StorageError(
            f"{found}: {fault}; restore it from a backup, delete it to export the one before, or train it again with "
            "`palaestra train … --resume`"
        )
    if best:
        found = _best(directory, recipe.evaluation.measure) or found
    team = _untrained(resolve(alone(recipe)), seed, directory, trust)
    state = checkpoints.load(found)["policies"]
    for name, learned in team.learnable.items():
        if name in state:
            learned.load_state_dict(state[name])
    stored = {name: each for name, each in team.policies.items() if hasattr(each, "save")}
    if policy is not None and policy not in stored:
        raise InputError(f"{run}: no policy {policy!r} with parameters{nearest(policy, stored)}")
    if policy is not None and out is not None:
        with whole_folder(out / folder_name(policy)) as temporary:
            stored[policy].save(temporary)
        return {policy: out / folder_name(policy)}
    folder = save_team(recipe, seed, team, out or directory / ("best" if best else "policies"))
    return {name: folder / folder_name(name) for name in stored if policy in (None, name)}


def load_run(run: Path, *, trust: bool = False) -> tuple[Recipe, list[int]]:
    """Load (recipe, sorted list of the seeds that have begun) from the folder of a run.

    Raises:
        InputError: the directory holds no run; or its recipe names code and is not trusted.
    """
    if not (run / "recipe.yaml").exists():
        raise InputError(f"{run}: no recipe.yaml: give a directory that `palaestra train` wrote")
    seeds = sorted(int(path.name[5:]) for path in run.glob("seed-*") if path.name[5:].isdigit())
    if not seeds:
        raise InputError(f"{run}: no seed has begun there yet")
    return load(run / "recipe.yaml", trust=trust), seeds


def push(folder: Path, repository: str, *, upload: Callable[[Path, str], str] | None = None) -> str:
    """Upload the folder of a policy to a model repository of the hub, made private if it is new; returns its address.

    upload: does it; default: `huggingface_hub`, with the login that it knows.

    Raises:
        StorageError: the hub cannot be reached, or refuses.
    """
    try:
        return (upload or _upload)(folder, repository)
    except MissingExtraError:
        raise
    except Exception as error:  # a hub, a proxy or a login may fail in any way
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise StorageError(f"cannot push {folder} to {repository!r}: {said}; the folder is whole") from error


def _upload(folder: Path, repository: str) -> str:
    from huggingface_hub import HfApi

    hub = HfApi()
    address = hub.create_repo(repository, exist_ok=True, private=True)
    hub.upload_folder(repo_id=repository, folder_path=folder)
    return str(address)


def _untrained(setup: Setup, seed: int, directory: Path, trust: bool) -> Team:
    """The team with parameters of some kind: as stored, or made anew as training makes it if that is damaged."""
    if (directory / "policies" / "team.json").exists():
        with contextlib.suppress(StorageError):
            return Team.load(directory / "policies", trust=trust)
    executor = setup.executor()
    try:
        _, corpus = scripted_play(setup, executor, seed)
    finally:
        executor.close()
    return setup.team(seed, corpus)


def _best(directory: Path, measure: str) -> Path | None:
    """Of the checkpoints that are whole, the one with the best look; None if there was none at any."""
    sign = -1 if lower_is_better(measure) else 1
    values: dict[int, float] = {}
    for text in (read_text(directory / "metrics.jsonl") or "").split("\n"):
        with contextlib.suppress(ValueError):  # a last line that is not whole
            line = json.loads(text)
            look: dict[str, Any] = (line["evaluation"] or {}) | line["metrics"]
            if look.get(measure) is not None:
                values[line["iteration"]] = sign * look[measure]
    kept = [path for path in sorted((directory / "checkpoints").glob("iteration-*")) if not checkpoints.damage(path)]
    looked = [path for path in kept if checkpoints.iteration_of(path) in values]
    return max(looked, key=lambda path: (values[checkpoints.iteration_of(path)], path.name), default=None)
