"""`sequence`: a sequence classifier of transformers as a reward model, which transformers and TRL load as it is."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.agents.backends.loading import positions
from palaestra.errors import InputError
from palaestra.learning.reward_models.data import Labels, Preferences, texts
from palaestra.learning.reward_models.network import Inputs, NetworkReward
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, keep_options
from palaestra.learning.reward_models.text import Said, check_tokenizer, conversation, loading, plain, tokens, where

PLAIN = "{prompt}{response}"
FIELDS = ("prompt", "response", "reference", "criterion")


@REWARD_MODELS.register("sequence")
class SequenceReward(NetworkReward):
    """Transformer reward model: reads prompt and response, outputs one number or several (`heads`).

    As TRL's RewardTrainer reads them: prompt and response in a row and the end token, or the chat template if they are
    messages. A template with {reference} (the `response` of the reference's rows) or {criterion} (of the condition's)
    makes it read these, too. What is longer than `max_length` tokens loses its beginning.

    Args:
        source: folder or hub id, a causal model gets a new head; "tiny" a new transformer with a tokenizer for the
            texts that it is fitted to.
    """

    kind = "sequence"
    lr = 1e-4
    batch = 16
    scoring = 64

    def __init__(
        self,
        source: str = "tiny",
        *,
        template: str = PLAIN,
        heads: int = 1,
        max_length: int = 1024,
        name: str = "sequence",
    ) -> None:
        source = where(source)
        keep_options(self, locals())
        self.wanted = [field for _, field, _, _ in string.Formatter().parse(template) if field]
        if unknown := [field for field in self.wanted if field not in FIELDS]:
            raise InputError(f"sequence: template has {{{unknown[0]}}}, known are {', '.join(FIELDS)}")
        if heads < 1 or max_length < 1:
            raise InputError(f"sequence: heads={heads} and max_length={max_length} must be at least 1")
        self.source, self.template, self.heads, self.max_length, self.name = source, template, heads, max_length, name
        self.tokenizer: Any = None

    def prepare(self, data: Preferences | Labels, seed: int) -> None:
        """Load or make the transformer, unless it is there."""
        if self.module is not None:
            return
        if self.heads > 1 and isinstance(data, Preferences):
            raise InputError(f"{self.name}: heads={self.heads} learn from labels, pairs teach one number")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # of a new head
            if self.source != "tiny":
                self._open(self.source)
                return
            from transformers import LlamaForSequenceClassification

            from palaestra.agents.tiny import build

            rows = data.both() if isinstance(data, Preferences) else (data.rows, data.reference, data.condition)
            parts = self._parts(*rows)
            chat = any(not isinstance(said, str) for said in [*parts["prompt"], *parts["response"]] if said is not None)
            corpus = [text for values in parts.values() for each in values if (text := plain(each))]
            model, self.tokenizer = build(corpus, seed=seed, chat=chat)
            config = model.config
            config.num_labels = self.heads
            self.module = LlamaForSequenceClassification(config).eval()

    def _open(self, path: str | Path) -> None:
        with loading(path):
            from transformers import AutoModelForSequenceClassification, AutoTokenizer

            self.tokenizer = check_tokenizer(AutoTokenizer.from_pretrained(path), path)
            more = {"num_labels": self.heads} if self.heads > 1 or not _is_classifier(path) else {}
            model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32, **more)
        model.config.pad_token_id = self.tokenizer.pad_token_id
        self.heads = model.config.num_labels
        self.module = model.eval()

    # -- reading ------------------------------------------------------------------------------------------------------

    def encode(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> Inputs:
        """Token ids of each row; unknown where a text that the template names is missing."""
        self.ready()
        parts = self._parts(rows, reference, condition)
        known: dict[str, np.ndarray] = {}
        found: list[np.ndarray | None] = []
        for values in zip(*parts.values(), strict=True):
            said = dict(zip(parts, values, strict=True))
            if any(each is None for each in said.values()):
                found.append(None)
                continue
            key = repr(values)
            if key not in known:
                known[key] = self._tokens(said)
            found.append(known[key])
        return Inputs.of_tokens(found)

    def forward(self, inputs: Inputs, index: np.ndarray) -> Tensor:
        """The classifier's logits: one number per row, or `heads`."""
        module = self.ready()
        ids, mask = inputs.padded(index)
        ids = ids.masked_fill(~mask, self.tokenizer.pad_token_id)
        device = next(module.parameters()).device
        logits: Tensor = module(input_ids=ids.to(device), attention_mask=mask.long().to(device)).logits.float().cpu()
        return logits[:, 0] if self.heads == 1 else logits

    def _parts(
        self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None
    ) -> dict[str, list[Said]]:
        """Texts for the template by name; a table without a prompt has the whole conversation in the response."""
        found: dict[str, list[Said]] = {}
        for field in dict.fromkeys(("prompt", "response", *self.wanted)):
            table, column = {"reference": (reference, "response"), "criterion": (condition, "criterion")}.get(
                field, (rows, field)
            )
            if table is None:
                what = "a reference" if field == "reference" else "a condition"
                raise InputError(f"{self.name}: its template has {{{field}}}: {what} is needed, a row for each row")
            if field == "prompt" and not {"prompt", "observation"} & set(rows.columns):
                found[field] = [""] * len(rows)
            else:
                found[field] = texts(table, column, self.name)
        return found

    def _tokens(self, said: dict[str, Said]) -> np.ndarray:
        messages = not (isinstance(said["prompt"], str) and isinstance(said["response"], str))
        if messages and self.template == PLAIN:
            if not self.tokenizer.chat_template:
                raise InputError(f"{self.name}: rows are messages, but the tokenizer has no chat template")
            talk = conversation(said["prompt"], said["response"])
            text = self.tokenizer.apply_chat_template(talk, tokenize=False)
            return tokens(self.tokenizer, text, self.room, special=False, end=False)
        text = self.template.format(**{name: plain(each) for name, each in said.items()})
        return tokens(self.tokenizer, text, self.room, special=True, end=True)

    @property
    def room(self) -> int:
        """Most tokens of a row."""
        return min(self.max_length, positions(self.ready().config) or self.max_length)

    # -- files --------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write model and tokenizer as transformers does."""
        with loading(folder):
            self.ready().save_pretrained(folder)  # type: ignore[operator]
            self.tokenizer.save_pretrained(folder)

    def read(self, folder: Path) -> None:
        """Inverse of `write`; any folder of a sequence classifier will do."""
        self._open(folder)


def _is_classifier(path: str | Path) -> bool:
    from transformers import AutoConfig

    return any("SequenceClassification" in name for name in AutoConfig.from_pretrained(path).architectures or ())
