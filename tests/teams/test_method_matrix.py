"""Learning methods by generated worlds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from palaestra.envs.worlds.generated import HIDDEN, SELF, SIGNS, Description, Level
from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.teams.method_matrix import (
    METHODS,
    Episode,
    GridAgent,
    Method,
    description_from_dict,
    gaps,
    improved,
    learn,
    matrix,
    play,
    selected,
)

RNG = np.random.default_rng(0)


def seen(*rows: str) -> np.ndarray:
    return np.array([list(row) for row in rows])


def test_the_agent_goes_to_what_is_worth_most_and_around_what_is_bad() -> None:
    agent = GridAgent({"G": 1.0, "g": 0.5, "L": -1.0}, reach=9)
    assert agent.act(seen("gAG"), set(), RNG) == 3
    assert agent.act(seen("ALG", "..."), set(), RNG) == 1
    assert agent.act(seen("A.G", "..."), {(0, 1)}, RNG) == 1
    assert GridAgent({"G": 1.0}, reach=1).act(seen("A.G"), set(), RNG) == 3, "it sees no farther, and has one way to go"
    assert {GridAgent({"L": -1.0}).act(seen("LA."), set(), RNG) for _ in range(9)} == {3}


def test_an_episode_is_scored_by_the_largest_return() -> None:
    level = Level(np.array([[0, 0, 2]]), (0, 0), 9)
    found = play(GridAgent({"G": 1.0}, reach=9), Description("w"), level, 2.0, RNG)
    assert found == (0.5, [(".", 0.0), ("G", 1.0)], "G")


def test_pareto_keeps_who_is_best_somewhere() -> None:
    scores = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
    assert {selected(scores, "pareto", RNG) for _ in range(40)} == {0, 1}


def test_code_reaches_farther_where_play_failed_or_as_far_as_the_instruction_says() -> None:
    agent, world = GridAgent({}, reach=3), Description("w", side=4)
    won, lost = Episode(1.0, [], "G"), Episode(0.5, [], "")
    for signal, episodes, reach in (
        ("dynamics", [won, won], 3), ("dynamics", [won, lost], 5), ("instruction", [won, won], 8)
    ):  # fmt: skip
        assert improved(agent, Method("best", signal, "code"), world, episodes).reach == reach  # type: ignore[arg-type]


def test_values_are_what_play_paid_and_what_was_not_tried_is_worth_a_look() -> None:
    """A sign that ended an episode without pay costs 1; who is worth something already is not tried for .1."""
    world, plays = Description("w"), [Episode(0.0, [("G", 1.0), ("G", 0.0), ("L", 0.0)], "L")]
    found = improved(GridAgent({"g": 0.5}), Method("best", "dynamics", "prompt"), world, plays).values
    assert (found["G"], found["L"], found["g"]) == (0.5, -1.0, 0.5)
    assert {found[sign] for sign in world.signs if sign not in "GLg"} == {0.1}


def test_learning_never_returns_worse_than_the_start_and_is_determined() -> None:
    world, level = Description("w", skin="inverse"), Level(np.array([[0, 0, 2]]), (0, 0), 9)
    for method in METHODS:
        one, other = (learn(method, world, [(level, 1.0)], seed=3) for _ in range(2))
        assert one == other
        assert 0 <= one[1] <= 1


def test_the_matrix_has_every_method_in_every_world() -> None:
    found = matrix([Description("a", side=4), Description("b", side=4)], validation=2, test=2)
    assert found.height == 2 * len(METHODS)
    assert found["test"].is_between(0, 1).all()
    assert gaps(np.ones((3, 2))) == ([1.0, 1.0], [1.0, 1.0])


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown fields colour"):
        description_from_dict({"name": "w", "colour": "red"})
    with pytest.raises(InputError, match="skin 'ab'"):
        _ = Description("w", skin="ab").signs
    with pytest.raises(InputError, match="skin"):
        _ = Description("w", skin=HIDDEN + SELF + SIGNS[:3]).signs
    (tmp_path / "w.json").write_text(json.dumps([{"name": "w"}]))
    with pytest.raises(InputError, match="choose='two'"):
        analyze("method_matrix('two')", tmp_path / "w.json")
