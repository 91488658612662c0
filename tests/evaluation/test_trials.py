from __future__ import annotations

import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import trials


def turns(*rows: dict) -> pl.DataFrame:
    """Turn rows with the defaults of a finished, successful episode of one agent."""
    base = {
        "run": "0", "iteration": 0, "group": 0, "episode": 0, "turn": 0, "agent": "a", "task": "t", "success": True,
        "reward": 1.0, "error": None, "tokens_in": 4, "tokens_out": 2, "cost": 0.1,
    }  # fmt: skip
    schema = {"reward": pl.Float64, "cost": pl.Float64, "error": pl.String, "success": pl.Boolean, "run": pl.String}
    return pl.DataFrame([base | row for row in rows], schema_overrides=schema)


def test_score_is_the_mean_over_agents_of_their_returns() -> None:
    frame = turns(
        {"agent": "a", "turn": 0, "reward": 1.0},
        {"agent": "a", "turn": 2, "reward": 2.0},
        {"agent": "b", "turn": 1, "reward": 5.0},
        {"agent": "b", "turn": 3, "reward": None},
    )
    assert trials(frame).row(0, named=True) == {
        "system": "system", "run": "0", "task": "t", "trial": 0, "success": True, "score": 4.0, "error": None,
        "turns": 4, "tokens_in": 16, "tokens_out": 8, "cost": pytest.approx(0.4),
    }  # fmt: skip


def test_not_scored_is_null_and_not_zero() -> None:
    frame = turns(
        {"agent": "a", "reward": None},
        {"agent": "b", "reward": 3.0},
        {"episode": 1, "reward": None, "success": None},
    )
    table = trials(frame)
    assert table["score"].to_list() == [3.0, None]
    assert table["success"].to_list() == [True, None]


def test_seat_is_chosen_by_where_and_absent_seats_are_unscored() -> None:
    frame = turns(
        {"agent": "a", "success": True, "reward": 1.0},
        {"agent": "b", "success": False, "reward": -1.0},
        {"episode": 1, "agent": "b", "success": True, "reward": 1.0},
    )
    seat = trials(frame, where=pl.col("agent") == "a")
    assert seat["success"].to_list() == [True, None]
    assert seat["score"].to_list() == [1.0, None]
    assert seat["turns"].to_list() == [1, 0]
    assert seat["tokens_in"].to_list() == [4, None]
    assert trials(frame)["success"].to_list() == [False, True]
    assert trials(frame, agents="any")["success"].to_list() == [True, True]


def test_what_the_infrastructure_breaks_is_no_failure_of_the_system() -> None:
    """Unless one asks to count it; what the system itself broke always is."""
    kinds = ["env: ValueError: x", "env-timeout: s", "policy: HTTPError: 500", "reward: ValueError: nan", None]
    kinds += ["run: the agent gave up", "APIConnectionError: Connection error.", "run: openai.RateLimitError: 429"]
    frame = turns(*({"episode": i, "error": e, "success": True, "reward": 0.5} for i, e in enumerate(kinds)))
    default = trials(frame)
    assert default["success"].to_list() == [None, None, None, None, True, False, None, None]
    assert default["score"].to_list() == [None, None, None, None, 0.5, None, None, None]
    assert default["error"].to_list() == kinds
    assert trials(frame, errors="count")["success"].to_list() == [False] * 3 + [None, True, False, False, False]


@pytest.mark.parametrize(
    "error",
    [
        "botocore.exceptions.EndpointConnectionError: no", "aiohttp.ClientConnectorError: no", "socket.gaierror: -2",
        "HTTPStatusError: Server error '503 Service Unavailable'", "run: Error code: 429 - {}",
        "litellm.exceptions.Timeout",
        "ResourceExhausted: 429", "TimeoutError: Request timed out.", "ConnectionRefusedError: 111", "ssl.SSLError: x",
    ],
)  # fmt: skip
def test_outages_are_known_by_their_names_and_codes(error: str) -> None:
    assert trials(turns({"error": error, "success": False}))["success"].to_list() == [None]


@pytest.mark.parametrize(
    "error",
    ["KeyError: 'x'", "run: the agent gave up", "run: 429 steps", "BadRequestError: too long", "TimeoutError: 60 s",
     "AssertionError: status is 'open', not 500"],
)  # fmt: skip
def test_what_the_system_broke_is_its_failure(error: str) -> None:
    assert trials(turns({"error": error, "success": None}))["success"].to_list() == [False]


