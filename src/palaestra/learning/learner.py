"""`PolicyGradient`: owns the optimisers of a team's trainable policies and moves them along an objective.

The objective is a sum of terms (`palaestra.learning.terms`); what is here is the optimiser: steps, pieces, schedule,
clipping of gradients. One code path for everything: the ratio is always taken to the stored log-probabilities of what
was sampled, also when the data is on-policy and the ratio is 1 but for rounding. An update is a transaction: it
succeeds for all policies, or raises and leaves every parameter and optimiser as it was. Left out: mixed precision,
several devices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
import torch

from palaestra.agents.base import Learnable
from palaestra.algebra.turns import Ragged
from palaestra.credit.sequential import Order
from palaestra.errors import InputError, LearnerError, nearest
from palaestra.learning.batch import Batch, check_rewards, make_batch, pieces, ragged
from palaestra.learning.losses import aggregate, kl_between
from palaestra.learning.protocol import LEARNERS, Metrics
from palaestra.learning.sequential import Key, Sequential, Strategy, together
from palaestra.learning.terms import Piece, Step, Term, ValueHead, objective
from palaestra.learning.terms.base import require
from palaestra.learning.terms.heads import score_with_units
from palaestra.learning.transaction import undone_on_error

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

Schedule = Literal["constant", "linear", "cosine"]
Transaction = Literal["update", "step"]


@LEARNERS.register("policy_gradient")
class PolicyGradient:
    """The sum of its terms, minimised by AdamW, per policy.

    Args:
        team: its policies that have trainable parameters are trained; agents that share a policy share an update.
        terms: what is minimised, texts or `Term` objects: `["surrogate(clip=[.2, .28])", "kl(.05)"]`, or one text.
        lr: learning rate, or one per policy name.
        epochs, minibatch: passes over the rows, and rows per optimiser step (None: all rows).
        max_grad_norm: the gradient of a policy is scaled down to this norm, parameters of terms included; None: never.
        schedule, updates: "linear" or "cosine" decay of the learning rate to 0 over so many updates. Some terms need
            `updates`, too.
        sequential, order: SeeUPO [96]: "turn" updates the last turns first, then those before, each with an advantage
            that is multiplied by the ratios of the parts that have moved already; "agent" does so by agent. Epochs and
            minibatches are those of a part; the optimiser's momentum runs through. order: "reverse", and for comparison
            "forward" and "random". The method's own credit and ratio are `seeupo()` and `surrogate(ratio="sequence")`.
        chunk_tokens: rows of a step go through the model in pieces of at most so many padded tokens, sorted by length.
            It bounds memory and saves padding; the gradient is that of the whole step. Terms that need a whole step
            (`kl_cov`, `dpo`) have it in one piece.
        transaction: "update": an update that fails is undone. With one step per policy that costs nothing; with several
            (epochs, minibatches, sequential) it takes a copy of parameters and optimiser, three times the parameters,
            while the update lasts. "step": no copy; a step that fails is not taken, those before it stay.

    A step in which no row has credit is not taken, unless a term looks everywhere (kl, entropy, heads): momentum alone
    never moves a policy. A policy's start is kept only if a term asks for a reference.

    Raises:
        InputError: an option is out of range, a term is wrong or does not fit a policy, or no policy can learn.
    """

    def __init__(
        self,
        team: Team,
        terms: str | Iterable[str | Term] = ("surrogate()",),
        *,
        lr: float | Mapping[str, float] = 1e-3,
        epochs: int = 1,
        minibatch: int | None = None,
        max_grad_norm: float | None = 1.0,
        weight_decay: float = 0.0,
        schedule: Schedule = "constant",
        updates: int | None = None,
        sequential: Key | None = None,
        order: Order = "reverse",
        chunk_tokens: int = 8192,
        transaction: Transaction = "update",
    ) -> None:
        for option, value, known in (
            ("schedule", schedule, get_args(Schedule)),
            ("transaction", transaction, get_args(Transaction)),
        ):
            if value not in known:
                raise InputError(f"PolicyGradient: {option}={value!r} is unknown{nearest(str(value), known)}")
        if schedule != "constant" and not updates:
            raise InputError(f"PolicyGradient: schedule={schedule!r} needs updates=, how many there are until lr is 0")
        if epochs < 1 or (minibatch is not None and minibatch < 1):
            raise InputError(f"PolicyGradient: epochs={epochs} and minibatch={minibatch} must be at least 1")
        ordered = Sequential(sequential or "turn", order, chunk_tokens)
        self.strategy: Strategy = ordered if sequential else together
        self.terms = objective(terms)
        for key, term in self.terms.items():
            if term.planned and not updates:
                raise InputError(f"term {key} needs updates=, how many there will be, found {updates}")
            if term.episodes and sequential:
                raise InputError(f"term {key} reads past turns, which sequential={sequential!r} takes away")
        self.policies: dict[str, Learnable] = {policy.name: policy for policy in team.trainable}
        if not self.policies:
            raise InputError("PolicyGradient: no policy of the team has trainable parameters; nothing can be learned")
        self.lr = {name: _rate(lr, name, self.policies) for name in self.policies}
        self.epochs, self.minibatch, self.max_grad_norm = epochs, minibatch, max_grad_norm
        self.schedule, self.span, self.chunk_tokens, self.transaction = schedule, updates, chunk_tokens, transaction
        self.updates = 0
        self.memory: dict[str, dict[str, dict[str, Any]]] = {
            name: {key: {} for key in self.terms} for name in self.policies
        }
        self.modules = {
            name: torch.nn.ModuleDict({key: term.module(policy) for key, term in self.terms.items() if term.module})
            for name, policy in self.policies.items()
        }
        wanted = any(term.reference for term in self.terms.values())
        self.references = {name: policy.frozen_copy() for name, policy in self.policies.items() if wanted}
        self.optimisers = {
            name: torch.optim.AdamW(self._parameters(name), self.lr[name], weight_decay=weight_decay, fused=True)
            for name in self.policies
        }
        self._told: dict[str, list[_Taken]] = {}

    # -- the protocol -------------------------------------------------------------------------------------------------

    def needs(self) -> set[str]:
        """Columns that the terms read beside `policy`, `action_ids`, `logprobs` and the advantage."""
        return {column for term in self.terms.values() for column in term.needs}

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Train every policy on its rows that have no `error` and an advantage.

        advantage: column of numbers, one per turn, or of lists, one per token of `action_ids`; null = takes no part. If
        no term reads credit, it is not looked at, and all rows with `action_ids` take part.
        rng: draws the order of minibatches, and of parts if `order` is "random"; needed only then.

        Returns:
            per policy: loss, entropy (when the rows were sampled), grad_norm (before clipping), zero_credit (share of
            its rows whose advantage is 0), rows, tokens, seconds, and what the terms say of themselves: kl (None
            without such a term), clip_fraction (of tokens), clamped (tokens whose log-ratio was cut to ±20). Means over
            the steps; of sequential parts, weighted by their rows.

        Raises:
            MissingColumnError: no such advantage, or a column that a term needs.
            RewardError: a reward is NaN or infinite; names the rows. Nothing is updated.
            LearnerError: an advantage, loss or gradient is not finite, or the rows do not fit the policy. Nothing is
                updated; with transaction="step" the steps before it stay.
        """
        check_rewards(turns)
        for key, term in self.terms.items():
            for column in term.needs:
                require(turns.frame, column, key)
        batches = self._batches(turns, advantage)
        sizes = [len(batch.size) for batch in batches.values()]
        if rng is None and any(self.minibatch and self.minibatch < size for size in sizes):
            raise InputError("PolicyGradient.update: minibatches are drawn: give rng=np.random.default_rng(seed)")
        self._told = {name: [] for name in self.policies}
        if self.strategy is together and self.epochs == 1 and max(sizes) <= (self.minibatch or max(sizes)):
            metrics = self._learn_at_once(batches)
        else:

            def learn(part: Turns, column: str) -> dict[str, Metrics]:
                return {name: self.learn(name, batch, rng) for name, batch in self._batches(part, column).items()}

            copies = self.transaction == "update"
            with undone_on_error(self.optimisers.values()) if copies else nullcontext():
                metrics = self.strategy(learn, turns, advantage, self.policies.values(), rng)
        self.updates += 1
        for name, taken in self._told.items():
            for key, term in self.terms.items():
                if term.after:
                    term.after(self.memory[name][key], _metrics(taken, key))
        return metrics

    def divergence(
        self, turns: Turns, *, rows: int = 64, start: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, float]:
        """Exact KL(π ‖ π_start), mean over the tokens of the first `rows` rows of each policy that has any.

        start: states of the policies at the start, for a learner that keeps none because no term asks for a reference;
        without either a policy is left out.
        """
        found = {}
        for name, policy in self.policies.items():
            sample = turns.frame.filter(pl.col("policy") == name, pl.col("action_ids").is_not_null()).head(rows)
            reference = self.references.get(name)
            if reference is None and start is not None and name in start:
                reference = policy.frozen_copy()
                reference.load_state_dict(dict(start[name]))
            if sample.height and reference is not None:
                with torch.no_grad():
                    now, then = policy.score(sample), reference.score(sample)
                    found[name] = float(aggregate(kl_between(now, then), now.mask))
        return found

    def values(self, turns: Turns) -> np.ndarray | Ragged:
        """What the term `value` predicts: float64[rows], NaN for rows of others and without actions.

        With level="token": a value per token of `action_ids`, of rows without any none.

        Raises:
            InputError: there is no such term.
        """
        heads = {
            name: head for name, made in self.modules.items() for head in made.values() if isinstance(head, ValueHead)
        }
        if not heads:
            raise InputError(f"values: no term predicts any; add value() to the terms {list(self.terms)}")
        _, _, lengths = ragged(turns["action_ids"])
        tokens, offsets = np.full(int(lengths.sum()), np.nan), np.cumsum(lengths) - lengths
        prompts = ragged(turns["prompt_ids"])[2] if "prompt_ids" in turns.columns else np.zeros_like(lengths)
        of = turns["policy"].cast(pl.String).to_numpy()
        for name, head in heads.items():
            mine = np.flatnonzero((of == name) & (lengths > 0))
            with torch.no_grad():
                for piece in pieces(mine, lengths + prompts, self.chunk_tokens):
                    scored, units = score_with_units(self.policies[name], turns.frame[piece])
                    places = np.arange(scored.mask.shape[1])
                    real = places < lengths[piece, None]
                    at = (offsets[piece, None] + places)[real]
                    tokens[at] = head(units).double().cpu().numpy()[real]
        if any(head.level == "token" for head in heads.values()):
            return Ragged(tokens, lengths)
        values = np.full(len(lengths), np.nan)
        values[lengths > 0] = tokens[offsets[lengths > 0]]
        return values

    def state_dict(self) -> dict[str, Any]:
        """Optimisers, memories and modules of terms, references, number of updates: what a resume needs beside the
        policies' own states.

        Tensors are live, as in torch.
        """
        return {
            "updates": self.updates,
            "memory": self.memory,
            "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()},
            "modules": {name: modules.state_dict() for name, modules in self.modules.items()},
            "start": {name: reference.state_dict() for name, reference in self.references.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.updates = state["updates"]
        for name in self.policies:
            self.memory[name] = {key: dict(state["memory"][name][key]) for key in self.terms}
            self.modules[name].load_state_dict(state["modules"][name])
            self.optimisers[name].load_state_dict(state["optimisers"][name])
        for name, reference in self.references.items():
            reference.load_state_dict(state["start"][name])

    # -- one policy ---------------------------------------------------------------------------------------------------

    def learn(self, name: str, batch: Batch, rng: np.random.Generator | None) -> Metrics:
        """Every step of one policy on its rows; `update` is what makes a transaction of it."""
        started = time.perf_counter()
        cache: dict[Any, Any] = {}
        taken: list[_Taken] = []
        for chosen in self._minibatches(batch, rng):
            taken.append(self._gradient(name, batch, chosen, len(taken), cache))
            if taken[-1].norm is not None:
                self._move(name)
        return self._said(name, batch, taken, started)

    def _learn_at_once(self, batches: Mapping[str, Batch]) -> dict[str, Metrics]:
        """One step per policy: all gradients first, so that nothing has moved if one of them is not finite."""
        metrics, ready = {}, []
        for name, batch in batches.items():
            started = time.perf_counter()
            rows = np.arange(len(batch.size))
            taken = [self._gradient(name, batch, rows, 0, {})] if len(rows) else []
            ready += [name for step in taken if step.norm is not None]
            metrics[name] = self._said(name, batch, taken, started)
        for name in ready:
            self._move(name)
        return metrics

    def _move(self, name: str) -> None:
        for group in self.optimisers[name].param_groups:
            group["lr"] = self.lr[name] * decay(self.schedule, self.updates, self.span)
        self.optimisers[name].step()

    def _gradient(self, name: str, batch: Batch, rows: np.ndarray, number: int, cache: dict[Any, Any]) -> _Taken:
        """The gradient of one step, checked. Rows without credit count in the denominators of those with."""
        step = Step(
            batch.rows, rows, batch.counts, self.policies[name], number, self.updates, self.span,
            (lambda: self.references[name]) if self.references else None, cache,
        )  # fmt: skip
        everywhere = any(term.everywhere for term in self.terms.values())
        active = rows if everywhere else rows[batch.credited[rows]]
        if not step.tokens or not len(active):
            return _Taken(0.0, None, step)
        optimiser = self.optimisers[name]
        optimiser.zero_grad()
        loss = 0.0
        whole = any(term.whole for term in self.terms.values())
        for at in [active] if whole else pieces(active, batch.size, self.chunk_tokens):
            part = self._loss(name, batch, step, at)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
        limit = math.inf if self.max_grad_norm is None else self.max_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], limit))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            left = "nothing was updated" if self.transaction == "update" or not number else f"{number} steps were taken"
            raise LearnerError(
                f"policy {name!r}, update {self.updates}: the loss is {loss}, the norm of its gradient {norm}; "
                f"lower lr, or look for a policy that has become certain; {left}"
            )
        return _Taken(loss, norm, step)

    def _loss(self, name: str, batch: Batch, step: Step, at: np.ndarray) -> torch.Tensor:
        """What the rows `at` contribute to the step's loss: the sum of the terms."""
        policy, frame, units = self.policies[name], batch.rows[at], None
        if any(term.trunk for term in self.terms.values()):
            scored, units = score_with_units(policy, frame)
        else:
            scored = policy.score(frame)
        advantage, old, mask = batch.tensors(name, at, scored)
        piece = Piece(step, at, frame, scored, old, advantage, mask, units)
        modules = dict(self.modules[name].items())
        parts = [term(piece.lend(key, self.memory[name][key], modules.get(key))) for key, term in self.terms.items()]
        return sum(parts[1:], parts[0])

    def _batches(self, turns: Turns, advantage: str) -> dict[str, Batch]:
        read = any(term.credit for term in self.terms.values())
        return {name: make_batch(turns, name, advantage if read else None) for name in self.policies}

    def _minibatches(self, batch: Batch, rng: np.random.Generator | None) -> Iterator[np.ndarray]:
        """Row numbers of each optimiser step. Rows that a term wants together come in one, which may then be longer."""
        rows = len(batch.size)
        size = self.minibatch or rows
        column = next((term.together for term in self.terms.values() if term.together), None)
        for _ in range(self.epochs if rows else 0):
            if size >= rows or rng is None:
                yield np.arange(rows)
            elif column is None:
                order = rng.permutation(rows)
                yield from (order[start : start + size] for start in range(0, rows, size))
            else:
                of = batch.rows[column].cast(pl.String).fill_null("").rank("dense").to_numpy().astype(np.int64) - 1
                order = np.argsort(rng.permutation(of.max() + 1)[of], kind="stable")
                firsts = np.flatnonzero(np.diff(of[order], prepend=-1))
                batches = np.unique(firsts // size, return_index=True)[1]
                yield from np.split(order, firsts[batches][1:])

    def _parameters(self, name: str) -> list[torch.nn.Parameter]:
        return [*self.policies[name].parameters(), *self.modules[name].parameters()]

    def _said(self, name: str, batch: Batch, taken: Sequence[_Taken], started: float) -> Metrics:
        self._told[name] += taken
        norms = [step.norm or 0.0 for step in taken]
        rows = len(batch.size)
        base: Metrics = {
            "loss": float(np.mean([step.loss for step in taken])) if taken else None,
            "kl": None,
            "entropy": batch.entropy,
            "grad_norm": float(np.mean(norms)) if taken else None,
            "clip_fraction": None,
            "zero_credit": 1 - float(batch.credited.mean()) if rows else None,
            "rows": rows,
            "tokens": int(batch.counts.sum()),
        }
        return base | _metrics(taken) | {"seconds": time.perf_counter() - started}


class _Taken:
    """A step whose gradient is known: its loss, the norm (None: there was nothing to learn), what its terms said."""

    def __init__(self, loss: float, norm: float | None, step: Step) -> None:
        self.loss, self.norm, self.tokens = loss, norm, step.tokens
        self.said: dict[tuple[str, str, str], float] = {}
        for key, name, per, value in step.logged:
            place = (key, name, per)
            self.said[place] = self.said.get(place, 0.0) + float(value)


def _metrics(taken: Sequence[_Taken], only: str | None = None) -> Metrics:
    """What terms said of themselves, over all steps; a name that two terms use is the mean of both."""
    found: dict[str, list[float]] = {}
    for key, name, per in dict.fromkeys(place for step in taken for place in step.said):
        if only is None or key == only:
            total = sum(step.said.get((key, name, per), 0.0) for step in taken)
            steps, tokens = sum(step.norm is not None for step in taken), sum(step.tokens for step in taken)
            found.setdefault(name, []).append(total / {"step": steps, "token": tokens, "update": 1}[per])
    return {name: int(sum(values)) if name == "clamped" else float(np.mean(values)) for name, values in found.items()}


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
