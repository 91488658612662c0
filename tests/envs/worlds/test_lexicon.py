"""Lexicon: what a search brings, what fills a mask, and when an episode is over."""

from __future__ import annotations

from typing import Any

from palaestra.envs.worlds import Lexicon
from palaestra.envs.worlds.lexicon import ANSWER, NAME, RELATION, RELATIONS, SEARCH, TELL


def begun(masks: int, **options: Any) -> Lexicon:
    """An episode with exactly so many masks."""
    env = Lexicon(**options)
    for seed in range(200):
        env.reset(seed)
        if len(env.state.wanted) == masks:
            return env
    raise AssertionError("no such episode")


def looked_up(env: Lexicon) -> None:
    """Search, query the name in hand, and take the line of the relation that is looked for."""
    env.step({"planner": SEARCH})
    env.step({"rewriter": NAME})
    env.step({"observer": f"take line {env.line[env.state.wanted[env.state.at][0]]}"})


def test_each_mask_begins_with_the_title_and_all_must_be_right() -> None:
    env = begun(2)
    looked_up(env)
    assert env.state.hand == env.state.gold[0]
    assert env.step({"planner": ANSWER}).info["masks"] == 2
    assert (env.state.right, env.state.hand) == (1, env.state.title)
    end = env.step({"planner": ANSWER})
    assert end.terminated
    assert (end.info["score"], end.info["parsed"], end.info["success"]) == (0.5, True, False)
    assert end.rewards == {"planner": 0.0}


def test_what_is_told_fills_nothing_and_is_not_in_form() -> None:
    env = begun(2)
    looked_up(env)
    env.step({"planner": TELL})
    looked_up(env)
    end = env.step({"planner": ANSWER})
    assert (end.info["score"], end.info["parsed"], end.info["success"]) == (0.5, False, False)


def test_time_is_counted_for_each_mask_and_nothing_is_parsed_after_it() -> None:
    env = begun(2, steps=3)
    looked_up(env)
    env.step({"planner": ANSWER})
    env.step({"planner": SEARCH})
    end = env.step({"rewriter": RELATION})
    assert end.terminated, "six turns for two masks"
    assert (end.info["score"], end.info["parsed"]) == (0.5, False)


def test_a_question_goes_through_its_first_relation_to_the_second() -> None:
    env = Lexicon(task="questions")
    for seed in range(20):
        env.reset(seed)
        title, (first, second) = env.state.title, env.state.wanted[0]
        text = env.state.text
        assert text == f"{env.names[title]}: {RELATIONS[first]} the one {RELATIONS[second]} [mask 1]"
        assert env.state.gold == (env.values[env.values[title, first], second],)
        looked_up(env)
        looked_up(env)
        end = env.step({"planner": ANSWER})
        assert end.info["success"]
        assert end.rewards == {"planner": 1.0}
