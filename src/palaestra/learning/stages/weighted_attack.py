"""`weighted_attack`: trains a network of shifts on replayed observations, weighted by what helps the target ([182])."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    import torch

    from palaestra.agents.perturbed import PerturbedPolicy

WORTH = "standardise(return_to_go(fill_missing('preference', 0.0), gamma=0.95), over=('agent', 'turn'))"
"""Advantage of an action by the reward that `preference_reward` learned."""


@stage
class weighted_attack(Stage):
    """Stage: trains the shift network of `seat`'s `perturbed` policy with aim='network' on weighted replay (RAT [182]).

    Inner loss, of a network θ on replayed observations and actions: mean of h(s, a) · KL(victim at s + shift_θ(s) ‖
    intention at s). The weights h are a softmax over the batch, of mean 1, from a network ω of observation and action,
    and are all 1 at the start.

    Outer loss, on the newest play: minus the mean of worth · log π_victim(a at s + shift_θ'(s)), where
    θ' = θ - `inner` · gradient of the inner loss. Its gradient with respect to ω goes through that one step: what is
    replayed counts more if learning from it makes actions of high worth more probable. Then θ takes a step of Adam on
    the inner loss with these weights. Policy gradients of the run do not reach θ.

    Args:
        seat: the agent; its policy is of kind `perturbed` with aim="network".
        worth: expression of what an action was worth, on the rows of the seat.
        weights: whether weights are learned; else they stay 1, which is RAT without its outer loop.
        memory: replayed rows, the newest. batch, steps: of each iteration. lr: of θ. outer_lr: of ω.
        inner: size of the one step. hidden: widths of ω.

    Metrics: `divergence`, mean KL of the last batch without weights; `weight_deviation` of its weights.

    Raises:
        InputError: a number is out of range, or the seat has another policy.

    Source: the outer loop is a reconstruction; the paper's abstract names weights of replay by state occupancy alone.
    """

    needs = {"agent", "features", "action_ids", "preference"}

    def __init__(
        self, seat: str, worth: str = WORTH, *, weights: bool = True, memory: int = 4000, batch: int = 128,
        steps: int = 30, lr: float = 1e-2, outer_lr: float = 1e-2, inner: float = 0.5, hidden: Sequence[int] = (32,),
    ) -> None:  # fmt: skip
        if min(memory, batch, steps) < 1 or not min(lr, outer_lr, inner) > 0:
            raise InputError(
                f"weighted_attack: {memory=}, {batch=} and {steps=} must be at least 1, {lr=}, {outer_lr=} and "
                f"{inner=} above 0"
            )
        self.seat, self.worth, self.weights, self.memory = seat, parse(worth), weights, memory
        self.batch, self.steps, self.lr, self.outer_lr, self.inner = batch, steps, lr, outer_lr, inner
        self.hidden = tuple(hidden)
        self.kept: tuple[np.ndarray, np.ndarray] | None = None
        self._made: tuple[torch.nn.Module, torch.nn.Module, torch.optim.Optimizer, torch.optim.Optimizer] | None = None
        self._state: list[Any] | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table as it is, after the network of shifts has learned."""
        import torch

        policy = self._policy(context)
        own = np.flatnonzero((turns.frame["agent"].cast(pl.String) == self.seat).to_numpy())
        if not len(own):
            return turns
        rows = turns.frame[own]
        seen = rows["features"].explode().to_numpy().astype(np.float32).reshape(len(rows), policy.inputs)
        done = rows["action_ids"].list.first().to_numpy().astype(np.int64)
        worth = np.nan_to_num(np.asarray(evaluate(turns, self.worth)[0], float))[own].astype(np.float32)
        old_seen, old_done = self.kept or (seen[:0], done[:0])
        kept = np.concatenate([old_seen, seen])[-self.memory :], np.concatenate([old_done, done])[-self.memory :]
        self.kept = kept
        network, weigh, inner, outer = self._networks(policy, context.seed)
        device = next(network.parameters()).device
        for _ in range(self.steps):
            some = context.rng.integers(len(kept[0]), size=self.batch)
            new = context.rng.integers(len(rows), size=self.batch)
            replay = tuple(torch.from_numpy(each[some]).to(device) for each in kept)
            fresh = tuple(torch.from_numpy(each[new]).to(device) for each in (seen, done, worth))
            if self.weights:
                loss = outer_loss(policy, network, replay, fresh, self._weights(weigh, policy, *replay), self.inner)
                outer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                outer.step()
            with torch.no_grad():
                h = self._weights(weigh, policy, *replay)
            apart = divergences(policy, network, dict(network.named_parameters()), replay[0])
            inner.zero_grad()
            (h * apart).mean().backward()
            inner.step()
        context.metrics["divergence"] = float(apart.detach().mean())
        context.metrics["weight_deviation"] = float(h.std())
        policy.module.get_submodule("adversary").load_state_dict(network.state_dict())
        return turns

    def _weights(
        self, weigh: torch.nn.Module, policy: PerturbedPolicy, seen: torch.Tensor, done: torch.Tensor
    ) -> torch.Tensor:
        """Weights h of rows, of mean 1; float32[rows]."""
        import torch

        taken = torch.nn.functional.one_hot(done, policy.actions).float()
        return len(seen) * torch.softmax(weigh(torch.cat([seen, taken], -1))[:, 0], 0)

    def _policy(self, context: Context) -> PerturbedPolicy:
        from palaestra.agents.perturbed import PerturbedPolicy

        found = context.team[self.seat]
        if not isinstance(found, PerturbedPolicy) or found.aim != "network":
            raise InputError(
                f"weighted_attack: the policy of {self.seat!r} is not of kind perturbed with aim='network'"
            )
        return found

    def _networks(
        self, policy: PerturbedPolicy, seed: int
    ) -> tuple[torch.nn.Module, torch.nn.Module, torch.optim.Optimizer, torch.optim.Optimizer]:
        """Network of shifts, network of weights, and their optimisers; made in the first iteration."""
        if self._made is None:
            import torch

            from palaestra.learning.critics import network

            shifts = copy.deepcopy(policy.module.get_submodule("adversary")).requires_grad_(True)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                weigh = network(policy.inputs + policy.actions, self.hidden).to(next(shifts.parameters()).device)
            for parameter in weigh[-1].parameters():
                torch.nn.init.zeros_(parameter)
            adams = [torch.optim.Adam(shifts.parameters(), lr=self.lr),
                     torch.optim.Adam(weigh.parameters(), lr=self.outer_lr)]  # fmt: skip
            self._made = shifts, weigh, adams[0], adams[1]
            if self._state is not None:
                parts: tuple[Any, ...] = self._made
                for part, state in zip(parts, self._state, strict=True):
                    part.load_state_dict(state)
        return self._made

    def state_dict(self) -> dict[str, Any]:
        """State: replayed rows, networks and optimisers."""
        parts = self._state if self._made is None else [part.state_dict() for part in self._made]
        return {"kept": None if self.kept is None else list(self.kept), "parts": parts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        kept = state["kept"]
        self.kept = None if kept is None else (np.asarray(kept[0]), np.asarray(kept[1]))
        self._made, self._state = None, state["parts"]


def divergences(
    policy: PerturbedPolicy, network: torch.nn.Module, parameters: Mapping[str, torch.Tensor], seen: torch.Tensor
) -> torch.Tensor:
    """KL(victim at `seen` shifted by `network` with `parameters` ‖ intention at `seen`) of a `PerturbedPolicy`."""
    import torch

    moved = seen + policy.epsilon * torch.tanh(torch.func.functional_call(network, dict(parameters), (seen,)))
    return policy.divergences(policy.of("victim", moved), policy.of("intention", seen).detach())


def outer_loss(
    policy: PerturbedPolicy,
    network: torch.nn.Module,
    replay: Sequence[torch.Tensor],
    fresh: Sequence[torch.Tensor],
    weights: torch.Tensor,
    step: float,
) -> torch.Tensor:
    """Scalar tensor: -mean of worth · log π_victim on `fresh` rows after a gradient step of `network` on `replay` rows.

    replay: observations and actions. fresh: observations, actions, worth. weights: of `replay`, with gradient.
    step: size of the gradient step, through which the gradient to `weights` passes.
    """
    import torch

    parameters = dict(network.named_parameters())
    inner = (weights * divergences(policy, network, parameters, replay[0])).mean()
    gradients = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
    after = {name: each - step * g for (name, each), g in zip(parameters.items(), gradients, strict=True)}
    seen, done, worth = fresh
    moved = seen + policy.epsilon * torch.tanh(torch.func.functional_call(network, after, (seen,)))
    logp = torch.log_softmax(policy.of("victim", moved), -1).gather(1, done[:, None])[:, 0]
    return -(worth * logp).mean()
