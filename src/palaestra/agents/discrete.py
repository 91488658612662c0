"""Base class of policies over a fixed number of actions: a row of logits per observation, and a legal mask.

Their actions are sequences of one token, the action's id, so the same losses train them as language models.
"""

from __future__ import annotations

import abc
import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch

from palaestra.agents.policy import Decision, Request, Scored
from palaestra.envs.protocol import Observation
from palaestra.errors import DamagedFileError, InputError
from palaestra.foundation.files import atomic_write, read_object, write_json

if TYPE_CHECKING:
    import polars as pl

ILLEGAL = -1e9
"""Logit of an illegal action: its probability is exactly 0, and p·log p and KL terms stay numbers."""


class DiscretePolicy(abc.ABC):
    """Base class of trainable softmax policies over `actions` action ids, with illegal ones masked.

    Subclasses say where logits come from, and their `SETTINGS`:
    attributes that `__init__` takes under the same names.
    """

    KIND: ClassVar[str]
    SETTINGS: ClassVar[tuple[str, ...]]

    def __init__(self, module: torch.nn.Module, *, actions: int, name: str) -> None:
        if actions < 1:
            raise InputError(f"{type(self).__name__}: actions is {actions}, must be at least 1")
        self.module, self.actions, self.name = module, actions, name

    @abc.abstractmethod
    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of observations, [observations, actions], before the mask; abstract."""

    @abc.abstractmethod
    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits of rows of `Turns`, [rows, actions], with gradient; abstract."""

    def misfit(self, observation: Observation) -> str | None:
        """Reason why this observation cannot be acted on; None if it can."""
        if observation.choices is None or len(observation.choices) != self.actions:
            found = "free text" if observation.choices is None else f"{len(observation.choices)} choices"
            return f"InputError: the observation has {found}, policy {self.name!r} has {self.actions} actions"
        return None

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Draw one action id per request by inverse CDF; an observation that does not fit gives an `error`."""
        start = time.perf_counter()
        decisions = [Decision(0, error=self._refused(request)) for request in requests]
        fit = [i for i, decision in enumerate(decisions) if decision.error is None]
        if fit:
            probabilities, logp = self._of_requests([requests[i] for i in fit])
            cdf = probabilities.cumsum(1)
            uniforms = np.array([requests[i].rng.random() for i in fit])
            chosen = (cdf <= (uniforms * cdf[:, -1])[:, None]).sum(1)
            logprobs = np.take_along_axis(logp, chosen[:, None], 1).astype(np.float32)
            entropies = -(probabilities * logp).sum(1, keepdims=True).astype(np.float32)
            ids = chosen[:, None].astype(np.int32)
            for row, i in enumerate(fit):
                decision = decisions[i]
                decision.action, decision.action_ids = int(chosen[row]), ids[row]
                decision.logprobs, decision.entropies = logprobs[row], entropies[row]
        for decision in decisions:
            decision.duration = (time.perf_counter() - start) / len(requests)
        return decisions

    def choice_probabilities(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities float64[n, actions], and the illegal mass, 0 here; raises InputError for a misfit."""
        for observation in observations:
            if reason := self.misfit(observation):
                raise InputError(reason.removeprefix("InputError: "))
        return self._distribution(observations)[0], np.zeros(len(observations))

    def _refused(self, request: Request) -> str | None:
        """Why this request cannot be answered, if so; policies that look at the agent too override it."""
        return self.misfit(request.observation)

    def _of_requests(self, requests: Sequence[Request]) -> tuple[np.ndarray, np.ndarray]:
        """As `_distribution`; policies that look at the agent too override it."""
        return self._distribution([request.observation for request in requests])

    def _distribution(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and their logs (0 where illegal), float64[n, actions]."""
        with torch.no_grad():
            return self._softmax(self.logits(observations), observations)

    def _softmax(self, scores: torch.Tensor, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and their logs (0 where illegal) of logits [n, actions], float64."""
        every = np.ones(self.actions, bool)
        legal = np.array([every if o.mask is None else o.mask for o in observations], bool)
        logits = scores.cpu().double().numpy()
        logits = np.where(legal, logits, -np.inf)
        logits -= logits.max(1, keepdims=True)
        weights = np.exp(logits)
        total = weights.sum(1, keepdims=True)
        return weights / total, np.where(legal, logits - np.log(total), 0.0)

    def score(self, rows: pl.DataFrame) -> Scored:
        """Log-probabilities of each row's stored action, masked by the row's `legal`, with gradient."""
        if rows["action_ids"].null_count():
            raise InputError(f"{type(self).__name__}.score: rows without action_ids: filter such rows first")
        logits = self.logits_of_rows(rows)
        if "legal" in rows.columns:
            logits = torch.where(torch.from_numpy(self._legal_of_rows(rows)).to(logits.device), logits, ILLEGAL)
        logp = torch.log_softmax(logits, -1)
        ids = torch.from_numpy(rows["action_ids"].list.first().to_numpy().astype(np.int64)).to(logits.device)
        chosen = logp.gather(1, ids[:, None])
        entropies = -(logp.exp() * logp).sum(-1, keepdim=True)
        return Scored(chosen, entropies, torch.ones_like(chosen, dtype=torch.bool), logp[:, None])

    def _legal_of_rows(self, rows: pl.DataFrame) -> np.ndarray:
        """Which actions are legal by the column `legal`, bool[rows, actions]; all where it says nothing."""
        legal = np.ones((len(rows), self.actions), bool)
        if "legal" in rows.columns:
            listed = rows["legal"].is_not_null().to_numpy()
            legal[listed] = rows["legal"].drop_nulls().explode().to_numpy().reshape(-1, self.actions)
        return legal

    def parameters(self) -> list[torch.nn.Parameter]:
        """Trainable parameters."""
        return [p for p in self.module.parameters() if p.requires_grad]

    def state_dict(self) -> dict[str, Any]:
        """Tensors of the policy by name, live as in torch."""
        return dict(self.module.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`. Raises InputError if names or shapes do not fit."""
        try:
            self.module.load_state_dict(state)
        except (RuntimeError, KeyError) as error:
            raise InputError(f"{type(self).__name__} {self.name!r}: state does not fit: {error}") from error

    def frozen_copy(self) -> DiscretePolicy:
        """A copy whose parameters are not trained."""
        frozen = copy.deepcopy(self)
        frozen.module.requires_grad_(False)
        return frozen

    def twin(self) -> Self:
        """An independent copy that can be trained like the original; see `Team.twin`."""
        return copy.deepcopy(self)

    def save(self, path: str | Path) -> None:
        """Write the tensors to `model.safetensors` and the settings to `palaestra.json`, in a folder."""
        from safetensors.torch import save_file

        folder = Path(path)
        with atomic_write(folder / "model.safetensors") as temporary:
            save_file(
                {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}, temporary
            )
        write_json(
            folder / "palaestra.json", {"kind": self.KIND} | {name: getattr(self, name) for name in self.SETTINGS}
        )

    @classmethod
    def load(cls, path: str | Path, *, device: str | torch.device = "cpu") -> Self:
        """Load what `save` wrote. Raises InputError if the folder holds none, or one of another kind."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = Path(path)
        settings = read_object(folder / "palaestra.json")
        if settings is None or settings.get("kind") != cls.KIND:
            found = "no palaestra.json" if settings is None else f"a policy of kind {settings.get('kind')!r}"
            raise InputError(f"{cls.__name__}: {folder} holds {found}, expected what {cls.__name__}.save writes")
        try:
            made = cls(**{name: settings[name] for name in cls.SETTINGS if name in settings})
            made.load_state_dict(load_file(folder / "model.safetensors"))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{folder}: cannot be read: {type(error).__name__}: {error}") from error
        made.module.to(device)
        return made
