"""Recipes on tasks, cut short: look-ups, code with hidden tests, negotiation; and what chat models are told there."""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.runs.envs import env
from palaestra.runs.inline import learn
from palaestra.runs.recipe import load, override

SHORT = ("warm_start.groups=40", "warm_start.steps=6", "train.iterations=2", "train.groups=2", "train.group_size=3",
         "tune=null", "evaluation.controls={}", "seeds=1")  # fmt: skip
NAMES: dict[str, tuple[str, ...]] = {
    "two-lookups": ("policies.seeker.options.hidden=16",),
    "code-review": ("policies.coder.options.max_new_tokens=8",),
    "negotiation-selfplay": ("opponents.every=1",),
}


@pytest.mark.parametrize("name", NAMES)
def test_it_learns(name: str) -> None:
    if name == "negotiation-selfplay":
        pytest.importorskip("textarena")
    lines = learn(load(name, (*SHORT, *NAMES[name]))).lines
    assert len(lines) == 2
    for line in lines:
        assert line["errors"] == {}
        assert line["turns"] >= line["episodes"] == 6


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_are_tuned(name: str) -> None:
    recipe = load(name)
    assert recipe.tune is not None
    assert recipe.evaluation.controls["single"].train is not None


def test_the_single_agent_of_code_review_is_asked_and_told_what_its_team_is() -> None:
    recipe = load("code-review")
    part = recipe.evaluation.controls["told"].train
    assert part is not None
    alone = override(recipe, part, "told")
    assert alone.model_dump(exclude={"env"}) == recipe.model_dump(exclude={"env"}), "as many tokens, updates, settings"
    games = [env(each.env, "train")() for each in (recipe, alone)]
    assert [len(game.agents) for game in games] == [2, 1]
    seen = [game.reset(5) for game in games]
    for action in ("sum(xs)", "ok"):
        (team,), (single,) = ([each.text for each in asked.values()] for asked in seen)
        assert team == single
        results = [game.step(dict.fromkeys(asked, action)) for game, asked in zip(games, seen, strict=True)]
        seen = [each.observations for each in results]
    assert " | fails | sum(xs)" in team
    assert len({each.info["score"] for each in results}) == 1


@pytest.mark.parametrize(
    ("name", "changes", "agent", "told"),
    [
        ("two-lookups", (), "finder", ("Find the home port", "You are finder", "Question:", "End your reply")),
        ("code-review", ("env.options.prompt=full",), "writer", ("You are writer in a pipeline", "defines f(xs)")),
        (
            "negotiation-selfplay",
            (),
            "player_0",
            (
                "Negotiation Game",
                "gain more value by the end wins",
                "End your reply with a line `Action: `",
                "`[Deny]`",
            ),
        ),
    ],
)
def test_chat_models_are_told_what_to_do(name: str, changes: Any, agent: str, told: tuple[str, ...]) -> None:
    if name == "negotiation-selfplay":
        pytest.importorskip("textarena")
    seen = env(load(name, changes).env, "train")().reset(0)[agent]
    said = "\n".join(str(each["content"]) for each in seen.conversation())
    for text in told:
        assert text in said
    assert bool(seen.tools) == (name == "two-lookups")
