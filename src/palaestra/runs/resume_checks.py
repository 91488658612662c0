"""Checks of an existing run directory: whether a recipe may start or resume there.

The remains of a start that failed before anything was learned are in nobody's way. A run goes on with the recipe that
it was begun with, or with one that asks for more of the same; anything else is another run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palaestra.errors import InputError, RecipeError, StorageError
from palaestra.foundation.files import read_text
from palaestra.learning import checkpoints
from palaestra.runs import saved_policies
from palaestra.runs.phases import Phase, phases_of
from palaestra.runs.phases import read as read_phases
from palaestra.runs.recipe import Recipe, look

GROWING = (
    "train.iterations",
    "seeds",
    "evaluation.tasks",
    "evaluation.trials",
    "evaluation.controls",
    "evaluation.attacks",
)
"""Fields that may ask for more than the run was begun with."""


def admit(recipe: Recipe, directory: Path, *, resume: bool) -> bool:
    """Whether to resume a recipe's run in `directory`; InputError if it differs. False: nothing trained, rest deleted.

    Raises:
        InputError: the directory holds another run, or a run and `resume` is False; names the fields that differ. Or it
            holds a recipe that no run has written.
        StorageError: its recipe is damaged.
    """
    path = directory / "recipe.yaml"
    text = read_text(path)
    trained = next(_trained(directory), None)
    if trained is None:
        if text is not None and text != recipe.dump():
            _remove(directory, text)
        return text == recipe.dump()
    if not resume:
        raise InputError(f"{directory} holds a run already: go on with --resume, or choose another --out")
    if text is None:
        raise StorageError(f"{path} is gone, so nobody knows what {trained} is of: restore it, or choose another --out")
    refuse_other(path, read_kept(path), recipe)
    return True


def refuse_run(directory: Path) -> None:
    """Raise InputError if `directory`, where a comparison is to be written, holds a trained run."""
    if next(_trained(directory), None):
        raise InputError(f"{directory} holds a run: a comparison needs another --out")


def refuse_comparison(directory: Path) -> None:
    """Raise InputError if `directory`, where a run is to be written, holds a comparison."""
    if (directory / "comparison.json").exists():
        raise InputError(f"{directory} holds a comparison: a run needs another --out")


def refuse_other(path: Path, old: Recipe, new: Recipe) -> None:
    """Raise InputError, which names fields, if a run of recipe `old`, kept at `path`, cannot go on with `new`."""
    for seed in new.seeds:
        saved_policies.refuse_changed(new.model_dump(mode="json"), seed, path.parent / f"seed-{seed}")
    refused = [said for said in _changes(old, new) if said]
    if refused:
        raise InputError(
            f"{path}: the run was made with another recipe or other overrides: {'; '.join(refused[:3])}"
            f"{f' and {len(refused) - 3} more' if len(refused) > 3 else ''}; choose another --out "
            f"(only {', '.join(GROWING)} may grow)"
        )


ADDED = ("evaluation.controls.", "evaluation.attacks.")
"""Fields of which more may be asked for, each as a whole."""

BESIDE = ("description", "track", "play.executor", "train.keep_calls")
"""Fields on which no number depends; who plays can at most change the last bits, and none if `play.shards` is given."""


OURS = ("start", ".lock")
"""One of them at least is in the folder of a seed that was begun."""


def _trained(directory: Path) -> Iterator[str]:
    """Trained parts of a run that a new start would overwrite."""
    for seed in sorted(directory.glob("seed-*")):
        if (seed / "result.json").exists() or checkpoints.existing_file(seed):
            yield seed.name


def _remove(directory: Path, text: str) -> None:
    """Delete the remains of a start that failed; `text` is its recipe, which a person may have written instead."""
    path = directory / "recipe.yaml"
    try:
        written = look(path).dump()
    except RecipeError:
        written = None
    if written != text:
        raise InputError(f"{path} was not written by a run: choose another --out, or move it away")
    for seed in directory.glob("seed-*"):
        if re.fullmatch(r"seed-\d+", seed.name) and any((seed / name).exists() for name in OURS):
            shutil.rmtree(seed, ignore_errors=True)
    for name in ("recipe.yaml", "clock.json"):
        if (directory / name).is_file():
            (directory / name).unlink()


def read_kept(path: Path) -> Recipe:
    """Read the recipe that a run keeps at `path`.

    Raises:
        StorageError: it is damaged.
    """
    try:
        return look(path)
    except RecipeError as error:
        raise StorageError(
            f"{error}; it is damaged, or of another version: restore it, or choose another --out"
        ) from error


def _changes(old: Recipe, new: Recipe) -> Iterator[str | None]:
    """For each field that differs None if it may, else how."""
    before, after = (_flat(saved_policies.anywhere(each.model_dump(mode="json"))) for each in (old, new))
    for field in dict.fromkeys([*before, *after]):
        was, now = before.get(field), after.get(field)
        if was != now:
            yield None if _grows(field, was, now) else f"{field}={was!r}, not {now!r}"
    if new.train.iterations <= old.train.iterations:
        return
    learns = {"learn": new.learn} | {f"{phase.place}.learn": new.in_phase(phase, READ).learn for phase in _phases(new)}
    planned: dict[str, Any] = {
        f"{place}.schedule": each.schedule for place, each in learns.items() if each.schedule != "constant"
    }
    planned |= {f"{each.place}.until": each.ends.text for each in _phases(new) if each.ends and each.ends.shares}
    for field, value in planned.items():
        yield f"{field}={value!r} was planned for {old.train.iterations} iterations, not {new.train.iterations}"


READ = {"only_read": True}
"""Nothing of the recipe's own is imported."""


def _phases(recipe: Recipe) -> list[Phase]:
    return phases_of(read_phases(recipe.phases))


def _grows(field: str, was: Any, now: Any) -> bool:
    if field in BESIDE:
        return True
    if field.startswith(ADDED):
        return was is None
    if field not in GROWING:
        return False
    return set(was) <= set(now) if isinstance(was, list) else bool(was < now)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields by their dotted names; a control is one field, and so is an attack."""
    found: dict[str, Any] = {}
    for name, item in value.items():
        field = f"{prefix}{name}"
        whole = field.startswith(ADDED) or not isinstance(item, dict) or not item
        found |= {field: item} if whole else _flat(item, f"{field}.")
    order = []
    for item in found.pop("phases", ()) if not prefix else ():
        listed = item.get("alternate", [item])
        order.append({"alternate": [phase["name"] for phase in listed], "repeat": item.get("repeat", 1)})
        for phase in listed:
            found |= _flat({key: each for key, each in phase.items() if key != "name"}, f"phases.{phase['name']}.")
    found |= {"phases": order} if order else {}
    return {name: item for name, item in found.items() if f"{name}." not in ADDED}
