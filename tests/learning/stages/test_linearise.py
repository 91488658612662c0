"""Multi-agent distillation: a team's episodes as turns of one model, filtered, and scored as that model reads them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import LMPolicy, ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Trail
from palaestra.errors import InputError
from palaestra.learning.conversations import group
from palaestra.learning.stages import Context
from palaestra.learning.stages.linearise import linearise
from palaestra.play.executors import Local, Plan
from palaestra.teams import one_model


def one_hop(request: Request) -> str:
    """Looks up the first name and answers what it read; the plan names it."""
    lines = request.observation.text.splitlines()
    name = lines[0].split()[1]
    read = lines[3].removeprefix("result: ") if len(lines) > 3 else ""
    return (f"{name} 1", name, f"{read} 0 right", read)[(0, 1, 1, 2, 3)[len(lines) - 1] if len(lines) < 5 else 3]


def context(env: object = None, **advisers: ScriptedPolicy) -> Context:
    corpus = [f"{role}: ann 1 right result: from" for role in Trail.agents]
    student = LMPolicy.tiny(corpus, hidden=16, layers=1, vocabulary=300, chat=True, max_new_tokens=4, name="student")
    made = one_model(Trail) if env is None else env
    return Context(np.random.default_rng(0), 1, made, Team(model=student), Local(), advisers=advisers)  # type: ignore[arg-type]


def test_rows_are_what_the_model_would_have_seen_and_said() -> None:
    told = context(team=ScriptedPolicy(one_hop, name="team"))
    own = Turns(Local().play(told.env, told.team, Plan(2, 1)).frame.with_columns(before=pl.lit(1)))
    whole = linearise("team", groups=12, group_size=1)(own, told).frame
    rows = whole.filter("loss_mask")
    assert told.metrics["episodes"] == 12
    assert told.metrics["kept"] == rows.select("group", "episode").n_unique() > 0
    assert told.metrics["dropped_success"] == 12 - told.metrics["kept"]
    assert set(rows["source"]) == {"team"}
    assert rows["valid"].all()
    assert rows["before"].is_null().all(), "they went through no stage before"
    assert rows["success"].drop_nulls().all()
    assert not set(rows["group"]) & set(own["group"])
    student = told.team.policies["student"]
    for row in rows.iter_rows(named=True):
        assert student.tokenizer.decode(row["action_ids"], skip_special_tokens=True) == row["action"]  # type: ignore[attr-defined]
    assert group(rows).splits == 0, "each episode is one sequence"
    assert rows["logprobs"].list.len().to_list() == rows["action_ids"].list.len().to_list()


def test_nothing_is_learned_where_nothing_is_kept() -> None:
    told = context(team=ScriptedPolicy(lambda request: "no", name="team"))
    own = Local().play(told.env, told.team, Plan(1, 1))
    assert not linearise("team", groups=2)(own, told).frame["loss_mask"].any()


def test_a_seat_may_have_an_adviser_of_its_own() -> None:
    told = context(**{name: ScriptedPolicy(one_hop, name=name) for name in Trail.agents})
    own = Local().play(told.env, told.team, Plan(1, 1))
    assert linearise({name: name for name in Trail.agents}, groups=4)(own, told).frame["loss_mask"].any()
    with pytest.raises(InputError, match="for each seat"):
        linearise({"plan": "plan"})(own, told)


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="groups=0"):
        linearise("team", groups=0)
    told = context()
    own = Local().play(told.env, told.team, Plan(1, 1))
    with pytest.raises(InputError, match="must name one of the policies"):
        linearise("team")(own, told)
    with pytest.raises(InputError, match="one_model"):
        linearise("team")(own, context(Trail))

    def broken(request: Request) -> str:
        raise ValueError("out of order")

    with pytest.raises(InputError, match="out of order"):
        linearise("team")(own, context(team=ScriptedPolicy(broken, name="team")))
