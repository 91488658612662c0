"""`MetaGradient`: learns a start from which a few gradient steps adapt to a partner (MAML)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, LearnerError
from palaestra.learning.batch import Batch
from palaestra.learning.learner import PolicyGradient
from palaestra.learning.protocol import LEARNERS, Metrics
from palaestra.learning.steps import Taken, summed
from palaestra.learning.terms import Step, Term

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaestra.agents import Team


@LEARNERS.register("meta_gradient")
class MetaGradient(PolicyGradient):
    """Meta-learner: moves parameters θ so that `steps` gradient steps with one partner raise the objective most.

    The rows of each opponent of a league and each seat are a task of their own; `opponents.per_iteration` says how many
    there are. Every other episode belongs to the support, the rest to the query. Adaptation is plain gradient descent
    on the support's loss, θ' = θ - rate · ∇L(θ), so many times; θ then moves along the gradient of the query's loss at
    θ', taken through the adaptation (MAML, arXiv 1703.03400). The turns were played with θ, so the terms should use the
    ratio to that play, without clipping: `surrogate(clip=None)`. θ itself is held near language data by the terms of
    `anchor`.

    Source: dynamic population-based meta-learning, Gupta et al. 2021 (NeurIPS), of which the abstract is known; the
    order of its phases and this form of its objective are a reconstruction.

    Args:
        team: as of `PolicyGradient`. terms: loss of support and query.
        steps: gradient steps of an adaptation; 0: plain policy gradient on the queries.
        rate: length of these steps, of gradients that are not clipped.
        episodes: of a task, an even number; an opponent with more is several tasks. None: as many as there are.
        first_order: the gradient at θ' is applied to θ as it is, without that of the adaptation.
        corpus: Parquet file of turns, of scripted speakers for example, that the anchor reads; None: no anchor.
        anchor: terms on the corpus, at θ: supervised loss, and KL to the policies as they were at the start.
        gradient: fields of `policy_gradient`; without `epochs`, `minibatch` and `sequential`, and in one process.

    Raises:
        InputError: an option is out of range, a policy has no network of its own (`module`), or the corpus has no turn
            of a seat of a policy that learns.
    """

    def __init__(
        self,
        team: Team,
        terms: str | Iterable[str | Term] = ("surrogate(clip=None)",),
        *,
        steps: int = 3,
        rate: float = 1.0,
        episodes: int | None = 64,
        first_order: bool = False,
        corpus: str | None = None,
        anchor: str | Iterable[str | Term] = ("clone(0.3)", "kl(0.05)"),
        **gradient: Any,
    ) -> None:
        if steps < 0 or not rate > 0 or (episodes is not None and (episodes < 2 or episodes % 2)):
            raise InputError(
                f"learn.kind meta_gradient: steps={steps} must be at least 0, rate={rate} above 0, and "
                f"episodes={episodes} an even number"
            )
        super().__init__(team, terms, **gradient)
        if self.epochs > 1 or self.minibatch or gradient.get("sequential") or self.devices.size > 1:
            raise InputError("learn.kind meta_gradient: takes no epochs, minibatch or sequential, and one process")
        if wrong := [name for name, each in self.policies.items() if not adaptable(each)]:
            raise InputError(f"learn.kind meta_gradient: policy {wrong[0]!r} is no small network, as kind mlp is")
        self.steps, self.rate, self.episodes, self.first_order = steps, rate, episodes, first_order
        self.anchor: PolicyGradient | None = None
        self.taught: dict[str, Batch] = {}
        if corpus is not None:
            self.anchor = PolicyGradient(team, anchor, freeze=self.freeze)
            self.taught = _taught(corpus, team, self.anchor)

    def adapt(self, turns: Turns, *, advantage: str = "advantage") -> None:
        """One step of an adaptation on all rows, as a partner's reward moves θ to θ'; no update is counted."""
        for name, batch in self._checked(turns, advantage).items():
            if len(batch.size):
                with self._adapted(name) as own:
                    own.descend(self._loss_of(name, batch, np.arange(len(batch.size)), [])[0], self.rate)
                own.keep()

    def _accumulate(self, batches: Mapping[str, Batch]) -> dict[str, Metrics]:
        """Gradients of the queries after adaptation, and of the anchor, as one step per policy."""
        metrics = {}
        for name, batch in batches.items():
            started = time.perf_counter()
            taken = self._meta(name, batch) if len(batch.size) else []
            metrics[name] = self._said(name, batch, taken, started)
            if self.anchor is not None:
                held = self.anchor._told[name]
                metrics[name] |= {"anchor": float(np.mean([each.loss for each in held])) if held else None}
                self.anchor._told[name] = []
        return metrics

    def _meta(self, name: str, batch: Batch) -> list[Taken]:
        parameters = self._parameters(name)
        before = [None if p.grad is None else p.grad.clone() for p in parameters]
        tasks, taken = _tasks(batch.rows, self.episodes), []
        queries = sum(len(query) for _, query in tasks)
        total = [torch.zeros_like(p) for p in parameters]
        for support, query in tasks:
            with self._adapted(name) as own:
                for _ in range(self.steps):
                    own.descend(self._loss_of(name, batch, support, [])[0], self.rate, second=not self.first_order)
                logged: list[Any] = []
                loss, tokens = self._loss_of(name, batch, query, logged)
                _add(total, own.gradient(loss, parameters, second=not self.first_order), len(query) / queries)
            taken.append(Taken(float(loss.detach()), 1.0, tokens, tokens, summed(logged)))
        if self.anchor is not None and name in self.taught:
            for parameter in parameters:
                parameter.grad = None
            rows = np.arange(len(self.taught[name].size))
            self.anchor._told[name] = [self.anchor._gradient(name, self.taught[name], rows, 0, {})]
            _add(total, [p.grad for p in parameters], 1.0)
        _add(total, before, 1.0)
        for parameter, gradient in zip(parameters, total, strict=True):
            parameter.grad = gradient
        self._ready[name] = norm = torch.linalg.vector_norm(torch.stack([each.norm() for each in total]))
        if not bool(norm.isfinite()):
            raise LearnerError(f"policy {name!r}, update {self.updates}: its gradient is {norm}; lower rate")
        return [each._replace(norm=float(norm)) for each in taken]

    def _loss_of(self, name: str, batch: Batch, rows: np.ndarray, logged: list[Any]) -> tuple[torch.Tensor, int]:
        """Loss of some rows as a whole step, and their tokens; terms write their metrics into `logged`."""
        reference = (lambda: self.references[name]) if self.references else None
        step = Step(batch.rows, rows, batch.counts, self.learned[name], 0, self.updates, self.span,
                    reference, {}, logged, batch.advantage)  # fmt: skip
        return self._loss(name, batch, step, rows), step.tokens

    @contextmanager
    def _adapted(self, name: str) -> Iterator[_Adapted]:
        """Context manager in which a policy computes with parameters that descend from its own."""
        policy: Any = self.learned[name]
        module = policy.module
        policy.module = own = _Adapted(module)
        try:
            yield own
        finally:
            policy.module = module

    def inherit(self, before: MetaGradient) -> None:
        """Take over, when a phase begins, the start that the anchor holds to."""
        if self.anchor is not None and before.anchor is not None:
            shared = self.anchor.references.keys() & before.anchor.references.keys()
            self.anchor.references |= {name: before.anchor.references[name] for name in shared}

    def state(self) -> dict[str, Any]:
        """State of the policy gradient, and of the anchor, whose reference is the start."""
        return super().state() | ({} if self.anchor is None else {"anchor": self.anchor.state()})

    def _restore(self, state: dict[str, Any] | None) -> None:
        super()._restore(state)
        if self.anchor is not None:
            self.anchor.restore((state or {})["anchor"])


def adaptable(policy: Any) -> bool:
    """Whether a policy is a table, or computes by calls of its `module`, so that other values can stand for its own."""
    module = getattr(policy, "module", None)
    if module is None:
        return False
    return type(module).forward is not torch.nn.Module.forward or not list(module.children())


def _tasks(rows: pl.DataFrame, episodes: int | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Row numbers of support and query of each task, of at most so many episodes; one without both is left out."""
    by = [name for name in ("opponent", "agent") if name in rows.columns]
    place = pl.struct("group", "episode").rank("dense").over(by).cast(pl.Int64) - 1
    numbered = rows.select(*by, "group", "episode").with_row_index("_row")
    numbered = numbered.with_columns(_query=place % 2 == 1, _part=place // (episodes or len(rows) or 1))
    found = numbered.group_by(*by, "_part", maintain_order=True).agg(
        support=pl.col("_row").filter(~pl.col("_query")), query=pl.col("_row").filter("_query")
    )
    pairs = zip(found["support"], found["query"], strict=True)
    return [(one.to_numpy(), two.to_numpy()) for one, two in pairs if len(one) and len(two)]


class _Adapted(torch.nn.Module):
    """A module that computes with other values of its parameters, which are functions of the parameters."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.values: dict[str, torch.Tensor] = dict(inner.named_parameters())

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The inner module's output with the values of now."""
        return torch.func.functional_call(self.inner, self.values, inputs)

    def get_parameter(self, target: str) -> Any:
        """The value of now of a parameter, of which a table reads rows."""
        return self.values[target]

    def descend(self, loss: torch.Tensor, rate: float, *, second: bool = False) -> None:
        """One step of gradient descent; second: it can be differentiated, through its gradient as well."""
        gradients = torch.autograd.grad(loss, list(self.values.values()), create_graph=second, allow_unused=True)
        moved = zip(self.values.items(), gradients, strict=True)
        values = {name: value if slope is None else value - rate * slope for (name, value), slope in moved}
        self.values = values if second else {n: value.detach().requires_grad_() for n, value in values.items()}

    def gradient(
        self, loss: torch.Tensor, parameters: Sequence[torch.nn.Parameter], *, second: bool
    ) -> list[torch.Tensor | None]:
        """Gradient of a loss: with respect to the parameters if `second`, else to the values of now."""
        of = list(parameters) if second else [self.values[name] for name, _ in self.inner.named_parameters()]
        return list(torch.autograd.grad(loss, of, allow_unused=True))

    @torch.no_grad()
    def keep(self) -> None:
        """Make the values of now those of the parameters."""
        for name, parameter in self.inner.named_parameters():
            parameter.copy_(self.values[name])


def _add(total: list[torch.Tensor], gradients: Sequence[torch.Tensor | None], weight: float) -> None:
    for sum_, gradient in zip(total, gradients, strict=True):
        if gradient is not None:
            sum_ += weight * gradient


def _taught(corpus: str, team: Team, anchor: PolicyGradient) -> dict[str, Batch]:
    """Rows of a corpus by the policy that has the seat.

    Raises:
        InputError: the file cannot be read, or no policy that learns has a seat in it.
    """
    from palaestra.learning.warmstart import demonstrations

    try:
        turns = Turns(pl.read_parquet(Path(corpus), glob=False))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"learn.corpus: {corpus} cannot be read: {str(error).splitlines()[0]}") from error
    named = [rows.with_columns(policy=pl.lit(name)) for name, rows in demonstrations(turns, team).items()]
    if not named:
        raise InputError(f"learn.corpus: {corpus} has no turn of a seat of a policy that learns")
    found = Turns(pl.concat(named, how="diagonal_relaxed"))
    return {name: batch for name, batch in anchor._batches(found, "advantage").items() if len(batch.size)}
