"""What a term of an objective sees: `MicroBatch` and `Step`; `Term` and the registry are in `learning.objective`.

An objective is a sum of terms. A term is a pure function of a `MicroBatch`, some rows of one policy in one step of the
optimiser, and returns what these rows add to the step's loss; pieces of a step add up to the whole. Everything that a
term may look at hangs on the piece, so that the same function runs in the learner, in a test and in a notebook.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from palaestra.agents.policy import Learnable, Scored
from palaestra.algebra.list_columns import ragged
from palaestra.algebra.turns import SCHEMA, Turns
from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.learning.batch import per_row
from palaestra.learning.losses import AGGREGATIONS, LIMIT, Aggregation, Level, aggregate, log_ratio

if TYPE_CHECKING:
    pass

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """Data: state shared by the micro-batches of one optimiser step: table, rows, counts, reference, cache, metrics.

    table: every row of the policy in this update. chosen: row numbers of the step. counts: of every row, the tokens
    that take part. number: of the step in its update. updates, planned: done so far, and how many there will be.
    reference: the policy as it was at the start. cache: of this update, for what is the same in every step.
    logged: what terms of this step said about themselves. credit: of every token of the table, NaN where it takes no
    part; None: all take part.
    """

    table: pl.DataFrame
    chosen: np.ndarray
    counts: np.ndarray
    policy: Learnable | None = None
    number: int = 0
    updates: int = 0
    planned: int | None = None
    reference: Callable[[], Learnable] | None = None
    cache: dict[Any, Any] = field(default_factory=dict)
    logged: list[tuple[str, str, Any, Tensor]] = field(default_factory=list)
    credit: np.ndarray | None = None

    @cached_property
    def tokens(self) -> int:
        """Number of tokens that take part in the whole step."""
        return int(self.counts[self.chosen].sum())


Per = Literal["step", "token", "seen", "update"]


@dataclass
class MicroBatch:
    """Data: micro-batch of a step's rows: tensors [rows, tokens], padded on the right; `mask`: tokens that take part.

    at: row numbers in `step.table`. frame: those rows. new: log-probabilities now, with gradient; old: of the sample;
    they and the advantage are 0 where the mask is False, so that padding has no gradient.
    units: what the policy's last layer reads, [rows, tokens, width], if the term asks for its trunk.
    key, memory, module: of the term that is called. The memory is kept between updates and in checkpoints; change it
    in `Term.after` only, so that an update that fails leaves it alone.
    """

    step: Step
    at: np.ndarray
    frame: pl.DataFrame
    scored: Scored
    old: Tensor
    advantage: Tensor
    mask: Tensor
    units: Tensor | None = None
    key: str = ""
    memory: dict[str, Any] = field(default_factory=dict)
    module: nn.Module | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    new: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.new = self.scored.logprobs.masked_fill(~self.mask, 0.0)

    @classmethod
    def of(
        cls,
        new: Tensor,
        *,
        old: Tensor | None = None,
        advantage: Tensor | float = 0.0,
        mask: Tensor | None = None,
        reference: Tensor | None = None,
        entropies: Tensor | None = None,
        logits: Tensor | None = None,
        reference_logits: Tensor | None = None,
        columns: Mapping[str, Any] | None = None,
        units: Tensor | None = None,
        memory: dict[str, Any] | None = None,
        module: nn.Module | None = None,
        updates: int = 0,
        planned: int | None = None,
        policy: Learnable | None = None,
    ) -> MicroBatch:
        """Piece made from tensors, as a whole step, to try a term out.

        >>> import palaestra.learning.terms as terms
        >>> piece = MicroBatch.of(torch.tensor([[-1.0, -2.0]]), advantage=2.0)
        >>> float(terms.surrogate()(piece))
        -2.0
        """
        mask = torch.ones_like(new, dtype=torch.bool) if mask is None else mask
        old = (new.detach() if old is None else old).masked_fill(~mask, 0.0)
        credit = torch.as_tensor(advantage, dtype=new.dtype).expand_as(new).masked_fill(~mask, 0.0)
        nothing = torch.zeros_like(new.detach())

        def scored(logprobs: Tensor, logits: Tensor | None) -> Scored:
            known = nothing[..., None] if logits is None else logits
            return Scored(logprobs, nothing if entropies is None else entropies, mask, known)

        table = pl.DataFrame(dict(columns) if columns else {"_row": range(len(new))})
        every, counts = np.arange(len(new)), mask.sum(1).cpu().numpy()
        step = Step(table, every, counts, policy, updates=updates, planned=planned)
        piece = cls(step, every, table, scored(new, logits), old, credit, mask, units, "term", memory or {}, module)
        if reference is not None:
            piece.shared["reference"] = scored(reference, reference_logits)
        return piece

    def lend(self, key: str, memory: dict[str, Any], module: nn.Module | None) -> MicroBatch:
        """Copy of the piece for another term, with that term's memory and module."""
        twin = copy.copy(self)
        twin.key, twin.memory, twin.module = key, memory, module
        return twin

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Number of rows of the whole step, those without credit included: a denominator."""
        return len(self.step.chosen)

    @property
    def tokens(self) -> int:
        """Number of tokens of the whole step: a denominator."""
        return self.step.tokens

    def require(self, column: str) -> pl.Series:
        """A column of all rows of the update.

        Raises:
            MissingColumnError: the table lacks it; names the term.
        """
        return require(self.step.table, column, self.key)

    def column(self, name: str) -> Tensor:
        """Numbers of a column: float[rows, 1], or [rows, tokens] if the column has lists; NaN where one is missing.

        Raises:
            MissingColumnError: the table lacks it.
            InputError: it holds no numbers, or lists that are not as long as the actions.
        """
        values = self.require(name)[self.at]
        if values.dtype.base_type() not in (pl.List, pl.Array):
            if not (values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null)):
                raise InputError(f"term {self.key}: column {name!r} holds {values.dtype}, expected numbers")
            return self._tensor(values.cast(pl.Float64).to_numpy())[:, None]
        flat, missing, given = ragged(values)
        lengths = self.scored.mask.sum(1).cpu().numpy()
        if ((given != lengths) & values.is_not_null().to_numpy()).any():
            raise InputError(f"term {self.key}: the number of values in column {name!r} is not that of action_ids")
        found = np.full(self.mask.shape, np.nan)
        found[np.arange(found.shape[1]) < given[:, None]] = np.where(missing, np.nan, flat.astype(float))
        return self._tensor(found)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values, dtype=self.new.dtype, device=self.new.device)

    def known(self, name: str) -> np.ndarray:
        """Mask of the step's rows whose value in a column is neither null nor NaN, bool[rows of the step].

        Of a column with lists: those with such a value on a token that takes part.
        """
        values = self.require(name)[self.step.chosen]
        if values.dtype.base_type() in (pl.List, pl.Array):
            return self.known_tokens(name) > 0
        missing = values.is_null()
        return ~(missing | values.is_nan().fill_null(False) if values.dtype.is_float() else missing).to_numpy()

    def known_tokens(self, name: str) -> np.ndarray:
        """Tokens of the step's rows that take part and whose value in a column is not missing, int64[rows of the step].

        A value that is no list is that of all tokens of its row.
        """
        if self.require(name).dtype.base_type() not in (pl.List, pl.Array):
            return np.where(self.known(name), self.step.counts[self.step.chosen], 0)
        key = ("known tokens", name)  # counted once per update, for all terms and steps
        if key not in self.step.cache:
            self.step.cache[key] = _known_tokens(self.require(name), self.step)
        found: np.ndarray = self.step.cache[key][self.step.chosen]
        return found

    def reference(self) -> Scored:
        """These rows as the policy at the start scores them, without gradient; its term says `reference=True`."""
        if "reference" not in self.shared:
            if self.step.reference is None:
                raise InputError(f"term {self.key}: no reference is kept; its Term must say reference=True")
            with torch.no_grad():
                self.shared["reference"] = self.step.reference().score(self.frame)
        found: Scored = self.shared["reference"]
        return found

    def once(self, make: Callable[[], T]) -> T:
        """Value of `make`, computed once per update for this term, such as targets that are the same in every step."""
        if self.key not in self.step.cache:
            self.step.cache[self.key] = make()
        found: T = self.step.cache[self.key]
        return found

    # -- what is made of it -------------------------------------------------------------------------------------------

    def log_ratio(self, level: Level = "token") -> Tensor:
        """`losses.log_ratio` of these rows. Tokens that were cut to ±20 are counted as `clamped` in the metrics."""
        raw = self.new.detach() - self.old
        if "clamped" not in self.shared:
            self.shared["clamped"] = True
            self.log("clamped", (raw.abs() > LIMIT).sum(), per="update")
        return log_ratio(self.new, self.old, self.mask, level=level)

    def mean(self, loss: Tensor, how: Aggregation = "token-mean", constant: float | None = None) -> Tensor:
        """`losses.aggregate` of a loss per token, with the denominators of the whole step."""
        return aggregate(loss, self.mask, how=how, constant=constant, rows=self.rows, tokens=self.tokens)

    def row_mean(self, loss: Tensor) -> Tensor:
        """Mean of a loss per row, [rows], over the rows of the whole step."""
        return loss.sum() / max(self.rows, 1)

    def log(self, name: str, value: Tensor | float | int, *, per: Per = "step") -> None:
        """Add a number to the metrics of the policy.

        per step: what pieces say is added up, the metric is the mean over steps. token: the sum over the update per
        token of it (a share, if the value counts tokens). seen: the same, per token of the rows that came by: without
        those that are left out for want of credit. update: the sum over the update, a whole number.
        """
        self.step.logged.append((self.key, name, per, torch.as_tensor(value).detach()))


def _known_tokens(values: pl.Series, step: Step) -> np.ndarray:
    """`MicroBatch.known_tokens` of a column with lists, of all rows of the table."""
    flat, missing, given = ragged(values)
    there = ~missing & ~np.isnan(flat.astype(float))
    if step.credit is not None:
        lengths = ragged(step.table["action_ids"])[2]
        whole = given == lengths  # not those of rows that have no list
        there[np.repeat(whole, given)] &= ~np.isnan(step.credit[np.repeat(whole, lengths)])
    return per_row(there, given)


# -- what is checked when a term is made ------------------------------------------------------------------------------


def require(table: pl.DataFrame, column: str, key: str) -> pl.Series:
    """Return a column of a table; raise MissingColumnError that names the term if it is absent."""
    if column not in table.columns:
        meaning = f" ({SCHEMA[column].meaning})" if column in SCHEMA else nearest(column, table.columns)
        raise MissingColumnError(f"term {key} reads column {column!r}, which is missing{meaning}")
    return table[column]


def number(term: str, *, low: float = -math.inf, high: float = math.inf, **values: Any) -> None:
    """Raise InputError, naming the term, if a keyword value is no finite number from `low` to `high`."""
    for name, value in values.items():
        fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not fine or not low <= value <= high:
            bounds = f" from {low:g} to {high:g}" if high < math.inf else f" of at least {low:g}"
            raise InputError(f"{term}: {name}={value!r}, expected a number{bounds if low > -math.inf else ''}")


def choice(term: str, known: Sequence[str], **values: Any) -> None:
    """Raise InputError, naming the term, if a keyword value is not among the words `known`."""
    for name, value in values.items():
        if value not in known:
            raise InputError(f"{term}: {name}={value!r} is unknown{nearest(str(value), known)}")


def how_to_aggregate(term: str, aggregate: str, constant: float | None) -> None:
    """Raise InputError for an unknown aggregation, or a constant one without its constant."""
    choice(term, AGGREGATIONS, aggregate=aggregate)
    if aggregate == "constant" and constant is None:
        raise InputError(f"{term}: aggregate='constant' needs constant=, the tokens of the longest answer")
    if constant is not None:
        number(term, low=1e-9, constant=constant)


def ends(term: str, clip: Any) -> tuple[float | None, float | None]:
    """Pair (low, high) of an option `clip`: one number for both ends, two, or None where an end is open."""
    both = tuple(clip) if isinstance(clip, Sequence) and not isinstance(clip, str) else (clip, clip)
    fine = all(end is None or (isinstance(end, int | float) and 0 <= end < math.inf) for end in both)
    if len(both) != 2 or not fine:
        raise InputError(f"{term}: clip={clip!r} must be a number of at least 0, (low, high) or None")
    return both


def share_of_episodes(table: pl.DataFrame) -> np.ndarray:
    """Weights of a table's rows, rows / (episodes · rows of its episode), float32[rows, 1]: means over episodes."""
    codes = Turns(table).codes("episode")
    episodes, index, counts = np.unique(codes.ids, return_inverse=True, return_counts=True)
    return (len(index) / (len(episodes) * counts[index])).astype(np.float32)[:, None]
