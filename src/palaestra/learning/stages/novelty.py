"""Stages for novelty: visit counts, prediction error of a network, running deviations, text embeddings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import InputError, SchemaError
from palaestra.foundation.registry import load_object
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.rewards.novelty import RunningScale, VisitCounts

if TYPE_CHECKING:
    import torch

Model = Callable[[list[str]], Any]


@stage
class counts(Stage):
    """Stage: column `count_before`: how often each key was met in earlier iterations; then this iteration's rows count.

    key: a column, or several. For `episodic_global_bonus(key)` and `count_bonus(key, scope="all", before=column)`.
    """

    adds = {"count_before": "how often the key was met in earlier iterations"}

    def __init__(self, key: str | Sequence[str] = "state", *, into: str = "count_before") -> None:
        self.memory = VisitCounts(key, column=into)
        self.needs, self.adds = set(self.memory.key), {into: type(self).adds["count_before"]}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the counts."""
        return self.memory.add(turns)

    def state_dict(self) -> dict[str, Any]:
        """State: the counts."""
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.memory.load_state_dict(state)


@stage
class running_scale(Stage):
    """Stage: column `scale`: running standard deviation of a signal over all iterations so far, the same on all rows.

    This iteration is included.
    Its reward is `scaled(bonus, "scale")`: bonuses that shrink as the world gets known stay of one size.
    """

    adds = {"scale": "deviation so far of the signal"}

    def __init__(self, of: str, *, into: str = "scale") -> None:
        self.signal, self.memory, self.into = parse(of, columns=(of,)), RunningScale(), into
        self.needs, self.adds = self.signal.needs(), {into: f"deviation so far of {of}"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the deviation."""
        deviation = self.memory.add(np.asarray(self.signal.evaluate(turns), float))
        return turns.with_column(**{self.into: np.full(len(turns), deviation)})

    def state_dict(self) -> dict[str, Any]:
        """State: the moments."""
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.memory.load_state_dict(state)


@stage
class rnd(Stage):
    """Stage: column `novelty`, the error of random network distillation (arXiv 1810.12894), whose network then learns.

    The error Σ (f(x) - g(x))² / size is of before this iteration's learning, so what is new has a large one. Features
    are brought to the mean and deviation of all so far and cut at ±5, as published. `novelty_difference("novelty")` is
    NovelD's; `running_scale("novelty")` gives the published scale.

    Args:
        features: a list column, as long on every row: the env's `features`, or what `embed` adds. into: of the error.
        size: outputs of both networks. hidden: width of their one hidden layer. lr, epochs: of Adam, whole batches.
    """

    adds = {"novelty": "error of predicting a random network at the turn's features"}

    def __init__(
        self,
        features: str = "features",
        *,
        into: str = "novelty",
        size: int = 32,
        hidden: int = 64,
        lr: float = 1e-3,
        epochs: int = 4,
    ) -> None:
        if min(size, hidden, epochs) < 1 or not lr > 0:
            raise InputError(f"rnd: {size=}, {hidden=} and {epochs=} must be at least 1, {lr=} above 0")
        self.features, self.into, self.size, self.hidden = features, into, size, hidden
        self.lr, self.epochs = lr, epochs
        self.needs, self.adds = {features}, {into: type(self).adds["novelty"]}
        self.moments = np.zeros((3, 1))
        self._made: tuple[Any, Any, Any] | None = None
        self._state: dict[str, Any] | None = None

    def _networks(self, width: int, seed: int) -> tuple[Any, Any, Any]:
        """Target, predictor, optimiser; made when the width is known."""
        if self._made is None:
            import torch

            from palaestra.learning.critics import network

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                target, predictor = (network(width, (self.hidden,), self.size) for _ in range(2))
            self._made = target, predictor, torch.optim.Adam(predictor.parameters(), lr=self.lr)
            if self._state is not None:
                for made, name in zip(self._made, ("target", "predictor", "optimiser"), strict=True):
                    part: Any = made
                    part.load_state_dict(self._state[name])
        return self._made

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the error."""
        import torch

        x = matrix_of(turns, self.features)
        known = np.flatnonzero(np.isfinite(x).all(axis=1))
        error = np.full(len(turns), np.nan)
        if len(known):
            target, predictor, optimiser = self._networks(x.shape[1], context.seed)
            seen = self._standardised(x[known])
            with torch.no_grad():
                wanted = target(seen)
            for epoch in range(self.epochs):
                errors = (predictor(seen) - wanted).square().mean(1)
                if epoch == 0:
                    error[known] = errors.detach().double().numpy()
                optimiser.zero_grad()
                errors.mean().backward()
                optimiser.step()
        return turns.with_column(**{self.into: error})

    def _standardised(self, x: np.ndarray) -> torch.Tensor:
        import torch

        number, mean, squares = self.moments if self.moments.any() else np.zeros((3, x.shape[1]))
        total = number + len(x)
        gap = x.mean(axis=0) - mean
        squares = squares + np.square(x - x.mean(axis=0)).sum(axis=0) + gap**2 * number * len(x) / total
        mean = mean + gap * len(x) / total
        self.moments = np.array([total, mean, squares])
        deviation = np.sqrt(squares / total)
        return torch.from_numpy(np.clip((x - mean) / np.where(deviation > 0, deviation, 1.0), -5, 5)).float()

    def state_dict(self) -> dict[str, Any]:
        """State: moments, both networks and the optimiser."""
        names = ("target", "predictor", "optimiser")
        made = (
            self._state if self._made is None else {n: m.state_dict() for n, m in zip(names, self._made, strict=True)}
        )
        return {"moments": self.moments, "networks": made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.moments, self._state, self._made = np.asarray(state["moments"]), state["networks"], None


def matrix_of(turns: Turns, column: str) -> np.ndarray:
    """List column of turns as float64[rows, width], NaN where a row has none.

    Raises:
        SchemaError: it holds no lists, or lists of different lengths.
    """
    lists = turns[column]
    if not isinstance(lists.dtype, pl.List):
        raise SchemaError(f"column {column!r} holds {lists.dtype}, not lists of numbers")
    lengths = lists.list.len().drop_nulls().unique().to_list()
    if len(lengths) > 1:
        raise SchemaError(f"column {column!r} has lists of {sorted(lengths)} numbers; give as many on every row")
    found = np.full((len(turns), lengths[0] if lengths else 0), np.nan)
    if lengths and lengths[0]:
        found[lists.is_not_null().to_numpy()] = lists.drop_nulls().explode().to_numpy().reshape(-1, lengths[0])
    return found


@stage
class embed(Stage):
    """Stage: list columns with embeddings (default: hashed words) of a text column, and of fixed texts, of length 1.

    For `goal_projection("embedding", "embedding.goal", "embedding.baseline")` (VLM-RM [170]), `elliptical("embedding")`
    (E3B), `rnd("embedding")` and whatever compares by similarity. Each text is embedded once.

    Args:
        column: of texts; null stays null. model: `module:name` of a function from texts to float[n, width]; default:
            counts of words, hashed into `size` numbers with a sign.
        texts: by name, what `INTO.NAME` holds on every row: {"goal": "…", "baseline": "…"}.
        into: the column of vectors.
    """

    adds = {"embedding": "vector of the text, of length 1"}

    def __init__(
        self,
        column: str = "observation",
        *,
        model: str | Model | None = None,
        size: int = 64,
        texts: Mapping[str, str] | None = None,
        into: str = "embedding",
    ) -> None:
        if size < 1:
            raise InputError(f"embed: {size=} must be at least 1")
        self.column, self.size, self.texts, self.into = column, size, dict(texts or {}), into
        self.model = load_object(model, "embed: model") if isinstance(model, str) else model
        self.needs = {column}
        self.adds = {into: type(self).adds["embedding"]} | {f"{into}.{k}": f"of {v!r}" for k, v in self.texts.items()}
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the vectors."""
        given = turns[self.column].cast(pl.String)
        new = [
            text
            for text in [*given.unique(maintain_order=True).drop_nulls(), *self.texts.values()]
            if text not in self._known
        ]
        new = list(dict.fromkeys(new))
        if new:
            made = np.asarray(hashed_words(new, self.size) if self.model is None else self.model(new), float)
            if made.ndim != 2 or len(made) != len(new) or not np.isfinite(made).all():
                raise InputError(
                    f"embed: the model made {made.shape} of {len(new)} texts; expected finite (texts, width)"
                )
            made = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
            self._known |= dict(zip(new, made, strict=True))
            if self.model is not None:
                context.spent.add(calls=len(new))
        parts = [self._known[text] for text in given.drop_nulls()]
        lengths = np.where(given.is_not_null().to_numpy(), len(next(iter(self._known.values()), ())), 0)
        series = Ragged(np.concatenate([*parts, np.empty(0)]), lengths).to_series(self.into)
        columns: dict[str, Any] = {self.into: _without(series, given)}
        for name, text in self.texts.items():
            vector = self._known[text]
            every = Ragged(np.tile(vector, len(turns)), np.full(len(turns), len(vector)))
            columns[f"{self.into}.{name}"] = every
        return turns.with_column(**columns)


def _without(series: pl.Series, given: pl.Series) -> pl.Series:
    return pl.select(pl.when(given.is_not_null()).then(series)).to_series().rename(series.name)


def hashed_words(texts: Sequence[str], size: int = 64) -> np.ndarray:
    """Hashed word counts of texts, float64[texts, size]: each word adds ±1 in one place, both given by its hash.

    >>> bool(hashed_words(["the cat"])[0] @ hashed_words(["The cat!"])[0] > 0)
    True
    """
    found = np.zeros((len(texts), size))
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.casefold()):
            number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
            found[row, (number >> 1) % size] += 1 - 2 * (number & 1)
    return found
