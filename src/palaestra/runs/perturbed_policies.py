"""The kind of policy `perturbed`: a trained network of another run, whose observations are shifted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestra.agents.policy import Policy
from palaestra.errors import InputError
from palaestra.runs.policies import POLICIES, Making
from palaestra.runs.saved_policies import saved_policy


@POLICIES.register("perturbed")
def perturbed(made: Making) -> Policy:
    """Makes a policy from a `Making`: a trained network (options.run) on observations shifted by options.epsilon."""
    found: Policy = made.call(perturbed_policy, made.take("run"), seed=made.seed // 1000)
    return found


def perturbed_policy(
    run: str,
    policy: str | None = None,
    seeds: Sequence[int] | None = None,
    *,
    epsilon: float,
    learns: str = "intention",
    seed: int = 0,
    name: str = "perturbed",
    **options: Any,
) -> Policy:
    """Loads a trained policy of a run as a `PerturbedPolicy`: each observed feature is shifted by at most epsilon.

    Args:
        run: folder that `palaestra train` or `palaestra attack` wrote, of the latter its `training`.
        policy: its name there; of kind mlp, or perturbed. Of the latter victim and intention are both taken over.
        seeds: trained seeds of the run, as in `kind: saved`.
        epsilon: most that a feature is shifted.
        learns: "intention", or "victim": it is trained against the attack.
        seed: of the run that asks, and of the intention's start.
        name: of the policy.
        options: of `PerturbedPolicy`: aim, steps, hidden.

    Raises:
        InputError: there is no such policy, or it is no network.
    """
    from palaestra.agents.mlp import MLPPolicy
    from palaestra.agents.perturbed import PerturbedPolicy

    found: Any = saved_policy(run, policy, seeds, seed=seed)
    if not isinstance(found, MLPPolicy | PerturbedPolicy):
        raise InputError(f"{run}: policy {found.name!r} is a {type(found).__name__}; only networks have observations "
                         "that can be shifted (kind mlp)")  # fmt: skip
    inner: Any = found.module if isinstance(found, PerturbedPolicy) else {"victim": found.module}
    given: dict[str, Any] = {"victim_hidden": getattr(found, "victim_hidden", found.hidden)} | options
    if isinstance(found, PerturbedPolicy):
        given |= {"hidden": found.hidden}
        if found.aim == "network":
            given.setdefault("aim", found.aim)
    given |= {"epsilon": epsilon, "learns": learns, "name": name, "seed": seed}
    made = PerturbedPolicy(found.inputs, found.actions, **given)
    take: Any = made.module
    for part in ("victim", "intention", "adversary") if learns == "victim" else ("victim",):
        if part in inner and part in take:
            take[part].load_state_dict(inner[part].state_dict())
    return made
