"""Policies that a run has trained: in a seat of another recipe, where they do not learn, or as layers of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Learnable, Policy
from palaestra.errors import InputError, nearest
from palaestra.foundation.files import read_object

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
    folder = Path(run)
    if seeds:
        folder = folder / f"seed-{seed if seed in seeds else seeds[seed % len(seeds)]}"
    elif not any((folder / each).exists() for each in ("team.json", "policies/team.json")):
        trained = sorted((int(f.parts[-3][5:]), f) for f in folder.glob("seed-*/policies/team.json"))
        folder = trained[0][1].parent if trained else folder
    folder = folder if (folder / "team.json").exists() else folder / "policies"
    stored = (read_object(folder / "team.json") or {}).get("policies")
    if not isinstance(stored, dict):
        raise InputError(f"{folder}: no stored team there; give what `palaestra train` or `palaestra export` wrote")
    if policy is None and len(stored) == 1:
        policy = next(iter(stored))
    if policy not in stored:
        raise InputError(f"{folder}: no policy {policy!r} there{nearest(str(policy), stored)}")
    if "folder" not in (stored[policy] or {}):
        raise InputError(f"{folder}: policy {policy!r} has no parameters; write its own kind and options instead")
    others = {other: ScriptedPolicy(lambda _: 0, name=other) for other in stored if other != policy}
    found = Team.load(folder, policies=others).policies.get(str(policy))
    if not isinstance(found, Learnable):
        raise InputError(f"{folder}: policy {policy!r} has no seat in the stored team")
    frozen = found.frozen_copy()
    frozen.name = name or str(policy)
    return frozen


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
