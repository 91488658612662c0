"""Listwise judges: all answers to a task at once, in windows where they are many, from a recipe and an endpoint."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.errors import InputError
from palaestra.judges import Listed
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.listed import listed, read_order
from palaestra.judges.scorers import build
from palaestra.testing.endpoint import StubEndpoint


def best_first(text: str) -> str:
    """Orders answers by the number that stands in each."""
    shown = [int(each) for each in re.findall(r"Answer \d+:\n=+ \d+ =+\nworth (\d+)\n", text)]
    places = np.argsort([-each for each in shown], kind="stable") + 1
    return f"Compared.\nORDER: {' > '.join(map(str, places))}"


def rows(*worth: int, task: str = "t") -> pl.DataFrame:
    return pl.DataFrame({"prompt": [task] * len(worth), "response": [f"worth {each}" for each in worth]})


def judge(say: Any = best_first, **options: Any) -> Listed:
    return listed("Which is worth more?", policy=ScriptedPolicy(lambda r: say(r.observation.text), name="j"), **options)


def test_the_score_is_the_place_among_the_answers_to_a_task() -> None:
    table = pl.concat([rows(3, 9, 5), rows(1, 2, task="u"), rows(7, task="alone")])
    assert judge().score(table).to_list() == [0.0, 1.0, 0.5, 0.0, 1.0, 0.5]


def test_windows_slide_over_a_long_list() -> None:
    worth = np.random.default_rng(0).permutation(12)
    found = judge(window=6, step=2).score(rows(*worth.tolist()))
    assert int(found.arg_max() or 0) == int(worth.argmax())
    assert found.null_count() == 0


@pytest.mark.parametrize("said", ["ORDER: 1 > 1 > 2", "ORDER: 1 > 2", "I like 2", "ORDER: 1 > 2 > 4"])
def test_an_order_that_cannot_be_read_is_no_score(said: str) -> None:
    assert judge(lambda text: said).score(rows(1, 2, 3)).to_list() == [None] * 3
    assert read_order(said, 3) is None


def test_a_window_that_cannot_be_read_leaves_the_list_without_scores() -> None:
    """Else the order of the rows would be the score of those that were in that window only."""
    for at in ("worth 5", "worth 0"):  # in the first window, in the last
        made = judge(lambda text, at=at: "?" if at in text else best_first(text), window=4, step=2)
        assert made.score(rows(0, 1, 2, 3, 4, 5)).to_list() == [None] * 6


def test_a_reference_is_shown() -> None:
    seen: list[str] = []
    judge(lambda text: seen.append(text) or "ORDER: 2 > 1").score(
        rows(1, 2), reference=pl.DataFrame({"response": ["the gold", "the gold"]})
    )
    assert "known to be right" in seen[0]
    assert seen[0].count("the gold") == 1


def test_an_endpoint_orders_and_a_recipe_names_its_policy() -> None:
    with StubEndpoint(lambda body: best_first(body["messages"][-1]["content"])) as stub:
        made = listed(model="m", base_url=stub.url, api_key_env=None)
        assert made.score(rows(3, 9)).to_list() == [0.0, 1.0]
    named = build('listed("Which is shorter?", policy="judge")')
    assert named.asks == ("judge",)
    with pytest.raises(InputError, match="policy 'judge' is not here"):
        named.score(rows(1, 2))
    named.bind(lambda name: PolicyAsker(ScriptedPolicy(lambda r: best_first(r.observation.text), name=name)))
    assert named.score(rows(1, 2)).to_list() == [0.0, 1.0]
