"""Tokens per second and MFU of play and learning."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from palaestra.agents import LMPolicy, TabularPolicy
from palaestra.learning import speed as module
from palaestra.learning.speed import speed

TURNS = pl.DataFrame(
    {
        "group": [0, 0, 0], "episode": [0, 0, 1], "agent": ["a"] * 3, "policy": ["lm", "lm", "lm"], "error": [None] * 3,
        "tokens_in": [10, 16, 10], "tokens_out": [5, 4, 5],
    }
)  # fmt: skip


def of(policies: dict[str, Any], **options: Any) -> dict[str, dict[str, float | None]]:
    return speed(TURNS, policies, **{"play": 2.0, "learn": 5.0, "rows": "turn", "epochs": 1} | options)


def test_turns_are_read_one_by_one_and_conversations_once() -> None:
    policies = {"lm": LMPolicy.tiny(name="lm")}
    found = of(policies)
    assert found["play"] == {"seconds": 2.0, "tokens_per_second": 25.0, "mfu": None}
    assert found["learn"] == {"seconds": 5.0, "tokens_per_second": 10.0, "mfu": None}
    assert of(policies, rows="conversation", epochs=2)["learn"]["tokens_per_second"] == 2 * (20 + 15) / 5
    assert of(policies, play=None)["play"]["tokens_per_second"] is None


def test_the_share_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = LMPolicy.tiny(name="lm")
    monkeypatch.setattr(module, "_peak", lambda models: 1e9)
    sizes = [each.numel() for each in policy.model.parameters()]
    tied = policy.model.config.tie_word_embeddings
    size = sum(sizes) - (0 if tied else policy.model.get_input_embeddings().weight.numel())
    found = of({"lm": policy})
    assert found["play"]["mfu"] == pytest.approx(2 * size * 50 / 2.0 / 1e9)
    assert found["learn"]["mfu"] == pytest.approx(6 * size * 50 / 5.0 / 1e9)
    for parameter in policy.model.parameters():
        parameter.requires_grad_(False)
    assert of({"lm": policy})["learn"]["mfu"] == pytest.approx(4 * size * 50 / 5.0 / 1e9)


def test_other_policies_have_no_tokens() -> None:
    assert of({"lm": TabularPolicy(4, name="lm")}) == {}
    assert of({}) == {}
