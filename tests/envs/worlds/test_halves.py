"""Two halves of a maze."""

from __future__ import annotations

import functools

import pytest

from palaestra.envs.worlds.halves import MOVES, Halves, distances
from palaestra.errors import InputError
from palaestra.testing.env import check_env


def way(env: Halves) -> list[str]:
    """A shortest way."""
    state, found = env.state, []
    cell = state.cell
    while cell != state.goal:
        near = {word: (cell[0] + down, cell[1] + right) for word, (down, right) in MOVES.items()}
        word = next(word for word, at in near.items() if state.far.get(at, 99) == state.far[cell] - 1)
        found.append(word)
        cell = near[word]
    return found


@pytest.mark.parametrize("options", [{}, {"talk": False}, {"condition": "solo"}, {"condition": "solo_halves"}])
def test_it_keeps_the_protocol(options):
    check_env(functools.partial(Halves, **options))


@pytest.mark.parametrize("seed", range(8))
def test_every_cell_is_hidden_from_one_of_them_but_start_and_goal(seed):
    env = Halves()
    seen = env.reset(seed)
    a, b = (seen[agent].text.split(" map ")[1].replace("/", "") for agent in "ab")
    whole, ends = "".join(env.state.rows), {env.state.cell, env.state.goal}
    for at, (one, other, sign) in enumerate(zip(a, b, whole, strict=True)):
        shown = {one, other} - {"?"}
        assert shown == {sign}
        assert ("?" in (one, other)) != (divmod(at, 6) in ends)
    assert env.state.far[env.state.cell] >= 4
    assert distances(env.state.rows, env.state.goal) == env.state.far


def test_a_move_counts_if_both_make_it_and_a_wall_ends_it():
    env = Halves()
    env.reset(3)
    steps = way(env)
    start = env.state.cell
    other = next(word for word in MOVES if word != steps[0])
    result = env.step({"a": f"{steps[0]} I see a wall", "b": other})
    assert not result.info["agreed"]
    assert env.state.cell == start
    assert result.observations["b"].text.endswith(" | I see a wall")
    assert " | " not in result.observations["a"].text
    for word in steps:
        result = env.step({"a": word, "b": word})
    assert result.terminated
    assert result.info["success"]
    assert result.rewards == {"a": 1.0, "b": 1.0}
    env.reset(3)
    for _ in range(6):
        if not env.step({"a": "up", "b": "up"}).observations:
            break
    assert env.state.over  # out of the maze, or into a wall
    env.reset(3)
    assert not env.step({"a": "fly", "b": "fly"}).info["valid"]["a"]


@pytest.mark.parametrize(("horizon", "reached"), [("shortest", True), ("one less", False), (3, False)])
def test_the_last_step_says_whether_the_goal_was_reached_and_no_other_does(horizon, reached):
    env = Halves()
    env.reset(3)
    steps = way(env)
    last = horizon if isinstance(horizon, int) else len(steps) - (horizon == "one less")
    env = Halves(horizon=last)
    env.reset(3)
    played = [env.step({"a": word, "b": word}) for word in steps[:last]]
    assert [each.info.get("success") for each in played] == [None] * (last - 1) + [reached]
    assert [bool(each.observations) for each in played] == [True] * (last - 1) + [False]
    assert [each.info["distance"] for each in played] == [len(steps) - n - 1 for n in range(last)]
    assert played[-1].rewards == {"a": float(reached), "b": float(reached)}


def test_options_are_checked():
    with pytest.raises(InputError, match="did you mean 'joint'"):
        Halves(condition="jont")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="least=20"):
        Halves(least=20)


def test_what_one_thinks_the_other_does_not_read():
    env = Halves()
    env.reset(0)
    seen = env.step(dict.fromkeys("ab", "<think>A secret: left.</think>wait for me")).observations["b"]
    assert seen.text.endswith("| for me")


def test_the_nearest_goal_is_as_far_as_asked():
    env, far = Halves(density=0.0, least=4), []
    for seed in range(40):
        env.reset(seed)
        far.append(env.state.far[env.state.cell])
    assert min(far) == 4
