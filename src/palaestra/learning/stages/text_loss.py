"""How likely texts are under a base language model: a causal model of a folder, or word pairs counted in a file."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage

_START, _END = "<s>", "</s>"


class BigramModel:
    """Bigram language model of the words of `texts`, `smoothing` added to each count; `loss(text)` in nats per word.

    P(w | v) = (n(v, w) + smoothing) / (n(v) + smoothing · (number of known words + 1)); the one more stands for every
    unknown word.

    >>> model = BigramModel(["my number is 3", "my number is 4"])
    >>> model.loss("my number is 4") < model.loss("#4")
    True
    """

    def __init__(self, texts: Iterable[str], *, smoothing: float = 0.1) -> None:
        if not smoothing > 0:
            raise InputError(f"BigramModel: smoothing={smoothing} must be above 0")
        self.smoothing = smoothing
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.first: Counter[str] = Counter()
        for text in texts:
            words = [_START, *text.split(), _END]
            self.pairs.update(itertools.pairwise(words))
            self.first.update(words[:-1])
        self.size = len({word for _, word in self.pairs}) + 1

    def loss(self, text: str) -> float:
        """Mean negative log-probability of a text's words and its end, in nats."""
        words = [_START, *text.split(), _END]
        total = sum(
            math.log((self.first[one] + self.smoothing * self.size) / (self.pairs[one, other] + self.smoothing))
            for one, other in itertools.pairwise(words)
        )
        return total / (len(words) - 1)


@stage
class text_loss(Stage):
    """Stage: column `text_loss`, nats per token of `action` under `model`: a causal model's folder, or a .txt of texts.

    In nats.

    What Optima's reward [81] calls readability (arXiv 2410.08115): a language that only the team understands is
    unlikely under the model that it started from. Equal texts are scored once.

    Args:
        model: a folder or hub id of a causal model, or a `.txt` file with a text on each line, of which word pairs are
            counted (`BigramModel`).
        text: the column that is scored; where it is missing or empty, so is the loss.
        smoothing: of the word pairs.
    """

    adds = {"text_loss": "mean negative log-probability per token of the text, in nats"}

    def __init__(self, model: str, *, text: str = "action", smoothing: float = 0.1) -> None:
        self.text, self.needs = text, (text,)
        self.model: Any = None
        if model.endswith(".txt"):
            try:
                lines = Path(model).read_text().splitlines()
            except OSError as error:
                raise InputError(f"text_loss: {model} cannot be read ({error})") from error
            self.model = BigramModel([line for line in lines if line.strip()], smoothing=smoothing)
        self.folder = model

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the losses."""
        said = turns.frame[self.text].cast(pl.String)
        texts = [text for text in said.unique(maintain_order=True).to_list() if text]
        found = dict(zip(texts, self._losses(texts), strict=True))
        if found:
            context.metrics["mean"] = sum(found.values()) / len(found)
        made = said.replace_strict(found, default=None, return_dtype=pl.Float64) if found else said.is_null() * math.nan
        return turns.with_column(text_loss=made)

    def _losses(self, texts: Sequence[str]) -> list[float]:
        if isinstance(self.model, BigramModel):
            return [self.model.loss(text) for text in texts]
        import torch

        from palaestra.agents.lm import LMPolicy

        if self.model is None:
            self.model = LMPolicy.from_pretrained(self.folder)
        ids = [self.model.encode("", text) for text in texts]
        frame = pl.DataFrame({"prompt_ids": [list(one) for one, _ in ids], "action_ids": [list(one) for _, one in ids]})
        with torch.no_grad():
            scored = self.model.score(frame)
        total = scored.logprobs.masked_fill(~scored.mask, 0.0).sum(1)
        return [float(each) for each in (-total / scored.mask.sum(1)).cpu()]
