"""Windows: what is cut goes on where it stopped, what is over makes room, and evaluations play whole episodes."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import Team, random_legal
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.play.plan import Plan
from palaestra.play.windows import Windows

ENV, TEAM = make("native/corridor", cells=3, horizon=10), Team(walker=random_legal())


def test_an_episode_goes_on_in_its_slot_and_comes_whole_when_it_is_over() -> None:
    executor, whole = Windows(4), 0
    for iteration in range(1, 7):
        frame = executor.play(ENV, TEAM, Plan(groups=1, group_size=5, iteration=iteration)).frame
        assert sorted(set(frame["episode"])) == list(range(5))
        assert set(frame["iteration"]) == {iteration}
        assert frame.filter(~pl.col("past")).group_by("episode").len()["len"].max() <= 4  # type: ignore[operator]
        for rows in frame.partition_by("episode", maintain_order=True):
            if not rows["truncated"][-1]:
                assert rows["turn"].to_list() == list(range(len(rows)))
                assert rows["truncated"].sum() == 0
                assert rows["reward"].sum() == float(rows["success"][-1])
                whole += len(rows) > 4
    assert whole > 1


def test_evaluations_play_whole_episodes() -> None:
    executor = Windows(4)
    executor.play(ENV, TEAM, Plan(groups=4, iteration=1))
    held = dict(executor.held)
    assert held
    frame = executor.play(ENV, TEAM, Plan(groups=8, stream="eval")).frame
    assert frame["turn"].max() >= 5  # type: ignore[operator]
    assert not frame["truncated"].any()
    assert executor.held == held
    before_training = executor.play(ENV, TEAM, Plan(groups=8)).frame  # a script's, of which demonstrations are made
    assert not before_training["truncated"].any()
    assert executor.held == held, "training would go on with what others began"
    with pytest.raises(InputError, match="turns=0, expected at least 1"):
        Windows(0)
