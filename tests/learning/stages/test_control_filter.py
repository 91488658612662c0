"""Tasks are played if the learner is better there than a control policy and neither solves them already."""

from __future__ import annotations

import pytest

from palaestra.errors import InputError
from palaestra.learning.stages.control_filter import control_filter
from palaestra.runs.inline import learn

LONE = {
    "env": {"make": "native/graded_taps", "options": {"longest": 3}},
    "policies": {"table": {"kind": "tabular", "options": {"capacity": 8}}},
    "team": {"*": "table"},
    "credit": "grpo()",
    "learn": {"lr": 0.1, "terms": "surrogate()"},
    "train": {"iterations": 9, "groups": 2, "group_size": 4},
}


def test_accepted_tasks_are_played_until_they_are_mastered():
    tables = []
    env = {"make": "native/graded_taps", "options": {"longest": 1, "dead": 0.3, "lucky": 0.3}}
    done = learn(
        "world",
        LONE | {"env": env, "stages": ["control_filter(draws=12, probes=8, easy=0.3)"]},
        on_turns=lambda _, turns: tables.append(turns),
    )
    said = [line["stages"]["control_filter"] for line in done.lines]
    assert all(line["pool"] >= line.get("accepted", 0) for line in said)
    assert any(line["pool"] for line in said)
    for line, turns in zip(said, tables, strict=True):
        if line["pool"]:
            assert set(turns["kind"]) == {"plain"}
        if "candidates" in line:
            assert line["probes"] >= 12 * 8
            reasons = ("mastered", "unlearned", "trivial", "accepted")
            assert sum(line[name] for name in reasons) == line["candidates"]


def test_an_adviser_may_be_the_control_policy():
    policies = LONE["policies"] | {"other": {"kind": "random"}}
    done = learn("world", LONE | {"policies": policies, "stages": ["control_filter('other', draws=4, probes=2)"]})
    assert len(done.lines) == 9


@pytest.mark.parametrize("options", [{"draws": 0}, {"probes": 0}, {"memory": 0}, {"solved": 2}, {"easy": -1}])
def test_it_says_what_is_wrong(options):
    with pytest.raises(InputError, match="control_filter"):
        control_filter(**options)
