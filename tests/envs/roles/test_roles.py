"""Roles: each world passes the conformance test, and does what its system's card says."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.envs.roles import (
    CachedTool,
    Gui,
    Itinerary,
    ModelUser,
    NeedyUser,
    Rooms,
    SearchEnv,
    SimulatedUser,
)
from palaestra.envs.roles.itinerary import PLACES, consistent, feasible, opening_hours
from palaestra.envs.roles.rooms import verify
from palaestra.envs.roles.user import level
from palaestra.errors import EnvError, InputError, StorageError
from palaestra.judges.writer import asking
from palaestra.play.rollout import rollout
from palaestra.rewards.judged.emotion import rlver_reward
from palaestra.rewards.match.evidence import deep_travel_reward, reseek_reward, semi_join, smart_snap_reward
from palaestra.testing import check_env


def plan(seen: Observation, rng: np.random.Generator) -> str:
    place = PLACES[rng.integers(len(PLACES))]
    return (f"hours {place}", f"visit {place} {rng.integers(8, 20)}", "done")[rng.integers(3)]


def seek(seen: Observation, rng: np.random.Generator) -> str:
    return f"look {rng.integers(5)}" if rng.random() < 0.8 else f"submit {rng.integers(5)} evidence 0, 1"


def search(seen: Observation, rng: np.random.Generator) -> str:
    line, wanted = seen.text.rsplit("\n", 1)[-1], seen.text.split("capital of ")[1].split("?")[0]
    if line.startswith("yes"):
        return ("yes", "no")[rng.integers(2)]
    if line.startswith("search") or (line != "answer WORD" and rng.random() < 0.3):
        return f"search capital of {wanted}"
    found = re.findall(r"(\w+) is the capital", seen.text)
    return f"answer {found[-1]}"


def point_somewhere(seen: Observation, rng: np.random.Generator) -> str:
    return f"click {rng.integers(100)} {rng.integers(60)}"


@pytest.mark.parametrize(
    ("world", "play"),
    [
        (SimulatedUser, None),
        (functools.partial(SimulatedUser, "harder", leaves=9), None),
        (Itinerary, plan),
        (Rooms, seek),
        (SearchEnv, search),
        (functools.partial(SearchEnv, noise=0.0, searches=1), search),
        (Gui, point_somewhere),
        (functools.partial(Gui, kinds=("click", "type", "scroll"), steps=3, choices=True), None),
    ],
)
def test_every_world_passes_the_conformance_test(world, play) -> None:
    check_env(world, play=play)
    if play is not None:
        check_env(world)


def played(world, agent: str, act, groups: int = 6) -> Turns:
    script = ScriptedPolicy(lambda request: act(request.observation, request.rng))
    return rollout(world, Team(**{agent: script}), groups=groups, group_size=1, seed=0)


# -- [194] ------------------------------------------------------------------------------------------------------------


def test_the_user_feels_as_the_table_says() -> None:
    turns = played(SimulatedUser, "helper", lambda seen, rng: seen.legal[rng.integers(6)], groups=20)
    np.testing.assert_allclose(np.asarray(rlver_reward().evaluate(turns)), turns["reward"].to_numpy())
    assert turns["level"].to_list() == [level(int(e)) for e in turns["emotion"]]


def test_the_right_reply_satisfies_and_the_wrong_ones_drive_away() -> None:
    env = SimulatedUser("hard")
    seen = env.reset(0)["helper"]
    need = env.state.profile
    for turn in range(6):
        result = env.step({"helper": need})
        assert result.info["emotion"] == 50 + 10 * turn
    assert (result.terminated, result.rewards, result.info["success"]) == (True, {"helper": 1.0}, True)
    env.reset(0)
    wrong = next(name for name in seen.legal if name != need)
    emotions = [env.step({"helper": wrong}).info["emotion"] for _ in range(4)]
    assert emotions == [30, 20, 10, 0]
    env = SimulatedUser("hard", leaves=9, start=19)
    env.reset(0)
    assert env.step({"helper": wrong}).terminated
    with pytest.raises(InputError, match="did you mean 'hard'"):
        NeedyUser("hrad")


def test_a_model_may_play_the_user() -> None:
    prompts = []

    def model(request) -> str:
        prompts.append(request.observation.text)
        return "Thank you." if "Only your words" in prompts[-1] else "It helped, from 3 to 8: +25"

    user = ModelUser(asking(ScriptedPolicy(model)), ("an impatient nurse",))
    env = SimulatedUser(user)
    assert env.reset(0)["helper"].text == "user: Thank you."
    result = env.step({"helper": "Tell me more."})
    assert result.info["delta"] == 10
    assert result.observations["helper"].text == "user: Thank you.\nhelper: Tell me more.\nuser: Thank you."
    assert "an impatient nurse" in prompts[1]
    assert "They: Tell me more." in prompts[1]
    assert ModelUser(lambda asked: ["?"], ("x",)).appraise("x", ["a", "b"], 40) == 0


# -- [191] ------------------------------------------------------------------------------------------------------------


def test_equal_calls_have_equal_answers_and_can_be_replayed(tmp_path: Path) -> None:
    calls = []
    tool = CachedTool(
        lambda **asked: calls.append(asked) or {"open": [8, len(calls)]}, tool_path := tmp_path / "t.json"
    )
    first = tool(place="museum", day=1)
    first["open"].append(9)
    assert tool(day=1, place="museum") == {"open": [8, 1]}
    assert (tool.hits, tool.misses, len(calls)) == (1, 1, 1)
    tool.save()
    replay = CachedTool(None, tool_path, miss="raise")
    assert replay(place="museum", day=1) == {"open": [8, 1]}
    with pytest.raises(EnvError, match="was never recorded"):
        replay(place="tower", day=1)
    assert CachedTool(None, tool_path, miss="default", default="closed")(place="tower") == "closed"
    tool_path.write_text("{")
    with pytest.raises(StorageError, match="not a record of calls"):
        CachedTool(None, tool_path, miss="raise")
    with pytest.raises(InputError, match="no tool to record"):
        CachedTool(None)


def test_details_are_only_looked_at_behind_the_gate() -> None:
    asked = []

    def detail(visit, hours) -> bool:
        asked.append(visit)
        return consistent(visit, hours)

    env = Itinerary(4, detail=detail)
    env.reset(1)
    places = env.state.wanted
    hours = {place: opening_hours(env.state.seed, place) for place in places}
    for hour, place in enumerate(places):
        env.step({"planner": f"visit {place} {12 - hour}"})
    result = env.step({"planner": "done"})
    assert (result.rewards["planner"], result.info["gate"], result.info["details"], asked) == (0.0, False, [], [])
    env.reset(1)
    for hour, place in enumerate(sorted(places, key=lambda each: hours[each])):
        env.step({"planner": f"hours {place}"})
        env.step({"planner": f"visit {place} {8 + 3 * hour}"})
    result = env.step({"planner": "done"})
    assert result.info["gate"]
    assert len(asked) == 4
    assert result.rewards["planner"] == sum(result.info["details"]) / 4
    assert result.info["invented"] == 0


def test_a_feasible_plan_with_three_of_four_right() -> None:
    """The card's worked number."""
    verdicts = iter([True, True, False, True])
    env = Itinerary(4, detail=lambda visit, hours: next(verdicts))
    env.reset(0)
    for hour, place in enumerate(env.state.wanted):
        env.step({"planner": f"visit {place} {9 + hour}"})
    result = env.step({"planner": "done"})
    assert result.rewards["planner"] == 0.75
    assert result.info["invented"] == 4
    table = Turns({"episode": [0] * 4, "agent": ["planner"] * 4, "gate": [1] * 4, "detail": result.info["details"]})
    paid = np.asarray(deep_travel_reward("gate", "detail").evaluate(table))
    np.testing.assert_allclose(paid, [0, 0, 0, 0.75])  # an outcome is paid once, whatever the number of turns
    assert not feasible([("museum", 9), ("museum", 10)], ["museum"])
    assert not feasible([("museum", 7)], ["museum"])


