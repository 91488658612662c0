"""Losses of texts under a base language model."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import LMPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.text_loss import BigramModel, text_loss


def context() -> Context:
    return Context(np.random.default_rng(0), 1, env=None, team=None, executor=None)  # type: ignore[arg-type]


def test_pairs_of_words_are_counted_with_smoothing():
    model = BigramModel(["a b", "a c"], smoothing=1.0)
    assert model.size == 5, "a, b, c, the end, and what is unknown"
    expected = -(math.log(3 / 7) + math.log(2 / 7) + math.log(2 / 6)) / 3
    assert model.loss("a b") == pytest.approx(expected)
    assert model.loss("x") > model.loss("a")
    with pytest.raises(InputError, match="above 0"):
        BigramModel(["a"], smoothing=0)


def test_a_row_has_the_loss_of_its_text(tmp_path):
    (tmp_path / "read.txt").write_text("a b\n\na c\n")
    found = text_loss(str(tmp_path / "read.txt"), text="said")(Turns({"said": ["a b", None, "x", "a b"]}), context())
    base = BigramModel(["a b", "a c"])
    assert found["text_loss"].to_list() == [base.loss("a b"), None, base.loss("x"), base.loss("a b")]
    nothing = text_loss(str(tmp_path / "read.txt"), text="said")(Turns({"said": [None, None]}), context())
    assert nothing.frame["text_loss"].is_nan().sum() + nothing.frame["text_loss"].null_count() == 2
    with pytest.raises(InputError, match="cannot be read"):
        text_loss(str(tmp_path / "missing.txt"))


def test_a_causal_model_of_a_folder_gives_its_mean_token_loss(tmp_path):
    policy = LMPolicy.tiny(["my number is 3", "we are done"], seed=0)
    policy.save(tmp_path / "model")
    found = text_loss(str(tmp_path / "model"))(Turns({"action": ["my number is 3", "we are done"]}), context())
    prompt, action = policy.encode("", "we are done")
    frame = pl.DataFrame({"prompt_ids": [list(prompt)], "action_ids": [list(action)]})
    with torch.no_grad():
        expected = -float(policy.score(frame).logprobs.mean())
    assert found["text_loss"][1] == pytest.approx(expected, rel=1e-5)
