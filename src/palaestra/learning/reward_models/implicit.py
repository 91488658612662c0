"""`implicit`: what a policy that learned from preferences has come to like, the implicit reward of DPO (2305.18290)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.agents.lm import LMPolicy
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning.reward_models.data import Labels, Preferences, texts
from palaestra.learning.reward_models.network import Inputs, NetworkReward
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, settings
from palaestra.learning.reward_models.text import Said, conversation, plain, where


@REWARD_MODELS.register("implicit")
class ImplicitReward(NetworkReward):
    """Reward model β·(log π(response | prompt) - log π_ref(response | prompt)), summed over tokens (DPO's).

    Fitted to pairs, Bradley-Terry of these rewards is DPO's loss; at size train the policy with TRL or the term `dpo`
    and name both folders here.

    Args:
        policy: folder or hub id of a causal model, or an `LMPolicy`; "tiny" makes a new one for the texts it is fitted
            to. reference: likewise; default: the policy as it is at the start.
    """

    kind = "implicit"
    learns = (("bt",), ("binary",))
    lr = 1e-5
    batch = 16
    scoring = 64

    def __init__(
        self,
        policy: str | LMPolicy = "tiny",
        reference: str | LMPolicy | None = None,
        *,
        beta: float = 0.1,
        name: str = "implicit",
    ) -> None:
        if not beta > 0:
            raise InputError(f"implicit: beta={beta} must be above 0")
        self.policy = policy if isinstance(policy, LMPolicy) else None
        self.before = reference if isinstance(reference, LMPolicy) else None
        named = {"policy": policy, "reference": reference}
        folders = {key: where(each) if isinstance(each, str) else None for key, each in named.items()}
        self.options = {**folders, "beta": beta, "name": name}
        self.beta, self.name = beta, name
        if policy != "tiny":
            self._open()

    def _open(self) -> None:
        if self.policy is None:
            self.policy = LMPolicy.from_pretrained(self.options["policy"])
        if self.before is None and self.options["reference"] is not None:
            self.before = LMPolicy.from_pretrained(self.options["reference"])
        self.before = self.before or self.policy.frozen_copy()
        self.module = self.policy.model

    def prepare(self, data: Preferences | Labels, seed: int) -> None:
        """Make the tiny policy for the data's texts, unless there is one."""
        if self.module is None:
            rows = data.both()[0] if isinstance(data, Preferences) else data.rows
            said = [*texts(rows, "prompt", self.name), *texts(rows, "response", self.name)]
            self.policy = LMPolicy.tiny([text for each in said if (text := plain(each))], seed=seed)
            self._open()

    def encode(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> Inputs:
        """Token ids (prompt_ids, action_ids) of each row."""
        self.ready()
        found: list[tuple[np.ndarray, np.ndarray] | None] = []
        for prompt, response in zip(texts(rows, "prompt", self.name), texts(rows, "response", self.name), strict=True):
            found.append(None if prompt is None or response is None else self._ids(prompt, response))
        lengths = np.array([0 if each is None else len(each[0]) + len(each[1]) for each in found])
        return Inputs(found, lengths > 0, lengths)

    def _ids(self, prompt: Said, response: Said) -> tuple[np.ndarray, np.ndarray]:
        assert self.policy is not None
        if isinstance(prompt, str):
            return self.policy.encode(prompt, plain(response) or "")
        shown = Observation(plain(prompt) or "", messages=tuple(conversation(prompt, None)))
        return self.policy.encode(shown, plain(response) or "")

    def forward(self, inputs: Inputs, index: np.ndarray) -> Tensor:
        """Implicit rewards, [rows]."""
        assert self.policy is not None
        assert self.before is not None
        prompts, actions = zip(*(inputs.data[i] for i in index), strict=True)
        frame = pl.DataFrame({"prompt_ids": list(prompts), "action_ids": list(actions)})
        with torch.no_grad():
            start = self.before.score(frame)
        now = self.policy.score(frame)
        moved = (now.logprobs - start.logprobs).masked_fill(~now.mask, 0.0).sum(1)
        return self.beta * moved.float().cpu()

    def write(self, folder: Path) -> None:
        """Write both policies into the folders `policy` and `reference`."""
        self.ready()
        for name, each in (("policy", self.policy), ("reference", self.before)):
            assert each is not None
            each.save(folder / name)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> ImplicitReward:
        """Load what `save` wrote; options stand in for saved ones."""
        kept = {**settings(path), **options}
        made = cls("tiny", **{name: value for name, value in kept.items() if name in ("beta", "name")})
        made.read(Path(path))
        return made

    def read(self, folder: Path) -> None:
        """Inverse of `write`."""
        self.policy, self.before = (LMPolicy.load(folder / name) for name in ("policy", "reference"))
        self._open()