# -- [152] ------------------------------------------------------------------------------------------------------------


def seeker(seen: Observation, rng: np.random.Generator) -> str:
    """Look through the rooms, then submit the row that shows the thing."""
    lines = re.findall(r"^(\d+)\. look (\d+): (\w+)$", seen.text, re.MULTILINE)
    found = [(turn, room) for turn, room, what in lines if what != "empty"]
    return f"submit {found[0][1]} evidence {found[0][0]}" if found else f"look {len(lines)}"


def test_a_submission_points_at_its_rows() -> None:
    turns = played(Rooms, "seeker", seeker)
    assert turns["success"].all()
    shown = semi_join(turns)
    assert len(shown) == turns["message"].count() == 6
    claims = turns.frame.drop_nulls("message").sort("group")["message"].to_list()
    rows = shown.frame.sort("group")["result"].to_list()
    verdicts = [verify(claim, [row]) for claim, row in zip(claims, rows, strict=True)]
    assert verdicts == [(True, True)] * 6
    last = turns["message"].is_not_null()
    reward = np.asarray(smart_snap_reward("evidence").evaluate(turns))
    assert (reward[last.to_numpy()] == 1).all()


def test_a_wrong_or_unproved_claim() -> None:
    env = Rooms()
    env.reset(3)
    wrong = (env.state.room + 1) % 5
    env.step({"seeker": f"look {wrong}"})
    result = env.step({"seeker": f"submit {wrong} evidence 0"})
    assert [result.info[name] for name in ("success_votes", "valid_votes", "success")] == [[0.0], [1.0], False]
    assert result.rewards == {"seeker": 0.0}
    env.reset(3)
    result = env.step({"seeker": f"submit {env.state.room} evidence 7"})
    assert (result.info["success_votes"], result.info["valid_votes"]) == ([0.0], [0.0])
    assert env.reset(3)
    assert [env.step({"seeker": "hello"}).terminated for _ in range(8)] == [False] * 7 + [True]


