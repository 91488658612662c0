"""The conformance test of policies: whatever passes it can be rolled out in any batch, and trained if it learns.

Left out: whether it plays well. An endpoint without reproducible answers cannot pass, and need not.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Decision, Learnable, Policy, Request, Scored
from palaestra.envs.protocol import Observation

TOLERANCE = 1e-4
"""Of log-probabilities, nats: what rounding may do between two batches."""


def check_policy(policy: Policy, observations: Sequence[Observation], *, agent: str = "agent", seed: int = 0) -> None:
    """Check a policy against `palaestra.agents.policy` on some observations; raises AssertionError at a breach.

    Checked: no requests, no decisions; one decision per request, in order, without error; an action is text or a legal
    id; log-probabilities are finite, at most 0 and one per action token, and so are entropies, at least 0; the same
    rng gives the same decision again, alone, in a batch and in a permuted batch; the global generators of Python,
    NumPy and torch are left alone. If it is `Learnable`: `score` gives back the sampled log-probabilities, right
    padded; its gradient reaches the parameters, which are those that act; `load_state_dict` undoes a change and
    `frozen_copy` does not see it. The policy is left as it was.

    Args:
        policy: what is checked.
        observations: at least two, different ones, that the policy can answer. Prompts of unequal length find the most.
        agent: who asks.
        seed: of the requests' generators.

    Raises:
        AssertionError: one sentence with the promise and the request that broke it.
    """
    _require(len(observations) >= 2, "give check_policy at least two observations")
    _require(isinstance(getattr(policy, "name", None), str) and policy.name != "", "policy.name must be a text")

    def ask(which: Sequence[int], by: Policy = policy) -> list[Decision]:
        requests = [Request(observations[i], agent, np.random.default_rng([seed, i])) for i in which]
        answer = by.act(requests)
        _require(
            isinstance(answer, list) and len(answer) == len(requests),
            f"{len(requests)} requests gave {len(answer) if isinstance(answer, list) else type(answer).__name__}"
            " decisions: act must return a list with one per request",
        )
        return answer

    everyone = list(range(len(observations)))
    ask(everyone)  # the first call may import and initialise
    before = _global_state()
    _require(policy.act([]) == [], "act([]) must return []")
    decisions = ask(everyone)
    for i, decision in enumerate(decisions):
        _check_decision(decision, observations[i], f"request {i}")
    for i, again in enumerate(ask(everyone)):
        _same(decisions[i], again, f"request {i}: the same rng gave another decision the second time")
    for i in everyone:
        _same(decisions[i], ask([i])[0], f"request {i}: alone it is decided differently than in a batch")
    order = everyone[1:] + everyone[:1]
    for i, moved in zip(order, ask(order), strict=True):
        _same(decisions[i], moved, f"request {i}: the decision depends on the place in the batch")
    if isinstance(policy, Learnable):
        _check_learnable(policy, decisions, observations, lambda by: ask(everyone, by))
    _require(_global_state() == before, "the policy draws from a global random generator: use request.rng")


def _check_decision(decision: Decision, seen: Observation, where: str) -> None:
    _require(isinstance(decision, Decision), f"{where}: {type(decision).__name__} is not a Decision")
    _require(decision.error is None, f"{where}: failed with {decision.error!r}")
    action = decision.action
    _require(type(action) in (str, int), f"{where}: the action is a {type(action).__name__}, not str or int")
    if isinstance(action, int):
        _require(seen.index(action) is not None, f"{where}: action id {action} is not legal")
    for name, kind in (("prompt_ids", "i"), ("action_ids", "i"), ("logprobs", "f"), ("entropies", "f")):
        values = getattr(decision, name)
        good = values is None or (isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == kind)
        _require(good, f"{where}: {name} must be a one-dimensional array of {'int' if kind == 'i' else 'float'}")
        _require(values is None or bool(np.isfinite(values).all()), f"{where}: {name} has a value that is not finite")
    if decision.logprobs is not None:
        _require(bool((decision.logprobs <= TOLERANCE).all()), f"{where}: a log-probability is above 0")
    if decision.entropies is not None:
        _require(bool((decision.entropies >= -TOLERANCE).all()), f"{where}: an entropy is below 0")
    if decision.action_ids is not None:
        for name in ("logprobs", "entropies"):
            values = getattr(decision, name)
            found = 0 if values is None else len(values)
            wanted = len(decision.action_ids)
            _require(found == wanted, f"{where}: {wanted} action_ids but {found} {name}")


def _check_learnable(
    policy: Learnable,
    decisions: list[Decision],
    observations: Sequence[Observation],
    ask: Callable[[Policy], list[Decision]],
) -> None:
    import torch

    scored = _check_score(policy, decisions, observations, "")
    parameters = policy.parameters()
    _require(bool(parameters), "parameters() is empty: this policy cannot learn")
    weights = torch.linspace(0.5, 1.5, scored.logprobs.numel(), device=scored.logprobs.device)
    loss = (scored.logprobs.flatten() * weights * scored.mask.flatten()).sum()
    _require(loss.requires_grad, "score: no gradient reaches parameters()")
    reached = [g for g in torch.autograd.grad(loss, parameters, allow_unused=True) if g is not None]
    _require(any(bool(g.any()) for g in reached), "score: no gradient reaches parameters()")
    _require(all(bool(g.isfinite().all()) for g in reached), "score: a gradient is not finite")

    saved, frozen = copy.deepcopy(policy.state_dict()), policy.frozen_copy()
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(torch.linspace(-0.1, 0.1, parameter.numel(), device=parameter.device).view_as(parameter))
        _check_score(policy, ask(policy), observations, ", after parameters() were changed")
        for i, (decision, copied) in enumerate(zip(decisions, ask(frozen), strict=True)):
            _same(decision, copied, f"request {i}: frozen_copy() changed when the policy did")
    finally:
        policy.load_state_dict(saved)
    for i, (decision, restored) in enumerate(zip(decisions, ask(policy), strict=True)):
        _same(decision, restored, f"request {i}: load_state_dict(state_dict()) does not bring the policy back")
    _require(
        not any(p.requires_grad for p in frozen.parameters()), "frozen_copy() has parameters that require a gradient"
    )


def _check_score(
    policy: Learnable, decisions: list[Decision], observations: Sequence[Observation], when: str
) -> Scored:
    """Score what was decided and compare."""
    ids = [d.action_ids for d in decisions if d.action_ids is not None]
    _require(len(ids) == len(decisions), "a Learnable must fill action_ids")
    scored = policy.score(_rows(decisions, observations))
    lengths = np.array([len(each) for each in ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    _require(np.array_equal(scored.mask.cpu().numpy(), mask), "score: mask must be True on a row's first tokens only")
    for name in ("logprobs", "entropies"):
        found = getattr(scored, name).detach().cpu().numpy()
        _require(found.shape == mask.shape, f"score: {name} has shape {found.shape}, mask {mask.shape}")
        off = np.abs(found[mask] - np.concatenate([getattr(d, name) for d in decisions])).max()
        _require(off <= TOLERANCE, f"score: {name} differ by {off:.2g} from those of sampling{when}")
    return scored


def _rows(decisions: list[Decision], observations: Sequence[Observation]) -> pl.DataFrame:
    """Rows that a rollout would store of these decisions, as far as `score` reads them."""

    def lists(name: str, of: Sequence[Any], kind: type[pl.DataType]) -> pl.Series:
        values = [None if (v := getattr(x, name)) is None else np.ravel(v).tolist() for x in of]
        return pl.Series(name, values, dtype=pl.List(kind))

    return pl.DataFrame(
        [
            pl.Series("state", [o.key() for o in observations], dtype=pl.UInt64),
            pl.Series("observation", [o.text for o in observations]),
            lists("array", observations, pl.Float32).alias("features"),
            lists("mask", observations, pl.Boolean).alias("legal"),
            lists("prompt_ids", decisions, pl.Int32),
            lists("action_ids", decisions, pl.Int32),
            lists("logprobs", decisions, pl.Float32),
            lists("entropies", decisions, pl.Float32),
        ]
    )


def _same(one: Decision, other: Decision, message: str) -> None:
    """Equal but for rounding, time and price."""
    equal = one.action == other.action and one.error == other.error
    for name in ("prompt_ids", "action_ids", "logprobs", "entropies"):
        a, b = getattr(one, name), getattr(other, name)
        equal = equal and (a is None) == (b is None)
        equal = equal and (a is None or (a.shape == b.shape and np.allclose(a, b, rtol=0, atol=TOLERANCE)))
    _require(equal, f"{message}: {one.action!r} and {other.action!r}")


def _global_state() -> str:
    torch = sys.modules.get("torch")
    state = [random.getstate(), np.random.get_state()]  # noqa: NPY002
    return repr([*state, torch.get_rng_state().tolist() if torch else None])


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
