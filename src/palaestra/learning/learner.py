"""`PolicyGradient`: owns the optimisers of a team's trainable policies and moves them along an advantage column.

One code path for everything: the ratio is always taken to the stored log-probabilities of what was sampled, also when
the data is on-policy and the ratio is 1 but for rounding. An update is a transaction: it succeeds for all policies, or
raises and leaves every parameter and optimiser as it was. Left out: critics, mixed precision, several devices.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.agents.base import Learnable, Scored
from palaestra.errors import InputError, LearnerError, nearest
from palaestra.learning.auxiliary import Targets, make_heads
from palaestra.learning.batch import Batch, check_rewards, make_batch, pieces
from palaestra.learning.losses import (
    Aggregation,
    Level,
    aggregate,
    clipped_surrogate,
    epo_entropy,
    kl_estimate,
    kl_exact,
    log_ratio,
)
from palaestra.learning.protocol import LEARNERS
from palaestra.learning.sequential import ORDERS, Order, sequential
from palaestra.learning.transaction import restore, snapshot

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

Metrics = dict[str, float | int | None]
Schedule = Literal["constant", "linear", "cosine"]


class PolicyGradient:
    """L = aggregate(clipped surrogate) + kl · mean KL(π ‖ π_start) - entropy · mean H, by AdamW, per policy.

    Args:
        team: its policies that have trainable parameters are trained; agents that share a policy share an update.
        lr: learning rate, or one per policy name.
        ratio: "token", or "sequence" = one ratio per turn (GSPO); see `losses.log_ratio`.
        clip: ε of both ends, or (low, high); None: no clipping. dual_clip: see `losses.clipped_surrogate`.
        aggregate: how losses per token become one number; "constant" needs `constant`. See `losses.aggregate`.
        kl: weight of the pull to the policies as they were when this learner was made.
        kl_estimator: "exact" sums over the vocabulary; "k3" needs only the sampled token.
        entropy: weight of the entropy bonus. Both regularisers are means over the tokens of the step.
        corridor: (low, high) of EPO [166], which replaces the bonus by `losses.epo_entropy` of weight `entropy`: the
            entropy is held between low and high times its mean over all earlier updates. Here it is a mean over the
            tokens of a turn, the turns of an episode, the episodes. Needs `entropy` > 0 and `updates`, which is K.
        corridor_smooth, corridor_decay: EPO's α, weight of the penalty, and γ, how fast β falls from 2 towards 1.
        auxiliary: {"reward": 1.0, "reconstruction": 1.0} adds Lucy-SKG's [21] heads on the trunk of every policy, which
            learn with it; see `auxiliary.Auxiliary` for the options. Its losses are in the metrics (`reward_class`,
            `reconstruction`), its parameters in the norm of the gradient.
        epochs, minibatch: passes over the rows, and rows per optimiser step (None: all rows).
        sequential, order: SeeUPO [96]: "turn" updates the last turns first, then those before, each with an advantage
            that is multiplied by the ratios of the parts that have moved already; "agent" does so by agent. Epochs and
            minibatches are those of a part; the optimiser's momentum runs through. order: "reverse", and for comparison
            "forward" and "random". The method's own credit and ratio are `seeupo()` and "sequence".
        max_grad_norm: the gradient of a policy is scaled down to this norm; None: never.
        schedule, updates: "linear" or "cosine" decay of the learning rate to 0 over so many updates.
        chunk_tokens: rows of a step go through the model in pieces of at most so many padded tokens, sorted by length.
            It bounds memory and saves padding; the gradient is that of the whole step.

    A step in which no row has credit is not taken, unless kl, entropy or heads ask for it: momentum alone never moves
    a policy.
    """

    def __init__(
        self,
        team: Team,
        *,
        lr: float | Mapping[str, float] = 1e-3,
        ratio: Level = "token",
        clip: float | Sequence[float] | None = 0.2,
        dual_clip: float | None = None,
        aggregate: Aggregation = "token-mean",
        constant: float | None = None,
        kl: float = 0.0,
        kl_estimator: Literal["exact", "k3"] = "exact",
        entropy: float = 0.0,
        corridor: Sequence[float] | None = None,
        corridor_smooth: float = 1.0,
        corridor_decay: float = 1.0,
        sequential: Literal["turn", "agent"] | None = None,
        order: Order = "reverse",
        auxiliary: Mapping[str, float] | None = None,
        epochs: int = 1,
        minibatch: int | None = None,
        max_grad_norm: float | None = 1.0,
        weight_decay: float = 0.0,
        schedule: Schedule = "constant",
        updates: int | None = None,
        chunk_tokens: int = 8192,
    ) -> None:
        for name, value, known in (
            ("ratio", ratio, ("token", "sequence")),
            ("aggregate", aggregate, ("token-mean", "sequence-mean", "constant")),
            ("kl_estimator", kl_estimator, ("exact", "k3")),
            ("schedule", schedule, ("constant", "linear", "cosine")),
            ("sequential", sequential, (None, "turn", "agent")),
            ("order", order, ORDERS),
        ):
            if value not in known:
                raise InputError(f"PolicyGradient: {name}={value!r} is unknown{nearest(str(value), map(str, known))}")
        ends: Sequence[float | None] = clip if isinstance(clip, Sequence) else (clip, clip)
        if len(ends) != 2 or any(end is not None and not end >= 0 for end in ends):
            raise InputError(f"PolicyGradient: clip={clip!r} must be at least 0, (low, high) or None")
        if (dual_clip is not None and not dual_clip > 1) or not kl >= 0:
            raise InputError(f"PolicyGradient: dual_clip={dual_clip} must be above 1, kl={kl} at least 0")
        if aggregate == "constant" and not constant:
            raise InputError("PolicyGradient: aggregate='constant' needs constant=, the tokens of the longest answer")
        if schedule != "constant" and not updates:
            raise InputError(f"PolicyGradient: schedule={schedule!r} needs updates=, how many there are until lr is 0")
        if corridor is not None:
            _check_corridor(corridor, entropy, updates)
        if auxiliary is not None and sequential:
            raise InputError(
                f"PolicyGradient: auxiliary heads read past turns, which sequential={sequential!r} takes away"
            )
        if epochs < 1 or (minibatch is not None and minibatch < 1):
            raise InputError(f"PolicyGradient: epochs={epochs} and minibatch={minibatch} must be at least 1")
        self.policies = {policy.name: policy for policy in team.trainable}
        if not self.policies:
            raise InputError("PolicyGradient: no policy of the team has trainable parameters; nothing can be learned")
        self.lr = {name: _rate(lr, name, self.policies) for name in self.policies}
        self.ratio, self.aggregate, self.constant = ratio, aggregate, constant
        self.low, self.high = ends
        self.dual_clip, self.kl, self.kl_estimator, self.entropy = dual_clip, kl, kl_estimator, entropy
        self.epochs, self.minibatch, self.max_grad_norm = epochs, minibatch, max_grad_norm
        self.schedule, self.span, self.chunk_tokens = schedule, updates, chunk_tokens
        self.corridor, self.smooth, self.decay = corridor, corridor_smooth, corridor_decay
        self.sequential, self.order = sequential, order
        self.updates = 0
        self.entropies: dict[str, list[float]] = {name: [] for name in self.policies}  # with a corridor, per update
        self._seen: dict[str, list[float]] = {}
        self.start = {name: copy.deepcopy(policy.state_dict()) for name, policy in self.policies.items()}
        self._references: dict[str, Learnable] = {}
        self.auxiliary = make_heads(self.policies, auxiliary)
        self._targets: dict[str, Targets] = {}
        self.optimisers = {
            name: torch.optim.AdamW(self._parameters(name), self.lr[name], weight_decay=weight_decay, fused=True)
            for name in self.policies
        }

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Train every policy on its rows that have no `error` and an advantage.

        advantage: column of numbers, one per turn, or of lists, one per token of `action_ids`; null = takes no part.
        rng: draws the order of minibatches, and of parts if `order` is "random"; needed only then.

        Returns:
            per policy: loss, kl (None unless it is in the loss), entropy (when the rows were sampled), grad_norm
            (before clipping), clip_fraction (of tokens), zero_credit (share of its rows whose advantage is 0), rows,
            tokens, seconds. Means over the steps; of sequential parts, weighted by their rows.

        Raises:
            MissingColumnError: no such advantage.
            RewardError: a reward is NaN or infinite; names the rows. Nothing is updated.
            LearnerError: an advantage, loss or gradient is not finite, or the rows do not fit the policy. Nothing is
                updated.
        """
        check_rewards(turns)
        batches = {name: make_batch(turns, name, advantage) for name in self.policies}
        if rng is None and any(self.minibatch and self.minibatch < len(b.size) for b in batches.values()):
            raise InputError("PolicyGradient.update: minibatches are drawn: give rng=np.random.default_rng(seed)")
        before = snapshot(self.optimisers.values())
        self._seen = {name: [] for name in self.policies}
        try:
            if self.sequential:
                metrics = sequential(self, turns, advantage, rng)
            else:
                metrics = {name: self.learn(name, batch, rng) for name, batch in batches.items()}
        except BaseException:
            restore(before)
            raise
        self.updates += 1
        for name, seen in self._seen.items():
            self.entropies[name] += [float(np.mean(seen))] if seen else []
        return metrics

    def needs(self) -> set[str]:
        """Columns that it reads beside those of every learner."""
        return set()

    def divergence(self, turns: Turns, *, rows: int = 64) -> dict[str, float]:
        """Exact KL(π ‖ π_start), mean over the tokens of the first `rows` rows of each policy that has any."""
        found = {}
        for name, policy in self.policies.items():
            sample = turns.frame.filter(pl.col("policy") == name, pl.col("action_ids").is_not_null()).head(rows)
            if sample.height:
                with torch.no_grad():
                    now, start = policy.score(sample), self.reference(name).score(sample)
                    found[name] = float(aggregate(kl_exact(now.logits, start.logits), now.mask))
        return found

    def reference(self, name: str) -> Learnable:
        """The policy as it was when this learner was made; built when first asked for."""
        if name not in self._references:
            policy = self.policies[name]
            now = copy.deepcopy(policy.state_dict())
            policy.load_state_dict(self.start[name])
            self._references[name] = policy.frozen_copy()
            policy.load_state_dict(now)
        return self._references[name]

    def state_dict(self) -> dict[str, Any]:
        """Optimisers, start of the policies, number of updates: what a resume needs beside the policies' own states.

        Tensors are live, as in torch.
        """
        return {
            "updates": self.updates,
            "entropies": self.entropies,
            "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()},
            "start": self.start,
            "auxiliary": {name: heads.state_dict() for name, heads in self.auxiliary.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.updates, self.start = state["updates"], state["start"]
        self.entropies = {name: list(state["entropies"][name]) for name in self.policies}
        self._references.clear()
        for name, heads in self.auxiliary.items():
            heads.load_state_dict(state["auxiliary"][name])
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])

    def _parameters(self, name: str) -> list[torch.nn.Parameter]:
        heads = self.auxiliary.get(name)
        return [*self.policies[name].parameters(), *(heads.parameters() if heads else ())]

    # -- one policy ---------------------------------------------------------------------------------------------------

    def learn(self, name: str, batch: Batch, rng: np.random.Generator | None) -> Metrics:
        """Every step of one policy on its rows; `update` is what makes a transaction of it."""
        started = time.perf_counter()
        for group in self.optimisers[name].param_groups:
            group["lr"] = self.lr[name] * decay(self.schedule, self.updates, self.span)
        if self.kl:
            self.reference(name)  # building it swaps parameters, which must not happen inside a graph
        rows = len(batch.size)
        heads = self.auxiliary.get(name)
        if heads:
            self._targets[name] = heads.targets(batch.rows)
        steps = [self._step(name, batch, chosen) for chosen in self._minibatches(rows, rng)]
        tokens = sum(step.tokens for step in steps)
        return {
            "loss": float(np.mean([step.loss for step in steps])) if steps else None,
            "kl": float(np.mean([step.kl for step in steps])) if steps and self.kl else None,
            "entropy": batch.entropy,
            "grad_norm": float(np.mean([step.norm for step in steps])) if steps else None,
            "clip_fraction": sum(step.clipped for step in steps) / tokens if tokens else None,
            "zero_credit": 1 - float(batch.credited.mean()) if rows else None,
            "rows": rows,
            "tokens": int(batch.counts.sum()),
            "seconds": time.perf_counter() - started,
            **(heads.report(len(steps)) if heads else {}),
        }

    def _minibatches(self, rows: int, rng: np.random.Generator | None) -> Iterator[np.ndarray]:
        """Row numbers of each optimiser step."""
        size = self.minibatch or rows
        for _ in range(self.epochs if rows else 0):
            order = np.arange(rows) if size >= rows or rng is None else rng.permutation(rows)
            for start in range(0, rows, size):
                yield order[start : start + size]

    def _step(self, name: str, batch: Batch, rows: np.ndarray) -> _Step:
        """One step of the optimiser. Rows without credit count in the denominators; only a regulariser needs more."""
        tokens = int(batch.counts[rows].sum())
        active = rows if self.kl or self.entropy or self.auxiliary else rows[batch.credited[rows]]
        if not tokens or not len(active):
            return _Step(0.0, 0.0, 0.0, 0, tokens)
        optimiser = self.optimisers[name]
        optimiser.zero_grad()
        loss = kl = entropy = 0.0
        clipped = 0
        for piece in pieces(active, batch.size, self.chunk_tokens):
            part, divergence, cut, spread = self._loss(name, batch, piece, len(rows), tokens)
            part.backward()  # type: ignore[no-untyped-call]
            loss, kl, clipped = loss + float(part.detach()), kl + float(divergence), clipped + int(cut)
            entropy += float(spread)
        limit = math.inf if self.max_grad_norm is None else self.max_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], limit))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise LearnerError(
                f"policy {name!r}, update {self.updates}: the loss is {loss}, the norm of its gradient {norm}; "
                "lower lr, or look for a policy that has become certain; nothing was updated"
            )
        optimiser.step()
        if self.corridor:
            self._seen[name].append(entropy)
        return _Step(loss, kl, norm, clipped, tokens)

    def _loss(
        self, name: str, batch: Batch, piece: np.ndarray, rows: int, tokens: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the rows `piece` contribute to the step's loss, KL, number of clipped tokens and EPO's entropy."""
        frame = batch.rows[piece]
        scored = self.policies[name].score(frame)
        advantage, old, mask = batch.tensors(name, piece, scored)
        ratio = log_ratio(scored.logprobs, old, mask, level=self.ratio)
        surrogate, cut = clipped_surrogate(ratio, advantage, low=self.low, high=self.high, dual=self.dual_clip)
        loss = aggregate(surrogate, mask, how=self.aggregate, constant=self.constant, rows=rows, tokens=tokens)
        kl = held = torch.zeros(())
        if self.kl:
            kl = aggregate(self._divergence(name, scored, frame), mask, tokens=tokens)
            loss = loss + self.kl * kl
        if self.corridor:
            share = torch.from_numpy(batch.share[piece]).to(mask.device)
            held = aggregate(scored.entropies * share, mask, how="sequence-mean", rows=rows)
            past = float(np.mean(self.entropies[name])) if self.entropies[name] else None
            loss = loss + epo_entropy(
                scored.entropies, mask, past, step=self.updates, steps=self.span or 1, weight=self.entropy, rows=rows,
                share=share, decay=self.decay, low=self.corridor[0], high=self.corridor[1], smooth=self.smooth,
            )  # fmt: skip
        elif self.entropy:
            loss = loss - self.entropy * aggregate(scored.entropies, mask, tokens=tokens)
        if name in self.auxiliary:
            loss = loss + self.auxiliary[name].loss(self._targets[name], piece, rows)
        return loss, kl.detach(), (cut & mask).sum(), held.detach()

    def _divergence(self, name: str, scored: Scored, frame: pl.DataFrame) -> Tensor:
        with torch.no_grad():
            reference = self.reference(name).score(frame)
        if self.kl_estimator == "exact":
            return kl_exact(scored.logits, reference.logits)
        return kl_estimate(scored.logprobs, reference.logprobs)


class _Step(NamedTuple):
    loss: float
    kl: float
    norm: float
    clipped: int
    tokens: int


def _check_corridor(corridor: Sequence[float], entropy: float, updates: int | None) -> None:
    if len(corridor) != 2 or not 0 <= corridor[0] <= 1 <= corridor[1]:
        raise InputError(f"PolicyGradient: corridor={corridor!r} must be (low, high) with 0 <= low <= 1 <= high")
    if not entropy > 0 or not updates:
        raise InputError(
            f"PolicyGradient: a corridor needs entropy= above 0, its weight, found {entropy}, and updates=, how many "
            f"there will be, found {updates}"
        )


def decay(schedule: Schedule, step: int, steps: int | None) -> float:
    """Factor of the learning rate at step `step` (from 0): 1, 1 - x, or (1 + cos πx) / 2 with x = step / steps.

    >>> [decay("linear", step, 4) for step in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if schedule == "constant" or not steps:
        return 1.0
    done = min(step / steps, 1.0)
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


def _rate(lr: float | Mapping[str, float], name: str, policies: Mapping[str, Learnable]) -> float:
    for rate in lr.values() if isinstance(lr, Mapping) else (lr,):
        if not 0 <= rate < math.inf:
            raise InputError(f"PolicyGradient: lr={lr} must be at least 0 and finite")
    if not isinstance(lr, Mapping):
        return lr
    for unknown in lr.keys() - policies.keys():
        raise InputError(f"PolicyGradient: lr names {unknown!r}, no trainable policy{nearest(unknown, policies)}")
    if name not in lr:
        raise InputError(f"PolicyGradient: lr has no entry for the trainable policy {name!r}")
    return lr[name]


LEARNERS.add("policy_gradient", PolicyGradient)
