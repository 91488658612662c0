"""A population in one training: whose turn it is, who copies whom, teachers, and a filter of tasks for each member."""

from __future__ import annotations

import numpy as np
import pytest
from stage_play import context

from palaestra.errors import InputError
from palaestra.learning.stages import population as stage
from palaestra.learning.stages.population import population
from palaestra.runs.inline import learn

RECIPE = {
    "env": {"make": "native/graded_taps", "options": {"longest": 3}},
    "policies": {"table": {"kind": "tabular", "options": {"capacity": 8}}},
    "team": {"*": "table"},
    "credit": "grpo() * (col('distilled') == 0)",
    "learn": {"lr": 0.1, "terms": "surrogate(), pinned(1.0, 'distilled')"},
    "train": {"iterations": 9, "groups": 2, "group_size": 4},
}
STAGE = (
    "population(2, inner='control_filter(draws=4, probes=2)', vary={'lr': [0.5, 2.0], 'solved': [0.7, 1.0]}, "
    "every=1, tasks=4, trials=1, generation=2, distil=1)"
)


def test_members_take_turns_and_generations_begin_with_a_teacher():
    tables = []
    done = learn("world", RECIPE | {"stages": [STAGE]}, on_turns=lambda _, turns: tables.append(turns))
    said = [line["stages"]["population"] for line in done.lines]
    assert [line["member"] for line in said[:-1]] == [0, 1] * 4
    assert [line["generation"] for line in said[:-1]] == [0] * 4 + [1] * 4
    assert [turns["distilled"].max() for turns in tables] == [0] * 4 + [1, 1] + [0] * 3
    assert all(0.5 <= line["lr"] <= 2 and 0.7 <= line["solved"] <= 1 for line in said)
    assert {"p10", "p50", "participation", "copies", "parent_0"} <= said[2].keys()


def test_generations_need_a_reference():
    plain = RECIPE | {"learn": {"lr": 0.1, "terms": "surrogate()"}, "stages": [STAGE]}
    with pytest.raises(InputError, match="a term with a reference"):
        learn("world", plain)


@pytest.mark.parametrize("best", [-1.0, 0.0, 90.0])
def test_the_better_are_copied_whatever_the_sign_of_returns(monkeypatch, best):
    scores = iter([best - 89, best - 49, best] * 8)
    monkeypatch.setattr(stage, "task_scores", lambda *_: np.full((4, 2), next(scores)))
    made = population(3, tasks=4)
    here = context()
    made._begin(here)
    copied = 0
    for _ in range(8):
        assert made._compare(here, copying=True) == 2
        assert here.metrics["parent_2"] == 2
        copied += here.metrics["copies"]
    assert copied > 8


def test_its_state_is_that_of_its_members():
    one, other = (population(2, inner="control_filter()", vary={"solved": [0.7, 1.0]}) for _ in range(2))
    one.at, one.begun, one.best = 1, 2, np.array([0.5, 1.0])
    one.worst = np.array([-1.0, 0.0])
    one.members[1].settings, one.members[1].since = {"solved": 0.8}, 7
    one.members[1].inner.pool[5] = ([1.0], [0.0])
    other.load_state_dict(one.state_dict())
    assert (other.at, other.begun, other.best.tolist()) == (1, 2, [0.5, 1.0])
    assert other.worst.tolist() == [-1.0, 0.0]
    assert (other.members[1].settings, other.members[1].since) == ({"solved": 0.8}, 7)
    assert other.members[1].inner.pool == {5: ([1.0], [0.0])}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "size=0"),
        ({"mutation": 0.5}, "mutation=0.5"),
        ({"generation": 0}, "generation=0"),
        ({"vary": {"lr": [0.0, 1.0]}}, "above 0"),
        ({"vary": {"solved": [0.5, 1.0]}}, "no attribute"),
    ],
)
def test_it_says_what_is_wrong(options, said):
    with pytest.raises(InputError, match=said):
        population(**options)
