"""Policies that a run has trained: in a seat of another recipe, where they do not learn, or as layers of another.

A run that was begun with one goes on with the same one, wherever it lies by now: its files count, not its folder.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Learnable, Policy
from palaestra.errors import InputError, nearest
from palaestra.foundation.checksums import checksums, digest
from palaestra.foundation.files import read_object, write_json

if TYPE_CHECKING:
    from palaestra.agents.split_mlp import SplitMLPPolicy


def saved_policy(
    run: str, policy: str | None = None, seeds: Sequence[int] | None = None, *, seed: int = 0, name: str | None = None
) -> Policy:
    """Load a trained policy from the folder of a run or of a saved team, as a frozen copy.

    Args:
        run: folder that `palaestra train` wrote, or one that `Team.save` wrote.
        policy: its name there. None: the only one.
        seeds: trained seeds of the run. `seed` is taken if it is one of them, else they take turns. None: the first.
        seed: seed of the run that asks.
        name: its name in the team that it joins. None: its own.

    Raises:
        InputError: there is no such team or policy, or the policy was stored without parameters (scripts, endpoints).
        StorageError: a file of the policy is gone, or is not as it was stored.
    """
    folder, policy, stored = _found(run, policy, seeds, seed)
    others = {other: ScriptedPolicy(lambda _: 0, name=other) for other in stored["policies"] if other != policy}
    found = Team.load(folder, policies=others).policies.get(policy)
    if not isinstance(found, Learnable):
        raise InputError(f"{folder}: policy {policy!r} has no seat in the stored team")
    frozen = found.frozen_copy()
    frozen.name = name or policy
    return frozen


def _found(run: str, policy: str | None, seeds: Sequence[int] | None, seed: int) -> tuple[Path, str, dict[str, Any]]:
    """Folder of a stored team, name of the policy in it, and what its `team.json` says; as of `saved_policy`."""
    folder = Path(run)
    if seeds:
        folder = folder / f"seed-{seed if seed in seeds else seeds[seed % len(seeds)]}"
    elif not any((folder / each).exists() for each in ("team.json", "policies/team.json")):
        trained = sorted((int(f.parts[-3][5:]), f) for f in folder.glob("seed-*/policies/team.json"))
        folder = trained[0][1].parent if trained else folder
    folder = folder if (folder / "team.json").exists() else folder / "policies"
    told = read_object(folder / "team.json") or {}
    stored = told.get("policies")
    if not isinstance(stored, dict):
        raise InputError(f"{folder}: no stored team there; give what `palaestra train` or `palaestra export` wrote")
    if policy is None and len(stored) == 1:
        policy = next(iter(stored))
    if policy not in stored:
        raise InputError(f"{folder}: no policy {policy!r} there{nearest(str(policy), stored)}")
    if "folder" not in (stored[policy] or {}):
        raise InputError(f"{folder}: policy {policy!r} has no parameters; write its own kind and options instead")
    return folder, str(policy), told


KEPT = "saved.json"
"""File of a seed: SHA-256 of the stored policies that it was begun with, by their field in the recipe."""

_OPTIONS = {"saved": ("run", "policy"), "perturbed": ("run", "policy"), "split_mlp": ("trunk", "trunk_policy")}
"""Options with the folder of another run and the name of a policy there, by the kind that reads them."""


def _sources(recipe: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], str, str]]:
    """Of the policies of a recipe and its controls that read another run: field, options, the two of `_OPTIONS`."""
    teams = {"policies": recipe["policies"]}
    for control, part in recipe["evaluation"]["controls"].items():
        teams[f"evaluation.controls.{control}.policies"] = part["policies"] or {}
    for place, policies in teams.items():
        for name, part in policies.items():
            run, policy = _OPTIONS.get(part["kind"], ("", ""))
            if part["options"].get(run) is not None:
                yield f"{place}.{name}", part["options"], run, policy


def anywhere(recipe: dict[str, Any]) -> dict[str, Any]:
    """Change a recipe's dump (dict) in place so that it does not say where stored policies lie; returns it."""
    for _, options, run, _ in _sources(recipe):
        options[run] = "stored"
        options.pop("seeds", None)
    return recipe


def _checksums(recipe: Mapping[str, Any], seed: int) -> dict[str, str]:
    """SHA-256 of the stored policies of a seed by their field; without those that are gone: who loads them says so."""
    found = {}
    for field, options, run, policy in _sources(recipe):
        try:
            folder, name, told = _found(options[run], options.get(policy), options.get("seeds"), seed)
        except InputError:
            continue
        place = told["policies"][name]["folder"]
        files = told.get("files") or checksums(folder, [f"{glob.escape(place)}/**/*"])
        found[field] = digest({name: each for name, each in files.items() if name.startswith(f"{place}/")})
    return found


def changed(recipe: Mapping[str, Any], seed: int, directory: Path) -> list[str]:
    """List of the fields in a recipe's dump whose stored policies are not those that the seed in a directory has.

    A control that was added since is none of them. Without a start nothing is.
    """
    if not (directory / "start").exists():
        return []
    now = _checksums(recipe, seed)
    added = {field: each for field, each in now.items() if not field.startswith("policies.")}
    was = added | (read_object(directory / KEPT) or {})
    return [field for field, each in now.items() if was.get(field) != each]


def keep(recipe: Mapping[str, Any], seed: int, directory: Path, *, resume: bool) -> None:
    """Write to a seed's directory which stored policies the recipe's dump has it begin with.

    Raises:
        InputError: it resumes, and was begun with others; see `refuse_changed`.
    """
    if resume:
        refuse_changed(recipe, seed, directory)
    if found := _checksums(recipe, seed):
        write_json(directory / KEPT, ((read_object(directory / KEPT) or {}) if resume else {}) | found)


def refuse_changed(recipe: Mapping[str, Any], seed: int, directory: Path) -> None:
    """Raise InputError, which names the field, if a seed was begun with stored policies that are others by now.

    Raises:
        InputError: it was, or it does not say with which.
    """
    runs = {field: options[run] for field, options, run, _ in _sources(recipe)}
    for field in changed(recipe, seed, directory):
        raise InputError(
            f"{directory}: {field} is not as it was when this seed was begun: {runs[field]} was trained on or "
            "exported again; restore its policies, or choose another --out"
        )


def adopted(
    policy: SplitMLPPolicy,
    *,
    trunk: str | None = None,
    trunk_policy: str | None = None,
    freeze: bool = True,
    seed: int = 0,
) -> SplitMLPPolicy:
    """Give a `split_mlp` policy in place the shared layers of one in run folder `trunk` (None: no change); returns it.

    Args:
        policy: gets the layers.
        trunk: folder of the run, as `saved_policy` reads it. None: the policy stays as it is.
        trunk_policy: name of the policy there. None: the only one.
        freeze: see `SplitMLPPolicy.adopt`.
        seed: seed of the run that asks.

    Raises:
        InputError: that policy is of another kind, or its shared layers do not fit.
    """
    from palaestra.agents.split_mlp import SplitMLPPolicy

    if trunk is None:
        return policy
    other = saved_policy(trunk, trunk_policy, seed=seed)
    if not isinstance(other, SplitMLPPolicy):
        raise InputError(f"trunk={trunk!r}: policy {other.name!r} is no split_mlp; it has no shared layers to give")
    policy.adopt(other, freeze=freeze)
    return policy
