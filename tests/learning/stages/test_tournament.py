"""Tournaments: by a column, by a function, by a policy of the team."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import arena_rl
from palaestra.errors import ExpressionError, InputError
from palaestra.learning.stages.stage import Context
from palaestra.learning.stages.tournament import tournament
from palaestra.play.executors import Local


def table() -> Turns:
    """Two groups of four; the longer answer is the better one."""
    words = ["a", "abcd", "ab", "abc"]
    return Turns(
        {
            "group": [0] * 4 + [1] * 4,
            "episode": [0, 1, 2, 3] * 2,
            "turn": [0] * 8,
            "agent": ["writer"] * 8,
            "observation": ["write"] * 4 + ["sing"] * 4,
            "action": words + words[::-1],
            "reward": [1.0, 400.0, 2.0, 3.0, 3.0, 2.0, 400.0, 1.0],
        }
    )


def context(judge: Any = None) -> Context:
    team = Team(writer=judge or ScriptedPolicy(lambda request: "", name="writer"))
    return Context(np.random.default_rng(0), 1, lambda: None, team, Local())  # type: ignore[arg-type, return-value]


def longer(first: str, second: str) -> tuple[float, float]:
    return float(len(first)), float(len(second))


PLACES = [0, 3, 1, 2, 2, 1, 3, 0]


@pytest.mark.parametrize("topology", ["round_robin", "seeded_single"])
@pytest.mark.parametrize("judge", ["reward", "2 * reward", f"{__name__}:longer"])
def test_the_better_answer_stands_higher(judge: str, topology: Any) -> None:
    ranked = tournament(judge, topology=topology)(table(), context())
    assert ranked["arena"].to_list() == PLACES
    credit = np.asarray(arena_rl().evaluate(ranked))
    assert credit.max() == pytest.approx(1.1619, abs=1e-4), "by rank, however far ahead the winner is"


@pytest.mark.parametrize("topology", ["seeded_single", "anchor", "round_robin", "swiss", "single_elimination"])
@pytest.mark.parametrize("judge", ["reward", f"{__name__}:longer"])
def test_an_episode_with_nothing_to_compare_takes_no_part(judge: str, topology: Any) -> None:
    frame = table().frame.with_columns(  # the first of group 0, which would be the anchor, and the last of group 1
        **{name: pl.when(pl.Series([0, 1, 1, 1, 1, 1, 1, 0]) == 1).then(pl.col(name)) for name in ("reward", "action")}
    )
    ranked = tournament(judge, topology=topology)(Turns(frame), context())
    credit = np.asarray(arena_rl().evaluate(ranked)).reshape(2, 4)
    assert np.isnan(ranked["arena"].to_numpy().astype(float)).nonzero()[0].tolist() == [0, 7]
    assert np.isnan(credit).tolist() == np.isin(np.arange(8), [0, 7]).reshape(2, 4).tolist()
    if topology != "anchor":  # its own score is a mean
        assert np.nanargmax(credit, axis=1).tolist() == [1, 2], "the longest of those who are there"


def test_a_policy_is_asked_about_task_and_both_answers() -> None:
    asked = []

    def judge(request: Any) -> str:
        asked.append(request.observation.text)
        _, first, second = request.observation.text.splitlines()
        return f"{len(first)} and {len(second)}"

    with_judge = context(ScriptedPolicy(judge, name="judge"))
    stage = tournament("policy:judge", topology="round_robin", prompt="{task}\n{first}\n{second}")
    assert stage(table(), with_judge)["arena"].to_list() == PLACES
    assert with_judge.spent.calls == len(asked) == 2 * 6 * 2, "six pairs in each group, both orders"
    assert sum(text.startswith("sing") for text in asked) == 12


def test_who_gives_no_numbers_calls_it_a_draw() -> None:
    stage = tournament("policy:judge", topology="round_robin")
    ranked = stage(table(), context(ScriptedPolicy(lambda request: "both are lovely", name="judge")))
    assert set(ranked["arena"]) == {1.5}


def test_noise_comes_from_the_stages_stream() -> None:
    noisy = [tournament(noise=200.0)(table(), context())["arena"].to_list() for _ in range(2)]
    assert noisy[0] == noisy[1]
    assert noisy[0] != PLACES


def test_what_it_refuses() -> None:
    with pytest.raises(InputError, match="topology='sw'"):
        tournament(topology="sw")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"noise=-1"):
        tournament(noise=-1.0)
    with pytest.raises(ExpressionError):
        tournament("rewrad + 1")
    with pytest.raises(InputError, match="no policy 'jugde'; did you mean 'judge'"):
        tournament("policy:jugde")(table(), context(ScriptedPolicy(lambda r: "", name="judge")))
    assert tournament("length").needs >= {"length"}
