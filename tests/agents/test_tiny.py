from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents import LMPolicy
from palaestra.agents.tiny import build, tokenizer
from palaestra.errors import InputError

CORPUS = ["Your card is K. Bet or pass?", "Your card is Q. Bet or pass?", "bet", "pass", "12 + 345 ="]
TOKENIZER = tokenizer(CORPUS)


@given(st.text() | st.sampled_from(["<|end|>", "a <|pad|> b", "\n\n \t x", "١٢٣", "½²", "e\u0301", "👩\u200d👧"]))
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == text
    assert not {TOKENIZER.eos_token_id, TOKENIZER.pad_token_id, TOKENIZER.bos_token_id} & set(ids)


def test_words_of_the_corpus_are_whole_and_digits_are_single() -> None:
    tokens = TOKENIZER.tokenize("Your card is K. 12 + 345")
    assert [TOKENIZER.convert_tokens_to_string([t]) for t in tokens] == [
        "Your", " card", " is", " K", ".", " ", "1", "2", " +", " ", "3", "4", "5",
    ]  # fmt: skip


def test_a_prompt_ends_with_the_mark_after_which_the_answer_comes() -> None:
    assert TOKENIZER("bet")["input_ids"][-1] == TOKENIZER.bos_token_id
    assert TOKENIZER("")["input_ids"] == [TOKENIZER.bos_token_id]


def test_same_corpus_and_seed_give_the_same_model_and_leave_the_global_generators_alone() -> None:
    before = (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist())  # noqa: NPY002
    one, two, other = build(CORPUS, seed=3), build(iter(CORPUS), seed=3), build(CORPUS, seed=4)
    assert (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()) == before  # noqa: NPY002
    assert one[1].get_vocab() == two[1].get_vocab()
    for (name, a), b in zip(one[0].named_parameters(), two[0].parameters(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(one[0].lm_head.weight, other[0].lm_head.weight)


def test_sizes() -> None:
    corpus = [f"word{chr(97 + i)}{chr(97 + j)} " for i in range(26) for j in range(26)]
    model, tokens = build(corpus, hidden=32, layers=1, heads=2, vocabulary=300)
    assert len(tokens) == model.config.vocab_size == 300
    assert sum(p.numel() for p in LMPolicy.tiny().parameters()) <= 1_000_000
    for options in ({"hidden": 256, "layers": 8}, {"hidden": 60, "heads": 8}, {"vocabulary": 100}):
        with pytest.raises(InputError, match="tiny"):
            build(CORPUS, **options)
