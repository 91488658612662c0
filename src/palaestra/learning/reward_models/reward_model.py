"""Base class and registry of reward models; needs no torch.

A model is made with its options, is fitted to `Preferences` or `Labels`, scores rows as every `Scorer` does, and is a
folder: `palaestra.json` with its kind and options beside its weights.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest
from palaestra.foundation.files import read_object, refuse_links, write_json
from palaestra.foundation.progress import Report
from palaestra.foundation.registry import Registry, reading_data
from palaestra.judges.protocol import Scorer
from palaestra.learning.reward_models.data import Labels, Preferences

SETTINGS = "palaestra.json"


class RewardModel:
    """Base class of reward models: `fit`, `score`, `save` and `load`; each is a `Scorer`.

    kind: its name in the registry. options: what it was made with.
    """

    kind: ClassVar[str]
    name: str
    options: dict[str, Any]

    def fit(
        self,
        data: Preferences | Labels,
        *,
        seed: int = 0,
        checkpoints: str | Path | None = None,
        progress: bool | Report = False,
        **options: Any,
    ) -> dict[str, float]:
        """Fit to pairs or labels; returns metrics. checkpoints: a folder from which an interrupted fit goes on.

        Raises:
            InputError: the data are not what it learns from, or an option is unknown.
        """
        raise NotImplementedError

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Scores of rows, see `judges.protocol.Scorer`; abstract."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write weights and options into a folder.

        Raises:
            StorageError: it cannot be written. InputError: it has learned nothing yet.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)  # safetensors and transformers write through them
        self.write(folder)
        write_json(folder / SETTINGS, {"kind": self.kind, "options": self.options})

    def write(self, folder: Path) -> None:
        """Write the weights; abstract."""
        raise NotImplementedError

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Load what `save` wrote; options stand in for saved ones, as they must for code (`features="mine:numbers"`).

        Raises:
            InputError: the folder names code that the options do not: a model is data, and data import nothing.
        """
        with reading_data(str(path), [each for each in options.values() if isinstance(each, str)]):
            made = cls(**{**settings(path), **options})
            made.read(Path(path))
        return made

    def read(self, folder: Path) -> None:
        """Inverse of `write`."""
        raise NotImplementedError

    def agrees(self, pairs: Preferences) -> np.ndarray:
        """Agreement per pair: 1 where the chosen side scores higher, ½ for equal scores, else 0; NaN: unknown."""
        rows, reference, condition = pairs.both()
        found = self.score(rows, reference=reference, condition=condition).to_numpy()
        lead = found[: len(pairs)] - found[len(pairs) :]
        return np.where(np.isnan(lead), np.nan, (1 + np.sign(lead)) / 2)


class RewardModels(Registry[RewardModel]):
    """Registry of reward models, which are classes derived from `RewardModel`."""

    def add(self, name: str, make: Any) -> None:
        """Register a class; see `Registry.register`."""
        if not (isinstance(make, type) and issubclass(make, RewardModel)):
            raise InputError(f"reward_model {name!r}: {make!r} is no class derived from RewardModel")
        super().add(name, make)


REWARD_MODELS = RewardModels("reward_model", home=("palaestra.learning.reward_models.kinds",), example="head(layers=2)")
"""What `palaestra fit-reward --model` may name."""


def keep_options(self: RewardModel, given: dict[str, Any]) -> None:
    """Set a reward model's `options` from `given`, the local variables of its `__init__`."""
    names = inspect.signature(type(self)).parameters
    self.options = {name: given[name] for name in names}


def settings(path: str | Path) -> dict[str, Any]:
    """Options (a dict) of the reward model saved in a folder; empty where the folder has none of our settings."""
    found = read_object(Path(path) / SETTINGS)
    return {} if found is None else dict(found["options"])


def load(path: str | Path, **options: Any) -> Scorer:
    """Reward model loaded from a folder; one without our settings is a sequence classifier of transformers.

    options: in place of those that were saved, see `RewardModel.load`.

    Raises:
        InputError: it is neither, of a kind that is not known here, or names code that the options do not.
    """
    found = read_object(Path(path) / SETTINGS)
    if found is None and Path(path).is_dir() and not (Path(path) / "config.json").exists():
        raise InputError(f"{path}: holds no reward model; name what `palaestra fit-reward --out` or transformers wrote")
    kind = "sequence" if found is None else str(found.get("kind"))
    if kind not in REWARD_MODELS:
        raise InputError(f"{path}: holds {kind!r}, no reward model{nearest(kind, REWARD_MODELS)}")
    made: Any = REWARD_MODELS.find(kind)
    model: RewardModel = made.load(path, **options)
    return model
