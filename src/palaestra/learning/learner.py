"""`PolicyGradient`: owns the optimisers of a team's trainable policies and moves them along an objective.

The objective is a sum of terms (`palaestra.learning.terms`); what is here is the optimiser: steps, pieces, schedule,
clipping of gradients. One code path for everything: the ratio is always taken to the stored log-probabilities of what
was sampled, also when the data is on-policy and the ratio is 1 but for rounding. An update is `forward_backward` and
`optim_step`, and a transaction: it succeeds for all policies, or raises and leaves every parameter and optimiser as it
was. How several processes share the passes is in `devices`. Left out: mixed precision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
import torch

from palaestra.agents.backends.gradients import adding_up
from palaestra.agents.backends.interleaved import TOKENS
from palaestra.agents.policy import Learnable
from palaestra.credit.sequential import Order
from palaestra.errors import InputError, nearest
from palaestra.learning import checkpoints
from palaestra.learning.batch import Batch, check_rewards, make_batch, minibatches
from palaestra.learning.conversations import NEEDS, OPTIONAL, ConversationBatch, Rows, check, pack
from palaestra.learning.devices import Devices, Kind, LearnerTensors, on_every_rank, spread
from palaestra.learning.learning_rates import Schedule, decay, rates
from palaestra.learning.losses import aggregate, kl_between
from palaestra.learning.optimizers import optimizer_class, set_rate
from palaestra.learning.protocol import LEARNERS, Metrics
from palaestra.learning.sequential import Key, Sequential, Strategy, together
from palaestra.learning.steps import Taken, metrics_of
from palaestra.learning.terms import MicroBatch, Step, Term, ValueHead, objective
from palaestra.learning.terms.heads import predicted, score_with_units
from palaestra.learning.terms.term import require
from palaestra.learning.transaction import extend_moments, undone_on_error

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Ragged, Turns

Transaction = Literal["update", "step"]


@LEARNERS.register("policy_gradient")
class PolicyGradient:
    """Policy-gradient learner: minimises the sum of its loss terms by AdamW, per policy.

    Args:
        team: its policies that have trainable parameters are trained; agents that share a policy share an update.
        terms: what is minimised, texts or `Term` objects: `["surrogate(clip=[.2, .28])", "kl(.05)"]`, or one text.
        lr: learning rate, or one per policy name; None: 1e-5 for pretrained language models, 1e-3 for other policies.
        freeze: names of policies that do not learn; they keep what they are, and their rows take no part.
        rows: what one row of the objective is. "turn": an agent's turn, whose prompt repeats all that came before.
            "conversation": all that an agent said in an episode, packed and read once; see `learning.conversations`.
        betas, weight_decay, optimizer: of AdamW, and which: see `optimizers.optimizer_class`.
        epochs, minibatch: passes over the rows, and rows per optimiser step (None: all rows), turns or conversations.
        max_grad_norm: the gradient of a policy is scaled down to this norm, parameters of terms included; None: never.
        schedule, updates: "linear" or "cosine" decay of the learning rate to 0 over so many updates. Some terms need
            `updates`, too.
        warmup: updates at the start in which the learning rate rises linearly, from lr / (warmup + 1).
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
        devices: "one" process; or the passes of each step are shared by several, started by torchrun or `--ranks`:
            "ddp", each has all parameters; "fsdp", each has a part of a language model and of its moments, and the
            first has the whole besides, to play. Without such processes these are "one". See docs/scale.md.
        timeout: seconds that a process waits for the others.

    A step in which no row has credit is not taken, unless a term looks everywhere (kl, entropy, heads), nor is one
    whose gradient is 0: momentum alone never moves a policy. A policy's start is kept only if a term asks for it.

    Raises:
        InputError: an option is out of range, a term is wrong or does not fit a policy, or no policy can learn.
    """

    _may_rest = False
    """Whether all policies may be frozen."""

    def __init__(
        self,
        team: Team,
        terms: str | Iterable[str | Term] = ("surrogate()",),
        *,
        lr: float | Mapping[str, float] | None = None,
        freeze: Iterable[str] = (),
        rows: Rows = "turn",
        epochs: int = 1,
        minibatch: int | None = None,
        max_grad_norm: float | None = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        optimizer: str = "adamw",
        warmup: int = 0,
        schedule: Schedule = "constant",
        updates: int | None = None,
        sequential: Key | None = None,
        order: Order = "reverse",
        chunk_tokens: int = 8192,
        transaction: Transaction = "update",
        devices: Kind = "one",
        timeout: float = 600.0,
    ) -> None:
        for option, value, known in (
            ("schedule", schedule, get_args(Schedule)),
            ("rows", rows, get_args(Rows)),
            ("transaction", transaction, get_args(Transaction)),
            ("devices", devices, get_args(Kind)),
        ):
            if value not in known:
                raise InputError(f"PolicyGradient: {option}={value!r} is unknown{nearest(str(value), known)}")
        if schedule != "constant" and not updates:
            raise InputError(f"PolicyGradient: schedule={schedule!r} needs updates=, how many there are until lr is 0")
        if epochs < 1 or (minibatch is not None and minibatch < 1):
            raise InputError(f"PolicyGradient: epochs={epochs} and minibatch={minibatch} must be at least 1")
        if not 0 <= weight_decay < math.inf:
            raise InputError(f"PolicyGradient: weight_decay={weight_decay} must be at least 0 and finite")
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise InputError(f"PolicyGradient: betas={betas} must be two numbers of at least 0 and below 1")
        if warmup < 0 or (schedule != "constant" and warmup >= (updates or 0)):
            raise InputError(f"PolicyGradient: warmup={warmup} must be at least 0, and less than updates={updates}")
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
        self.lr = rates(lr, self.policies)
        self.freeze = frozenset(freeze)
        for name in sorted(self.freeze - self.policies.keys()):
            raise InputError(f"PolicyGradient: freeze={name!r} is no policy that learns{nearest(name, self.policies)}")
        if self.freeze == self.policies.keys() and not self._may_rest:
            raise InputError("PolicyGradient: every policy is in freeze; nothing can be learned")
        self.rows, self.epochs, self.minibatch, self.max_grad_norm = rows, epochs, minibatch, max_grad_norm
        self.schedule, self.span, self.chunk_tokens, self.transaction = schedule, updates, chunk_tokens, transaction
        self.betas, self.weight_decay, self.warmup = (betas[0], betas[1]), weight_decay, warmup
        self.optimizer, self.updates = optimizer, 0
        self.memory: dict[str, dict[str, dict[str, Any]]] = {
            name: {key: {} for key in self.terms} for name in self.policies
        }
        self.modules = {
            name: torch.nn.ModuleDict({key: term.module(policy) for key, term in self.terms.items() if term.module})
            for name, policy in self.policies.items()
        }
        if rows == "conversation":
            learning = [policy for name, policy in self.policies.items() if name not in self.freeze]
            heads = [head for made in self.modules.values() for head in made.values()]
            check(learning, self.terms, heads, sequential)
        wanted = any(term.reference for term in self.terms.values())
        for name, policy in self.policies.items():
            if hasattr(policy, "check_memory") and devices != "fsdp" and name not in self.freeze:
                policy.check_memory(reference=wanted)
        references = {name: policy.frozen_copy() for name, policy in self.policies.items() if wanted}
        if devices == "fsdp" and optimizer != "adamw":
            raise InputError(
                f"PolicyGradient: optimizer={optimizer!r} does not share out moments; with fsdp take adamw"
            )
        optimizer_class(optimizer)  # what is not there is said now
        self.devices: Devices = spread(devices, timeout)
        self.learned = self.devices.place(self.policies)
        self.references = self.devices.place(references, frozen=True)
        self._ready: dict[str, torch.Tensor] = {}
        self._told: dict[str, list[Taken]] = {name: [] for name in self.policies}
        self.devices.begin(self._tensors)

    @property
    def _tensors(self) -> LearnerTensors:
        return LearnerTensors(
            self.policies, self.learned, self.references, self.modules, lambda: self.optimisers, self._parameters
        )

    @cached_property
    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """AdamW optimiser of each policy; made on first use, since the first in a process takes two seconds."""
        made = optimizer_class(self.optimizer)
        return {
            name: made(self._groups(name), self.lr[name], betas=self.betas, weight_decay=self.weight_decay)
            for name in self.policies
        }

    # -- the protocol -------------------------------------------------------------------------------------------------

    def needs(self) -> set[str]:
        """Columns that the terms read beside `policy`, `action_ids`, `logprobs` and the advantage."""
        found = {column for term in self.terms.values() for column in term.needs}
        return found | {*NEEDS} if self.rows == "conversation" else found

    @on_every_rank
    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Accumulate the gradients of every policy on its rows, as one step; no parameter changes yet.

        Rows are those that have no `error` and an advantage. Gradients of several calls add up until `optim_step`;
        denominators are those of a call.

        advantage: column of numbers, one per turn, or of lists, one per token of `action_ids`; null = takes no part. If
        no term reads credit, it is not looked at, and all rows with `action_ids` take part.

        Returns:
            per policy: loss, entropy (when the rows were sampled), grad_norm (before clipping), zero_credit (share of
            its rows whose advantage is 0), rows, tokens, seconds, and what the terms say of themselves: kl (None
            without such a term), clip_fraction (of tokens), clamped (tokens whose log-ratio was cut to ±20).

        Raises:
            MissingColumnError: no such advantage, or a column that a term needs.
            RewardError: a reward is NaN or infinite; names the rows.
            LearnerError: an advantage, loss or gradient is not finite, or the rows do not fit the policy. The gradients
                of earlier calls are dropped as well.
        """
        try:
            return self._accumulate(self._checked(turns, advantage))
        except BaseException:
            self._drop()
            raise

    @on_every_rank
    def optim_step(self) -> None:
        """Step every policy along its clipped gradient, and count an update. One without gradient stays."""
        for name in list(self._ready):
            self._move(name)
        self._finish()

    def drop_gradients(self) -> None:
        """Discard accumulated gradients."""
        self._drop()

    @on_every_rank
    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Train on a table: `forward_backward` and `optim_step`, with epochs and minibatches, as one transaction.

        With epochs, minibatches or in sequence, several of both, undone if one fails. Gradients that were there before
        are dropped.

        rng: draws the order of minibatches, and of parts if `order` is "random"; needed only then.

        Returns:
            as `forward_backward`; means over the steps, of sequential parts weighted by their rows.

        Raises:
            as `forward_backward`. Nothing is updated; with transaction="step" the steps before it stay.
        """
        self._drop()
        batches = self._checked(turns, advantage)
        sizes = [len(batch.size) for batch in batches.values()]
        if rng is None and any(self.minibatch and self.minibatch < size for size in sizes):
            raise InputError("PolicyGradient.update: minibatches are drawn: give rng=np.random.default_rng(seed)")
        try:
            if self.strategy is together and self.epochs == 1 and max(sizes) <= (self.minibatch or max(sizes)):
                metrics = self._accumulate(batches)
                self.optim_step()
                return metrics

            def learn(part: Turns, column: str) -> dict[str, Metrics]:
                return {name: self.learn(name, batch, rng) for name, batch in self._batches(part, column).items()}

            learned = [policy for name, policy in self.learned.items() if name not in self.freeze]
            copies = self.transaction == "update"
            with undone_on_error(self.optimisers.values()) if copies else nullcontext():
                metrics = self.strategy(learn, turns, advantage, learned, rng)
        except BaseException:
            self._drop()
            raise
        self._finish()
        return metrics

    def divergence(
        self, turns: Turns, *, rows: int = 64, start: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, float]:
        """Exact KL(π ‖ π_start), mean over the tokens of the first `rows` rows of each policy that has any.

        start: states of the policies at the start, for a learner that keeps none because no term asks for a reference,
        or keeps it in parts on several devices; without either a policy is left out. Only the first rank knows.
        """
        found: dict[str, float] = {}
        if self.devices.rank:
            return found
        for name, policy in self.policies.items():
            sample = turns.frame.filter(pl.col("policy") == name, pl.col("action_ids").is_not_null()).head(rows)
            reference = None if name in self.devices.sharded else self.references.get(name)
            if reference is None and start is not None and name in start:
                reference = policy.frozen_copy()
                reference.load_state_dict(dict(start[name]))
            if sample.height and reference is not None:
                with torch.no_grad():
                    now, then = policy.score(sample), reference.score(sample)
                    found[name] = float(aggregate(kl_between(now, then), now.mask))
        return found

    def values(self, turns: Turns) -> np.ndarray | Ragged:
        """Predictions of the critic term `value`: float64[rows], NaN for rows of others and without actions.

        With level="token": a value per token of `action_ids`, of rows without any none.

        Raises:
            InputError: there is no such term.
        """
        heads = {
            name: head for name, made in self.modules.items() for head in made.values() if isinstance(head, ValueHead)
        }
        if not heads:
            raise InputError(f"values: no term predicts any; add value() to the terms {list(self.terms)}")
        return predicted(heads, self.policies, turns, self.chunk_tokens)

    def state(self) -> dict[str, Any]:
        """State that a resume needs beside the policies' own.

        Optimisers, memories and modules of terms, references, number of updates.

        Tensors are live, as in torch. What is spread over several devices is a `checkpoints.FolderPart`, into which
        every rank writes its part when it is saved.
        """
        return {
            "updates": self.updates,
            "memory": self.memory,
            **self.devices.parts(self._tensors, self._write),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Inverse of `state`, from any number of devices to any other; the policies of the team were restored before.

        Only the first rank needs the state.
        """
        self._restore(state)

    @on_every_rank
    def _restore(self, state: dict[str, Any] | None) -> None:
        assert state is not None
        self._drop()
        self.updates = state["updates"]
        self.memory = {name: {key: dict(state["memory"][name][key]) for key in self.terms} for name in self.policies}
        self.devices.restore(self._tensors, state)

    def save(self, path: str | Path) -> None:
        """Write policies and `state` into a folder, whole or not at all; one that is there already is replaced.

        Raises:
            StorageError: it cannot be written; on several devices every rank says so, and which one could not.
        """
        if self.devices.rank:
            if self.devices.sharded:
                self._write(None)
            return
        policies = {name: policy.state_dict() for name, policy in self.policies.items()}
        checkpoints.write_state(Path(path), {"policies": policies, "learner": self.state()})

    def load(self, path: str | Path) -> None:
        """Inverse of `save`, and of the learner's part of a trainer's checkpoint, whatever devices wrote it.

        Raises:
            StorageError: there is none, or it is damaged.
        """
        found: dict[str, Any] = {}
        if self.devices.rank == 0:
            found = checkpoints.load(Path(path))
            for name, policy in self.policies.items():
                policy.load_state_dict(found["policies"][name])
        self._restore(found.get("learner"))

    @on_every_rank
    def _write(self, folder: Path | None) -> None:
        """Every rank writes what only it has."""
        self.devices.write(self._tensors, folder)

    @property
    def rank(self) -> int:
        """Rank of this process among those that learn together; rank 0 plays, decides and writes."""
        return self.devices.rank

    def follow(self) -> None:
        """On ranks other than 0: take part in rank 0's calls until it is done.

        Raises:
            RankError: a rank is gone or failed.
        """
        self.devices.follow(lambda name: partial(getattr(type(self), name).__wrapped__, self))

    # -- one policy ---------------------------------------------------------------------------------------------------

    def learn(self, name: str, batch: Batch, rng: np.random.Generator | None) -> Metrics:
        """All optimiser steps of one policy on its rows; `update` makes a transaction of it."""
        started = time.perf_counter()
        cache: dict[Any, Any] = {}
        taken: list[Taken] = []
        column = next((term.together for term in self.terms.values() if term.together), None)
        for chosen in minibatches(batch, self.epochs, self.minibatch, column, rng, self._rows(batch)):
            taken.append(self._gradient(name, batch, chosen, len(taken), cache))
            if name in self._ready:
                self._move(name)
        return self._said(name, batch, taken, started)

    def _checked(self, turns: Turns, advantage: str) -> dict[str, Batch]:
        """The rows of every policy. Every rank has them all: denominators are those of the whole table."""
        check_rewards(turns)
        for key, term in self.terms.items():
            for column in term.needs:
                require(turns.frame, column, key)
        for column in NEEDS if self.rows == "conversation" else ():
            turns[column]  # an error says how to get it
        batches = self._batches(turns, advantage)
        if self.devices.size > 1:
            self.devices.meet(self._tensors, {name: batch.rows for name, batch in batches.items()})
        return batches

    def _accumulate(self, batches: Mapping[str, Batch]) -> dict[str, Metrics]:
        """One step per policy: all gradients first, so that nothing has moved if one of them is not finite."""
        metrics = {}
        for name, batch in batches.items():
            started = time.perf_counter()
            rows = self._rows(batch)
            taken = [self._gradient(name, batch, rows, 0, {})] if len(rows) else []
            metrics[name] = self._said(name, batch, taken, started)
        return metrics

    def _rows(self, batch: Batch) -> np.ndarray:
        """Numbers of the rows that any term can learn from: if all are about pairs, of those in a pair."""
        columns = {term.together for term in self.terms.values() if term.together}
        if not all(term.together for term in self.terms.values()):
            return np.arange(len(batch.size))
        paired = batch.rows.select(pl.any_horizontal(pl.col(columns).is_not_null())).to_series()
        return np.flatnonzero(paired.to_numpy())

    def _move(self, name: str) -> None:
        limit = math.inf if self.max_grad_norm is None else self.max_grad_norm
        groups = self.optimisers[name].param_groups
        self.devices.clip([each for group in groups for each in group["params"]], limit, self._ready.pop(name))
        for group in groups:
            set_rate(group, self.lr[name] * decay(self.schedule, self.updates, self.span, self.warmup))
        self.optimisers[name].step()
        self.optimisers[name].zero_grad()

    def _finish(self) -> None:
        """An update was made."""
        self.updates += 1
        told, self._told = self._told, {name: [] for name in self.policies}
        for name, taken in told.items():
            for key, term in self.terms.items():
                if term.after:
                    term.after(self.memory[name][key], metrics_of(taken, key))
        if self.devices.size > 1:
            self.devices.publish(self._tensors)

    def _drop(self) -> None:
        """Forget gradients that nobody has used."""
        self._ready.clear()
        self._told = {name: [] for name in self.policies}
        for optimiser in self.optimisers.values():
            optimiser.zero_grad()

    def _gradient(self, name: str, batch: Batch, rows: np.ndarray, number: int, cache: dict[Any, Any]) -> Taken:
        """The gradient of one step, checked. Rows without credit count in the denominators of those with."""
        step = Step(
            batch.rows, rows, batch.counts, self.learned[name], number, self.updates, self.span,
            (lambda: self.references[name]) if self.references else None, cache, credit=batch.advantage,
        )  # fmt: skip
        everywhere = any(term.everywhere for term in self.terms.values())
        active = rows if everywhere else rows[batch.credited[rows]]
        if not step.tokens or not len(active):
            return Taken(0.0, None, step.tokens, 0, {})
        whole = any(term.whole for term in self.terms.values())
        left = "nothing was updated" if self.transaction == "update" or not number else f"{number} steps were taken"
        what = f"policy {name!r}, update {self.updates}"
        with self.devices.step(name, self._parameters(name), what, left) as shared:
            for at, weight in self._passes(name, batch, active, None if whole else self.chunk_tokens):
                with nullcontext() if name in self.devices.sharded else adding_up():
                    part = self._loss(name, batch, step, at)
                (part * (weight * shared.scale)).backward()
                shared.add(float(part.detach()), weight, step.logged)
        if float(shared.norm):
            self._ready[name] = shared.norm
        seen = int(batch.counts[active].sum())
        return Taken(shared.loss, float(shared.norm), step.tokens, seen, shared.said)

    def _passes(
        self, name: str, batch: Batch, active: np.ndarray, limit: int | None
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Rows and weight of each pass, as `Devices.passes`; rows of a prefix tree are in one pass.

        Trees are not looked for where all rows fit one pass; the policy looks for them itself.
        """
        trees_of = getattr(self.learned[name], "prefix_trees", None)
        trees = None
        one = limit is not None and self.devices.size == 1 and len(active) * int(batch.size[active].max()) <= limit
        if limit is not None and trees_of is not None and not one:
            trees = trees_of(batch.rows[[name for name in TOKENS if name in batch.rows.columns]][active], limit)
        if trees is None:
            yield from self.devices.passes(name, active, batch.size, limit)
            return
        size = np.array([tree.size for tree in trees])
        for chosen, weight in self.devices.passes(name, np.arange(len(trees)), size, limit):
            yield active[np.concatenate([trees[number].rows for number in chosen])], weight

    def _loss(self, name: str, batch: Batch, step: Step, at: np.ndarray) -> torch.Tensor:
        """Loss of the rows `at`: the sum of the terms."""
        policy, frame, units = self.learned[name], batch.rows[at], None
        if any(term.trunk for term in self.terms.values()):
            scored, units = score_with_units(policy, frame)
        else:
            scored = policy.score(frame)
        if hasattr(self.policies[name], "prefix_trees"):
            saved = 0 if scored.read is None else int((batch.size[at] - 1).sum()) - scored.read
            share = torch.tensor(saved / int(batch.size[step.chosen].sum()))
            step.logged.append(("", "shared", "step", share))
        advantage, old, mask = batch.tensors(name, at, scored)
        piece = MicroBatch(step, at, frame, scored, old, advantage, mask, units)
        modules = dict(self.modules[name].items())
        parts = [term(piece.lend(key, self.memory[name][key], modules.get(key))) for key, term in self.terms.items()]
        return sum(parts[1:], parts[0])

    def _batches(self, turns: Turns, advantage: str) -> dict[str, Batch]:
        read = any(term.credit for term in self.terms.values())
        learning = [name for name in self.policies if name not in self.freeze]
        batches = {name: make_batch(turns, name, advantage if read else None) for name in learning}
        if self.rows == "conversation":
            read_by = {column: key for key, term in self.terms.items() for column in (*term.needs, *OPTIONAL)}
            batches = {name: pack(batch, read_by) for name, batch in batches.items()}
        for name, batch in batches.items():  # before rows are shared out: every process numbers all states alike
            if meet := getattr(self.policies[name], "meet", None):
                meet(batch.rows)
                if "optimisers" in self.__dict__:
                    extend_moments(self.optimisers[name])
        return batches

    def _parameters(self, name: str) -> list[torch.nn.Parameter]:
        return [*self.learned[name].parameters(), *self.modules[name].parameters()]

    def _groups(self, name: str) -> Any:
        """Parameter groups of the optimiser; sharded and whole parameters do not share a group."""
        own, heads = self.learned[name].parameters(), list(self.modules[name].parameters())
        return [{"params": own}, {"params": heads}] if name in self.devices.sharded and heads else own + heads

    def _said(self, name: str, batch: Batch, taken: Sequence[Taken], started: float) -> Metrics:
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
        } | (batch.metrics if isinstance(batch, ConversationBatch) else {})
        return base | metrics_of(taken) | {"seconds": time.perf_counter() - started}
