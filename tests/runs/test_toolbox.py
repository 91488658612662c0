"""The recipe in which a model learns to call tools, cut short: what it plays is a conversation, and learns from it."""

from __future__ import annotations

from palaestra.runs.inline import learn
from palaestra.runs.recipe import load

SHORT = (
    "env.options.kinds=[search]",  # no programs to run
    "warm_start.groups=60",
    "warm_start.steps=6",
    "policies.assistant.options.hidden=16",
    "policies.assistant.options.max_new_tokens=12",
    "train.iterations=2",
    "train.groups=4",
    "train.group_size=4",
    "evaluation.controls={}",
    "seeds=1",
)


def test_the_toolbox_recipe_learns_from_conversations() -> None:
    lines = learn(load("toolbox", SHORT)).lines
    assert len(lines) == 2
    for line in lines:
        assert line["errors"] == {}
        assert line["turns"] >= line["episodes"] == 16
        assert line["policies"]["assistant"]["rows"] > 0
        assert line["policies"]["assistant"].get("broken_prefixes", 0.0) <= 1.0