def test_an_episode_that_nobody_played_is_a_trial_of_its_group_s_task() -> None:
    nobody = {"agent": None, "task": None, "success": None, "reward": None, "error": "env: OSError: disk", "cost": None}
    frame = turns({"group": 7}, {"group": 7, "episode": 1, **nobody}, {"group": 8, **nobody})
    table = trials(frame)
    assert table["task"].to_list() == ["group 8", "t", "t"]
    assert table["success"].to_list() == [None, True, None]
    assert table["turns"].to_list() == [0, 1, 0]


def test_trials_are_numbered_inside_system_run_and_task() -> None:
    frame = turns(
        {"group": 0, "episode": 1, "task": "x"},
        {"group": 0, "episode": 0, "task": "x"},
        {"group": 1, "episode": 0, "task": "y"},
        {"group": 2, "episode": 0, "task": "x"},
    ).with_columns(system=pl.lit("before"))
    assert trials(frame).select("system", "task", "trial").rows() == [
        ("before", "x", 0), ("before", "x", 1), ("before", "x", 2), ("before", "y", 0),
    ]  # fmt: skip


def test_cost_with_an_unknown_part_is_unknown_but_scripted_agents_are_free() -> None:
    scripted = {"agent": "b", "tokens_in": None, "tokens_out": None, "cost": None}
    table = trials(turns({}, scripted, {"episode": 1}, {"episode": 1, "agent": "b", "cost": None}))
    assert table["cost"].to_list() == [pytest.approx(0.1), None]
    assert table["tokens_in"].to_list() == [4, 8]


def test_reads_turns_and_null_scope_columns() -> None:
    frame = turns({}, {"episode": 1, "success": False, "reward": 0.0}).with_columns(
        pl.lit(None, pl.String).alias("run"), pl.lit(None, pl.Int32).alias("iteration")
    )
    table = trials(Turns(frame))
    assert table["success"].to_list() == [True, False]
    assert table["score"].to_list() == [1.0, 0.0]


def test_score_column() -> None:
    frame = turns({}, {"agent": "b"}).with_columns(quality=pl.Series([0.2, 0.6]))
    assert trials(frame, score="quality")["score"].to_list() == [pytest.approx(0.4)]


def test_bad_input_is_named() -> None:
    with pytest.raises(MissingColumnError, match=r"'success'"):
        trials(turns({}).drop("success"))
    with pytest.raises(MissingColumnError, match=r"'qualty'"):
        trials(turns({}), score="qualty")
    with pytest.raises(InputError, match=r"errors='drop'"):
        trials(turns({}), errors="drop")  # type: ignore[arg-type]


def test_rewards_that_cancel_are_zero_and_no_noise() -> None:
    rewards = [0.1, 0.2, -0.3]
    frame = turns(*({"agent": agent, "reward": r} for agent in "a" for r in rewards))
    assert sum(rewards) != 0
    assert trials(frame)["score"].to_list() == [0.0]
    tiny = trials(turns({"reward": 1e-15}))["score"].item()  # small, but all there is
    assert tiny == pytest.approx(1e-15)


def test_a_cluster_holds_whole_tasks() -> None:
    frame = turns({"task": "x"}, {"task": "x", "episode": 1}, {"task": "y", "episode": 2}).with_columns(
        passage=pl.Series(["p", None, None])
    )
    table = trials(frame, cluster="passage")
    assert table.select("task", "cluster").rows() == [("x", "p"), ("x", "p"), ("y", "task y")]
    assert "cluster" not in trials(frame).columns
    with pytest.raises(InputError, match=r"task 'x' lies in 'p' and in 'q'"):
        trials(frame.with_columns(passage=pl.Series(["p", "q", "p"])), cluster="passage")
    with pytest.raises(MissingColumnError, match=r"'pasage'; did you mean 'passage'"):
        trials(frame, cluster="pasage")


@pytest.mark.parametrize("error", ["", "None", "nan", "[]"])
def test_a_word_that_says_there_was_no_error_is_none(error: str) -> None:
    assert trials(turns({"error": error})).row(0, named=True)["success"] is True
    assert trials(turns({"error": "env: OSError: no"})).row(0, named=True)["success"] is None
