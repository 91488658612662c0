"""Worlds made from descriptions."""

from __future__ import annotations

import numpy as np

from palaestra.envs.worlds.generated import GEM, GOAL, SIGNS, Description, Level, Play, draw, generate, repair, validate


def test_levels_follow_from_their_seed_and_description() -> None:
    world = Description("w", side=7, lava=2, gems=3)
    one, other, third = draw(world, 1), draw(world, 1), draw(world, 2)
    assert (one.grid == other.grid).all()
    assert not (one.grid == third.grid).all()
    assert (one.grid == GOAL).sum() == 1
    assert (one.grid == GEM).sum() == 3


def test_gems_are_paid_once_and_the_goal_ends_it() -> None:
    game = Play(Level(np.array([[0, 4, 2]]), (0, 0), 9), pays=0.25)
    assert game.step(2) == (0.0, 1), "off the grid is a wall"
    assert game.step(3) == (0.25, 4)
    assert game.step(2) == (0.0, 0)
    assert game.step(3) == (0.0, 0)
    assert game.step(3) == (1.0, 2)
    assert game.over


def test_what_is_far_is_hidden() -> None:
    game = Play(Level(np.array([[0, 0, 2]]), (0, 0), 9))
    assert "".join(game.view(SIGNS, radius=1)[0]) == "A.?"


def test_the_largest_return_is_exact() -> None:
    for seed in range(20):
        level = draw(Description("w", side=4, gems=2, walls=0.2, horizon=6), seed)
        best, states = 0.0, {(level.start, (level.grid == GEM).tobytes(), 0.0, False)}
        for _ in range(level.horizon):
            after = set()
            for at, gems, paid, over in states:
                for action in () if over else range(4):
                    game = Play(level)
                    game.at = at
                    game.grid[(level.grid == GEM) & ~np.frombuffer(gems, bool).reshape(level.grid.shape)] = 0
                    reward, thing = game.step(action)
                    after.add((game.at, (game.grid == GEM).tobytes(), paid + reward, thing in (2, 3)))
            states = after
            best = max([best, *(paid for _, _, paid, _ in states)])
        assert validate(level).maximum == best


def test_all_levels_are_solvable_after_repair() -> None:
    made = generate(Description("w", walls=0.6, horizon=3), range(20))
    assert made.repaired > 0
    assert made.dropped == 0
    for level, _ in made.levels:
        assert validate(level).valid
        assert repair(level).horizon >= level.horizon
