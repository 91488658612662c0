"""Tests of the grid with a goal in every observation."""

from __future__ import annotations

import pytest

from palaestra.envs.worlds import GoalGrid
from palaestra.errors import InputError


def cells(text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Goal and place of an observation."""
    goal, place = text.removeprefix("go to ").split(", at ")
    return tuple(map(int, goal.split(","))), tuple(map(int, place.split(",")))  # type: ignore[return-value]


def way(text: str) -> str:
    """A step towards the goal."""
    goal, place = cells(text)
    if goal[0] != place[0]:
        return "east" if goal[0] > place[0] else "west"
    return "north" if goal[1] > place[1] else "south"


@pytest.mark.parametrize("seed", range(20))
def test_the_shortest_way_ends_at_the_goal_and_is_paid_there(seed: int) -> None:
    env = GoalGrid(side=4)
    seen = env.reset(seed)
    goal, place = cells(seen["walker"].text)
    assert env.task == f"go to {goal[0]},{goal[1]}"
    paid, steps = 0.0, 0
    while seen:
        result = env.step({"walker": way(seen["walker"].text)})
        seen, paid, steps = result.observations, paid + result.rewards["walker"], steps + 1
    assert steps == abs(goal[0] - place[0]) + abs(goal[1] - place[1]) > 0
    assert paid == 1.0
    assert result.info["success"]
    assert result.info["reached"] == result.info["goal"] == f"{goal[0]},{goal[1]}"


def test_walls_hold_and_the_horizon_ends_it() -> None:
    env = GoalGrid(side=2, horizon=3, ends=False)
    seen = env.reset(0)
    for step in range(3):
        assert seen
        result = env.step({"walker": "east"})
        seen = result.observations
        assert result.info["reached"].startswith("1,") or step == 0
    assert not seen
    with pytest.raises(InputError, match="side=1"):
        GoalGrid(side=1)