# -- [180] ------------------------------------------------------------------------------------------------------------


def test_judgements_and_their_relevance_are_rows() -> None:
    def careful(seen: Observation, rng: np.random.Generator) -> str:
        line, wanted = seen.text.rsplit("\n", 1)[-1], seen.text.split("capital of ")[1].split("?")[0]
        found = re.findall(r"(\w+) is the capital of (\w+)", seen.text)
        if line.startswith("yes"):
            return "yes" if found[-1][1] == wanted else "no"
        return f"answer {found[-1][0]}" if line.startswith("answer") else f"search {wanted}"

    turns = played(SearchEnv, "seeker", careful, groups=30)
    judged = turns.filter(pl.col("judge").is_not_null())
    assert set(judged["judge"].to_list()) == {0.0, 1.0}
    assert judged["judge"].to_list() == judged["relevance"].to_list()
    earned = np.asarray(reseek_reward("judge", "relevance").evaluate(turns))
    np.testing.assert_allclose(earned[turns["judge"].is_not_null().to_numpy()], 0.3)
    assert (earned[turns["judge"].is_null().to_numpy()] == 0).all()
    assert turns.filter(pl.col("tool") == "search").frame.group_by("group").len()["len"].max() <= 4
    success = turns.frame.group_by("group").agg(pl.col("success").first(), pl.col("judge").max())
    assert success.filter(pl.col("judge") == 1)["success"].all()


def test_no_search_after_the_last_and_no_answer_before_a_yes() -> None:
    env = SearchEnv(searches=1, noise=1.0)
    wanted = env.reset(0)["seeker"].text.split("capital of ")[1].split("?")[0]
    seen = env.step({"seeker": f"search {wanted}"}).observations["seeker"]
    assert wanted not in seen.text.split("\n")[1]
    seen = env.step({"seeker": "no"}).observations["seeker"]
    assert seen.text.endswith("answer WORD")
    result = env.step({"seeker": "search again"})
    assert result.terminated
    assert result.info["valid"] == {"seeker": False}
    env.reset(0)
    said = env.step({"seeker": "answer x"}).info
    assert (said["valid"], said["success"]) == ({"seeker": False}, False)
    assert not {"tool", "evidence", "selected", "gold"} & said.keys()


def test_a_room_has_a_plain_number() -> None:
    """Python reads digits of every script; a verifier of the table does not."""
    env = Rooms()
    env.reset(0)
    result = env.step({"seeker": "submit \N{ARABIC-INDIC DIGIT TWO} evidence 0"})
    assert result.info["valid"] == {"seeker": False}
    assert not result.terminated


# -- what the rewards of a step on a screen need ----------------------------------------------------------------------


def test_every_reward_of_screens_finds_its_columns() -> None:
    """As a recipe would name them, on an agent that clicks at random, and on one that does what is asked."""
    names = {
        "gui_g1_reward()": 1.375,
        'ui_r1_reward("action_type", "gold_type", "point", "target_box")': 2.0,
        'ui_venus_grounding("box", "target_box")': 0.9,
        'ui_venus_navigation("action_type", "gold_type", coordinates=stepwise_point("point", "gold_point"))': 1.8,
        'hybrid_reward(ui_r1_reward("action_type", "gold_type", "point", "target_box"), 1.0, "needs_judge")': 2.0,
        "gui_g1(gui_g1_reward())": None,
    }
    world = functools.partial(Gui, choices=True)

    def obey(seen: Observation, rng: np.random.Generator) -> str:
        return seen.text.rsplit("\n", 1)[1]

    right, chance = played(world, "user_agent", obey), played(world, "user_agent", random_choice, groups=40)
    assert right["success"].all()
    assert 0.1 < chance["success"].mean() < 0.5  # four boxes, which may overlap
    for text, best in names.items():
        signal = parse(text)
        assert np.isfinite(np.asarray(signal.evaluate(chance))).all(), text
        if best is not None:
            np.testing.assert_allclose(np.asarray(signal.evaluate(right)), best, err_msg=text)
            assert np.mean(np.asarray(signal.evaluate(chance))) < best


