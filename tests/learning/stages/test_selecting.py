"""Stages that select: what they count, that it can be computed again, and what they remember."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.algebra.selection import keep as kept_signal
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import ExpressionError, InputError
from palaestra.learning.stages import Context, Stages
from palaestra.learning.stages.own_context import refuse_help, rescored, unhelped
from palaestra.learning.stages.selection import accumulate, keep, pairs, weights
from palaestra.learning.stages.splice import relabel, splice
from palaestra.runs.inline import learn


def context(team: Any = None, iteration: int = 1) -> Context:
    return Context(np.random.default_rng(0), iteration, env=None, team=team, executor=None)  # type: ignore[arg-type]


def table(values: list[float | None], **more: Any) -> Turns:
    rows = {"iteration": [1] * len(values), "group": [0] * len(values), "episode": list(range(len(values)))}
    return Turns(rows | {"turn": [0] * len(values), "reward": values} | more)


def test_a_selection_can_be_computed_again_from_what_is_saved() -> None:
    seen: list[Turns] = []
    changes = {"stages": ["keep('success', between=(1, 1))"], "learn": {"terms": ["clone(column='kept')"]}}
    done = learn("answers", changes | {"train": {"iterations": 2}}, on_turns=lambda _, turns: seen.append(turns))
    metrics = done.lines[-1]["stages"]["keep"]
    turns = seen[-1]
    again = np.asarray(kept_signal("success", between=(1, 1)).evaluate(turns))
    assert again.tolist() == turns["kept"].to_list()
    episodes = turns.frame.unique(["group", "episode"])
    assert metrics["kept"] == episodes["kept"].sum()
    assert metrics["units"] == len(episodes)
    assert metrics["dropped_between"] == (episodes["dropped"] == "between").sum()


def test_what_is_not_kept_leaves_if_asked() -> None:
    told = context()
    left = keep("reward", top=1, ties="first", drop=True)(table([1.0, 3.0, 3.0, None]), told)
    assert left["episode"].to_list() == [1]
    assert told.metrics == {"units": 4, "kept": 1, "dropped_missing": 1, "dropped_top": 2}
    with pytest.raises(ExpressionError, match="top=0"):
        keep("reward", top=0)


def test_weights_are_a_signal_in_a_column() -> None:
    told = context()
    turns = table([1.0, 0.0, 0.0], task=["a", "a", "b"])
    found = weights('signed("reward")')(turns, told)
    assert found["weight"].to_list() == [1.0, -1.0, None]
    assert told.metrics == {"up": 1, "down": 1, "zero": 0, "missing": 1}


def test_pairs_say_how_many_candidates_each_rule_dropped() -> None:
    told = context()
    found = pairs(min_chosen=0.5)(table([1.0, 0.0, 0.2]), told)
    assert told.metrics == {"candidates": 3, "kept": 2, "dropped_gap": 0, "dropped_min_chosen": 1}
    assert found.frame.filter("chosen")["episode"].to_list() == [0, 0]
    with pytest.raises(InputError, match="per='x'"):
        pairs(per="x")  # type: ignore[arg-type]


def test_older_rounds_are_groups_of_this_iteration_and_are_found_again() -> None:
    stage, first = accumulate(2), table([1.0, 0.0])
    assert stage(first, context())["fresh"].all()
    second = Turns(table([0.5]).frame.with_columns(iteration=pl.lit(2)))
    both = stage(second, context(iteration=2))
    assert both["fresh"].to_list() == [True, False, False]
    assert both["iteration"].unique().to_list() == [2]
    assert both["group"].to_list() == [0, 1, 1]
    again = accumulate(2)
    again.load_state_dict(stage.state_dict())
    third = Turns(table([0.1]).frame.with_columns(iteration=pl.lit(3)))
    assert again(third, context(iteration=3)).frame.equals(stage(third, context(iteration=3)).frame)
    fourth = stage(Turns(table([0.1]).frame.with_columns(iteration=pl.lit(4))), context(iteration=4))
    assert fourth["reward"].to_list() == [0.1, 0.5, 0.1], "the first iteration is gone"
    solved = accumulate(2, where="reward > 0.5")
    solved(first, context())
    assert solved(second, context(iteration=2))["reward"].to_list() == [0.5, 1.0]


def paths(policy: str) -> Turns:
    """A good and a bad path, as a table of logits of five actions plays them."""
    seen = ["s0", "s1", "s2", "s0", "s1", "e"]
    return Turns(
        {
            "group": [0] * 6, "episode": [0] * 3 + [1] * 3, "turn": [0, 1, 2] * 2, "agent": ["a"] * 6,
            "policy": [policy] * 6, "observation": seen, "state": [Observation(text).key() for text in seen],
            "action": ["0", "1", "2", "0", "3", "3"], "action_ids": [[0], [1], [2], [0], [3], [3]],
            "logprobs": [[-1.0]] * 6, "entropies": [[1.0]] * 6, "bad": [0, 0, 0, 0, 1, 1],
            "reward": [0, 0, 1.0, 0, 0, 0],
        }
    )  # fmt: skip


def test_a_spliced_table_learns_what_to_do_after_the_error() -> None:
    policy = TabularPolicy(5, name="walker")
    told = context(Team(a=policy))
    whole = splice("bad", marker="undo", number=4, min_good=0.1)(paths("walker"), told)
    assert told.metrics["kept"] == 1
    assert told.metrics["candidates"] == 1
    assert whole["source"].to_list() == ["policy"] * 6 + ["prefix"] * 2 + ["revision"] + ["good"] * 2
    assert whole["loss_mask"].to_list() == [True] * 3 + [False] * 3 + [False] * 2 + [True] * 3
    revision = whole.frame.row(8, named=True)
    assert revision["action_ids"] == [4]
    assert revision["logprobs"] == pytest.approx([np.log(1 / 5)])
    rounds = splice("bad", marker="undo", number=4, min_good=(0.1, 0.9))
    assert len(rounds(paths("walker"), context(Team(a=policy), iteration=1))) == 11
    assert len(rounds(paths("walker"), context(Team(a=policy), iteration=7))) == 6, "1/3 is not above .9"
    with pytest.raises(InputError, match="no number"):
        splice("bad", marker="undo")(paths("walker"), context(Team(a=policy)))


def test_hindsight_is_read_with_the_new_goal_and_scored_again() -> None:
    turns = Turns(
        paths("walker").frame.with_columns(goal=pl.lit("s2"), achieved=pl.Series(["s1", "s2", "s3", "s1", "e", "f"]))
    )
    turns = Turns(turns.frame.with_columns(observation=pl.concat_str("goal", pl.lit(" "), "observation")))
    whole = relabel()(turns, context(Team(a=TabularPolicy(5, name="walker"))))
    made = whole.frame.filter(pl.col("source") == "hindsight")
    assert made["observation"].to_list() == ["s3 s0", "s3 s1", "s3 s3", "f s0", "f s1", "f e"]
    assert made["state"].to_list() == [Observation(text).key() for text in made["observation"]]
    assert made["logprobs"].to_list() == [pytest.approx([np.log(1 / 5)])] * 6


def test_help_is_taken_out_of_what_is_read_and_a_table_that_forgot_is_refused() -> None:
    policy = LMPolicy.tiny(name="speaker")
    seen = ["open 7\n\nlock", "lock"]
    frame = pl.DataFrame(
        {
            "policy": ["speaker"] * 2, "observation": seen, "action": ["7", "3"], "help": ["open 7", None],
            "state": pl.Series([Observation(text).key() for text in seen], dtype=pl.UInt64),
            "prompt_ids": [policy.encode(text, "7")[0].tolist() for text in seen],
            "action_ids": [policy.encode(text, said)[1].tolist() for text, said in zip(seen, "73")],
            "logprobs": [[-9.0], [-9.0]], "entropies": [[0.0], [0.0]], "source": ["guided", "policy"],
        }
    )  # fmt: skip
    with pytest.raises(InputError, match="row 0 still shows the help"):
        refuse_help(Turns(frame))
    plain = unhelped(frame)
    assert plain["observation"].to_list() == ["lock", "lock"]
    with pytest.raises(InputError, match="row 0 was not scored again"):
        refuse_help(Turns(plain))
    told = context(Team(a=policy))
    mine = rescored(plain.with_columns(rescored=pl.col("help").is_not_null()), told, "rescored")
    assert mine["prompt_ids"].to_list()[0] == policy.encode("lock", "7")[0].tolist()
    assert mine["state"].to_list() == [Observation("lock").key()] * 2
    assert mine["logprobs"].to_list()[0] != [-9.0]
    assert mine["logprobs"].to_list()[1] == [-9.0]
    assert len(refuse_help(Turns(mine))) == 2
    assert len(refuse_help(Turns(frame), visible=True)) == 2


def test_they_run_in_order_and_their_state_is_part_of_a_checkpoint() -> None:
    stages = Stages(["accumulate(1)", 'keep("reward", quantile=.5)', "pairs()"])
    state = stages.state_dict()
    assert [each is None for each in state] == [False, True, True]
    assert stages.reward_at == 0, "older rounds are no part of the metrics"


def test_groups_of_several_rounds_are_told_apart() -> None:
    """Rounds of two, one and two groups: the third one is learned from with those of both before it, numbered on."""
    stage = accumulate(2)
    for number, groups in enumerate(([0, 1], [0], [0, 1])):
        rows = {"iteration": [number] * len(groups), "group": groups, "episode": [0] * len(groups)}
        told = context(iteration=number)
        found = stage(Turns(rows | {"turn": [0] * len(groups), "reward": [float(number)] * len(groups)}), told).frame
    assert found.select("group", "reward", "fresh").rows() == [
        (0, 2.0, True), (1, 2.0, True), (2, 0.0, False), (3, 0.0, False), (4, 1.0, False)
    ]  # fmt: skip
    assert set(found["iteration"]) == {2}
    assert told.metrics["old_rows"] == 3
    late = stage(Turns({"iteration": [3], "group": [0], "episode": [0], "turn": [0], "reward": [3.0]}), context()).frame
    assert sorted(set(late["reward"])) == [1.0, 2.0, 3.0], "the oldest of three is forgotten"
