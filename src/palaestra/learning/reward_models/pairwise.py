"""`pairwise`: a causal model asked whether the first of two is better; the reward is the probability of "yes".

One judge for RewardDance [47] (2509.08826: against a reference) and OneReward [161] (2508.21066: under a criterion).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.agents.backends.loading import positions
from palaestra.errors import InputError
from palaestra.learning.reward_models.data import Labels, Preferences, series, texts, together
from palaestra.learning.reward_models.losses import both_orders_loss
from palaestra.learning.reward_models.network import Inputs, NetworkReward
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, keep_options
from palaestra.learning.reward_models.text import check_tokenizer, loading, plain, tokens, where

PAIR = "{prompt}\n\nFirst:\n{first}\n\nSecond:\n{second}\n\n{criterion}\nIs the first better, yes or no?"
ALONE = "{prompt}\n\nAnswer:\n{first}\n\n{criterion}\nIs it good, yes or no?"


@REWARD_MODELS.register("pairwise")
class PairwiseTokenReward(NetworkReward):
    """Pairwise reward model: P(yes | first, second, question) of a causal LM's next token, learned in both orders.

    score with a reference: the row first, the reference second, and the other way round, the mean of P(yes | row, ref)
    and 1 - P(yes | ref, row); `orders` gives both. Without a reference: `alone` is asked, which labels teach. The
    condition's `criterion` is put into the question. Probabilities of the other words are left out of P.

    Args:
        source: folder or hub id of a causal model; "tiny" makes a new one for the texts it is fitted to.
    """

    kind = "pairwise"
    learns = (("token",), ("binary",))
    lr = 1e-4
    batch = 16
    scoring = 64

    def __init__(
        self,
        source: str = "tiny",
        *,
        question: str = PAIR,
        alone: str = ALONE,
        yes: str = "yes",
        no: str = "no",
        max_length: int = 2048,
        name: str = "pairwise",
    ) -> None:
        source = where(source)
        keep_options(self, locals())
        self.source, self.question, self.alone, self.words = source, question, alone, (yes, no)
        self.max_length, self.name = max_length, name
        self.tokenizer: Any = None

    def prepare(self, data: Preferences | Labels, seed: int) -> None:
        """Load or make the transformer, unless it is there."""
        if self.module is not None:
            return
        if self.source != "tiny":
            self._open(self.source)
            return
        from palaestra.agents.tiny import build

        rows, _, condition = data.both() if isinstance(data, Preferences) else (data.rows, None, data.condition)
        corpus = [*self.words] * 10 + self._texts(rows, rows, condition)
        self.module, self.tokenizer = build([each for each in corpus if each], seed=seed)
        self._answers()

    def _open(self, path: str | Path) -> None:
        with loading(path):
            from transformers import AutoModelForCausalLM, AutoTokenizer

            self.tokenizer = check_tokenizer(AutoTokenizer.from_pretrained(path), path)
            self.module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._answers()

    def _answers(self) -> None:
        first = [self.tokenizer(word, add_special_tokens=False)["input_ids"][:1] for word in self.words]
        if first[0] == first[1] or not all(first):
            raise InputError(f"{self.name}: {self.words[0]!r} and {self.words[1]!r} begin with the same token")
        self.answers = torch.tensor([each[0] for each in first])

    # -- reading ------------------------------------------------------------------------------------------------------

    def encode(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> Inputs:
        """Token ids of the question about each row; unknown where a text is missing."""
        limit = min(self.max_length, positions(self.ready().config) or self.max_length)
        chat = bool(self.tokenizer.chat_template)
        found: list[np.ndarray | None] = []
        for text in self._texts(rows, reference, condition):
            if text is not None and chat:
                talk = [{"role": "user", "content": text}]
                text = self.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
            found.append(None if text is None else tokens(self.tokenizer, text, limit, special=not chat, end=False))
        return Inputs.of_tokens(found)

    def _texts(
        self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None
    ) -> list[str | None]:
        bare = not {"prompt", "observation"} & set(rows.columns)
        columns = [[""] * len(rows) if bare else texts(rows, "prompt", self.name), texts(rows, "response", self.name)]
        columns += [texts(reference, "response", self.name)] if reference is not None else [[""] * len(rows)]
        columns += [texts(condition, "criterion", self.name)] if condition is not None else [[""] * len(rows)]
        asked, names = self.alone if reference is None else self.question, ("prompt", "first", "second", "criterion")
        return [
            None
            if any(each is None for each in said)
            else asked.format(**{name: plain(each) for name, each in zip(names, said, strict=True)})
            for said in zip(*columns, strict=True)
        ]

    def forward(self, inputs: Inputs, index: np.ndarray) -> Tensor:
        """Difference of logits, yes - no, [rows]."""
        module: Any = self.ready()
        ids, mask = inputs.padded(index)
        device = next(module.parameters()).device
        hidden = module.base_model(input_ids=ids.to(device), attention_mask=mask.long().to(device)).last_hidden_state
        last = hidden[torch.arange(len(ids), device=device), mask.sum(1).to(device) - 1]
        logits: Tensor = module.get_output_embeddings()(last)[:, self.answers.to(device)].float().cpu()
        return logits[:, 0] - logits[:, 1]

    def both_sides(self, pairs: Preferences) -> Inputs:
        """Encoded pairs in both orders: the chosen one first, then the rejected one first."""
        rows, _, condition = pairs.both()
        other = pl.concat([pairs.rejected, pairs.chosen], how="diagonal_relaxed")
        return self.encode(rows, other, condition)

    def pair_loss(self, chosen: Tensor, rejected: Tensor, **given: Any) -> Tensor:
        """Token loss of both orders of each pair."""
        for name in ("margin", "centre"):
            if name in given:
                raise InputError(f"{self.name}: the loss of a token has no {name}")
        return both_orders_loss(F.logsigmoid(chosen), F.logsigmoid(-rejected), **given)

    # -- scoring ------------------------------------------------------------------------------------------------------

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Scores: with a reference the mean over both orders of P(row is better), else P(yes) about the row alone."""
        if reference is not None:
            first, second = self.orders(rows, reference, condition)
            return ((first + 1 - second) / 2).alias(self.name)
        return self._asked(rows, None, condition)

    def orders(
        self, rows: pl.DataFrame, reference: pl.DataFrame, condition: pl.DataFrame | None = None
    ) -> tuple[pl.Series, pl.Series]:
        """P(yes | row, reference) and P(yes | reference, row); they add up to 1 if the order does not matter."""
        prompts = [name for name in ("prompt", "observation") if name in rows.columns and name not in reference.columns]
        turned = reference.with_columns(rows[name] for name in prompts)
        return self._asked(rows, reference, condition), self._asked(turned, rows, condition)

    def _asked(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> pl.Series:
        together(rows, reference=reference, condition=condition)
        inputs = self.encode(rows, reference, condition)
        at = np.flatnonzero(inputs.known)
        with torch.no_grad():
            found = torch.sigmoid(self.outputs(inputs, at, self.scoring).double()).numpy()
        return series(self.name, found, inputs.known)

    def agrees(self, pairs: Preferences) -> np.ndarray:
        """Agreement per pair: 1 where the chosen side is the likelier one in both orders together, ½ or 0 else."""
        p = self.score(pairs.chosen, reference=pairs.rejected, condition=pairs.condition).to_numpy()
        return np.where(np.isnan(p), np.nan, (1 + np.sign(p - 0.5)) / 2)

    # -- files --------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write model and tokenizer as transformers does."""
        module: Any = self.ready()
        with loading(folder):
            module.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def read(self, folder: Path) -> None:
        """Inverse of `write`."""
        self._open(folder)