def random_choice(seen: Observation, rng: np.random.Generator) -> str:
    return seen.legal[rng.integers(len(seen.legal))]


def test_words_and_directions_are_read_and_compared() -> None:
    env = Gui(kinds=("type", "scroll"), steps=8, screens=8, boxes=2)
    seen, told = env.reset(1)["user_agent"], []
    while True:
        result = env.step({"user_agent": seen.text.rsplit("\n", 1)[1]})
        told.append(result.info)
        if not result.observations:
            break
        seen = result.observations["user_agent"]
    assert {info["gold_type"] for info in told} == {"type", "scroll"}
    assert all(info["content"] == info["gold_content"] and "target_box" not in info for info in told)
    assert result.info["success"]
    assert [info["needs_judge"] for info in told] == [info["gold_type"] == "type" for info in told]


@pytest.mark.parametrize(
    ("said", "point", "box"),
    [
        ("click 3 4", [3.0, 4.0], None),
        ("click 3.5, 4", None, None),
        ("box 0 0 10 20", [5.0, 10.0], [0.0, 0.0, 10.0, 20.0]),
        ("click 1 2 3", None, None),
        ("", None, None),
        ("click nowhere", None, None),
    ],
)
def test_points_and_boxes_are_read_from_text(said: str, point: list[float] | None, box: list[float] | None) -> None:
    env = Gui()
    env.reset(0)
    info = env.step({"user_agent": said}).info
    if said != "click 3.5, 4":
        assert (info.get("point"), info.get("box")) == (point, box)
        assert info["valid"] == {"user_agent": point is not None}
    else:
        assert info["point"] == [3.5, 4.0]


def test_evidence_and_plans_are_scored_from_the_columns_of_their_env() -> None:
    def obey(seen: Observation, rng: np.random.Generator) -> str:
        """Ask for all hours, then visit in an order that the gate accepts, at whatever hour."""
        wanted = seen.text.split("Visit ")[1].split(", an hour")[0].split(", ")
        visits = seen.text.count("visit ") - 1
        return f"visit {wanted[visits]} {9 + visits}" if visits < len(wanted) else "done"

    turns = played(Itinerary, "planner", obey, groups=30)
    paid = np.asarray(deep_travel_reward("gate", "detail").evaluate(turns))
    last = (turns.frame["gate"].is_not_null()).to_numpy()
    np.testing.assert_allclose(paid[last], turns["reward"].to_numpy()[last])
    assert len(set(paid[last])) > 2
    assert turns.filter(pl.col("gate"))["invented"].to_list() == [3] * 30


def test_wrong_options_of_a_screen_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'click'"):
        Gui(kinds=("clik",))
    with pytest.raises(InputError, match="boxes=1 from 2 to 10"):
        Gui(boxes=1)


def test_a_table_can_search_and_the_answer_comes_with_what_was_accepted() -> None:
    env = SearchEnv(2, noise=0.0, choices=True)
    seen = env.reset(3)["seeker"]
    wanted = re.findall(r"capital of (\w+)", seen.text)[0]
    assert seen.legal == tuple(move for move in env.moves if move.startswith("search"))
    found = env.step({"seeker": f"search {wanted}"})
    assert found.observations["seeker"].legal == ("yes", "no")
    town = found.info["found"].split()[0]
    assert env.step({"seeker": "yes"}).info["relevance"] == 1.0
    end = env.step({"seeker": f"answer {town}"})
    assert end.info["evidence"] == [1]
    assert end.info["selected"] == end.info["gold"] == [f"{town} is the capital of {wanted}."]
    assert (end.info["tool"], end.info["entities"], end.rewards) == ("submit", [wanted, town], {"seeker": 1.0})


def test_a_table_can_plan_a_day() -> None:
    env = Itinerary(1, choices=True)
    place = env.reset(0)["planner"].text.split()[1].strip(",")
    answer = env.step({"planner": f"hours {place}"}).observations["planner"].text
    opens = int(re.findall(r"open from (\d+)", answer)[0])
    env.step({"planner": f"visit {place} {opens}"})
    end = env.step({"planner": "done"})
    assert (end.info["gate"], end.info["details"], end.info["success"]) == (True, [True], True)
