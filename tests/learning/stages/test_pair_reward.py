"""A reward model of pairs of turns: what it ranks, whose rows it scores, and that a stopped run goes on."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import STAGES, Context
from palaestra.learning.stages.pair_reward import pair_reward


def context(seed: int = 0) -> Context:
    return Context(np.random.default_rng(seed), 1, None, None, None)  # type: ignore[arg-type]


def table(size: int = 24) -> Turns:
    """Two prompts, each with a good and a bad answer; the rows of somebody else are rated as well."""
    rows = range(size)
    prompt, answer = [row % 2 for row in rows], [row // 2 % 2 for row in rows]
    return Turns({
        "group": [0 for _ in rows], "episode": list(rows), "turn": [0 for _ in rows],
        "agent": ["critic" if row < size - 4 else "actor" for row in rows], "state": prompt,
        "observation": [f"prompt {each}" for each in prompt], "action": [f"say {each}" for each in answer],
        "paid": [float(p == a) for p, a in zip(prompt, answer, strict=True)],
    })  # fmt: skip


def test_right_answers_are_worth_more_and_others_have_no_reward() -> None:
    stage, told = pair_reward("critic", "paid", steps=150), context()
    frame = stage(table(), told).frame
    assert told.metrics["pairs"] == 2 * 5 * 5
    assert frame["pair_reward"][-4:].is_nan().all() or frame["pair_reward"][-4:].is_null().all()
    own = frame[:-4]
    assert own.filter(own["paid"] == 1)["pair_reward"].min() > own.filter(own["paid"] == 0)["pair_reward"].max()  # type: ignore[operator]
    assert stage(table(), told) is not None
    assert told.metrics["agreement"] == 1.0


def test_a_stopped_run_goes_on_and_memory_is_bounded() -> None:
    whole, again = (pair_reward("critic", "paid", memory=30) for _ in range(2))
    whole(table(), context())
    assert whole.state_dict()["past"].shape[0] == 30
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    one, other = (each(table(), context(1)).frame["pair_reward"][:-4].to_numpy() for each in (whole, again))
    np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("text", ["pair_reward('critic', 'paid')", "preference_reward('critic', \"col('paid')\")"])
def test_a_state_that_waits_for_its_next_use_is_stored_again(text: str) -> None:
    """A run that is resumed and saved while another phase runs keeps what the stage had learned."""
    whole, waiting, again = (STAGES.build(text) for _ in range(3))
    whole(table(), context())
    waiting.load_state_dict(copy.deepcopy(whole.state_dict()))
    again.load_state_dict(copy.deepcopy(waiting.state_dict()))
    (name,) = whole.adds
    one, other = (each(table(), context(1)).frame[name][:-4].to_numpy() for each in (whole, again))
    np.testing.assert_allclose(one, other)


def test_nothing_to_compare_and_what_is_refused() -> None:
    stage, told = pair_reward("critic", "paid"), context()
    equal = Turns(table().frame.with_columns(paid=1.0))
    assert np.isfinite(stage(equal, told).frame["pair_reward"][:-4].to_numpy()).all()
    assert told.metrics["pairs"] == 0
    assert len(pair_reward("nobody", "paid")(table(), told)) == 24
    with pytest.raises(InputError, match="memory=0"):
        pair_reward("critic", "paid", memory=0)
