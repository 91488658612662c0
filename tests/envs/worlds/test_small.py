"""What the smallest worlds pay for, step by step."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from palaestra import envs
from palaestra.envs.prefixed import Prefixed
from palaestra.envs.protocol import StepResult
from palaestra.envs.worlds.grid_world import KEYS
from palaestra.errors import InputError


def episode(name: str, *actions: Any, seed: int = 0, **options: Any) -> tuple[Any, list[StepResult]]:
    env = envs.make(name, **options)()
    seen, results = env.reset(seed), []
    for action in actions:
        given = action if isinstance(action, dict) else {next(iter(seen)): action}
        results.append(env.step(given))
        seen = results[-1].observations
    return env, results


def test_questions_narrow_what_may_be_said() -> None:
    env, results = episode("native/inquiry", "ask 0", "ask 5", "ask 2", "ask 1", bits=3, values=True)
    counts = [int(np.sum(each.observations["seeker"].mask)) - 6 for each in results]
    assert counts == [4, 4, 2, 1]
    number = int(env.task.split()[1])
    assert f"bit 2 is {number >> 2 & 1}" in results[-1].observations["seeker"].text
    assert [each.info["known"] for each in results] == [0, 1, 1, 2]
    assert results[0].info["gold_text"] == f"say {number}"
    last = env.step({"seeker": f"say {number}"})
    assert (last.rewards, last.info["success"]) == ({"seeker": 1.0}, True)


def test_in_the_end_one_must_answer() -> None:
    env, results = episode("native/inquiry", "ask 5", "ask 5", turns=2, early=False)
    assert not results[0].observations["seeker"].mask[6:].any()
    assert not results[1].observations["seeker"].mask[:6].any()
    assert env.step({"seeker": "ask 0"}).info["success"] is False


def test_what_is_known_may_be_forgotten() -> None:
    _, results = episode("native/inquiry", "ask 0", "ask 5", "ask 0", bits=1, doubt=1.0, turns=9)
    assert [each.observations["seeker"].text for each in results] == [
        "known: bit 0",
        "known: nothing",
        "known: bit 0",
    ]


def test_a_lock_opens_for_the_whole_combination_only() -> None:
    env, _ = episode("native/lock")
    right = env.right[0].tolist()
    _, opened = episode("native/lock", *right)
    assert opened[-1].rewards == {"opener": 1.0}
    assert opened[0].info["reference"] == [f"turn to {number}" for number in right]
    _, shut = episode("native/lock", *right[:-1], (right[-1] + 1) % 4)
    assert shut[-1].rewards == {"opener": 0.0}
    assert [each.info["right"] for each in shut] == [True] * 7 + [False]


def test_a_lock_can_end_at_the_first_wrong_number_and_pay_for_the_way() -> None:
    options = {"steps": 4, "ends": True, "gamma": 0.4}
    right = envs.make("native/lock", steps=4)().right[0].tolist()
    wrong = [(number + 1) % 4 for number in right]
    for tries, paid in (([*right[:3], wrong[3]], 0.624), ([*right[:2], wrong[2]], 0.224), ([wrong[0]], 0.0)):
        _, ended = episode("native/lock", *tries, **options)
        assert ended[-1].rewards["opener"] == pytest.approx(paid)
        assert ended[-1].terminated
        assert not ended[-1].info["success"]
    _, opened = episode("native/lock", *right, **options)
    assert opened[-1].rewards["opener"] == 1.0
    _, silent = episode("native/lock", *right[:2], wrong[2], **{**options, "gamma": 0.0})
    assert silent[-1].rewards["opener"] == 0.0


def test_a_forced_beginning_is_what_happens() -> None:
    env, _ = episode("native/lock")
    names = [f"turn to {number}" for number in env.right[0]]
    forced = Prefixed(envs.make("native/lock"), {5: names[:7]})
    seen, told = forced.reset(5), []
    while seen:
        result = forced.step({"opener": int(env.right[0][-1])})
        told.append(result.info)
        seen = result.observations
    assert result.rewards == {"opener": 1.0}
    assert [each["hint"] for each in told] == [True] * 7 + [False]
    assert told[0]["hint_id"] == {"opener": env.right[0][0]}
    forced.reset(6)
    assert not forced.step({"opener": 0}).info["hint"], "another seed is not forced"


def test_programs_take_time_and_print_how_far_they_came() -> None:
    for action, reward, seconds, lines in (("slow", 1.0, 20.0, 7), ("fast", 0.5, 1.0, 7), ("broken 2", None, 1.0, 2)):
        _, (result,) = episode("native/jobs", action, broken=3)
        assert result.rewards == {"engineer": reward}
        assert result.info["seconds"] == seconds
        assert len(result.info["log"].split("\n")) == lines
    _, (result,) = episode("native/jobs", "boast", boast=True)
    assert (result.info["log"], len(result.info["printed"].split("\n"))) == ("", 7)
    assert result.rewards == {"engineer": None}
    env = envs.make("native/jobs", improve=1.0)()
    assert env.reset(0)["engineer"].text == "improve the program fast, which scores 0.5"


def test_letting_go_counts() -> None:
    _, results = episode("native/dial", "up", "up", "let go", target=4)
    assert [each.info["distance"] for each in results] == [0.75, 0.5, 0.5]
    assert results[-1].rewards == {"hand": 0.0}
    _, results = episode("native/dial", *["up"] * 4, "let go", target=4)
    assert results[-1].rewards == {"hand": 1.0}
    assert results[-1].info["success"]


def test_the_way_is_chosen_before_the_answer() -> None:
    _, results = episode("native/lookup", "search 2 times", "strategy 0", chances=[[0.0], [0.0], [1.0]])
    assert [each.info["searches"] for each in results] == [2, 2]
    assert results[-1].info["success"]
    assert not episode("native/lookup", "search 1 times", 3, chances=[[0.0], [0.0], [1.0]])[1][-1].info["success"]


def test_local_rewards_may_point_the_wrong_way() -> None:
    _, results = episode("native/memory_team", 3, 3, 3)
    assert [next(iter(each.rewards.values())) for each in results] == [0.2, 0.0, 0.2]
    assert results[-1].info["success"], "1 · 1 · 1"


def test_an_attack_succeeds_if_most_comply() -> None:
    seed = next(seed for seed in range(20) if "attacker_0" in envs.make("native/guardians")().reset(seed))
    votes = {"defender_0": 1, "defender_1": 0, "defender_2": 0}
    _, (first, last) = episode("native/guardians", "attack 3", votes, seed=seed)
    assert "attack 3" in first.observations["defender_1"].text
    assert last.rewards == {**dict.fromkeys(votes, 0.5), "attacker_0": 1.0}
    _, (_, last) = episode("native/guardians", "attack 3", votes | {"defender_1": 1}, seed=seed)
    assert last.info["safe"]
    assert last.info["success"] == {**dict.fromkeys(votes, True), "attacker_0": False}


def test_a_team_is_judged_as_a_whole_and_by_each_decision() -> None:
    seed = next(seed for seed in range(20) if envs.make("native/team_builder")().reset(seed)["builder"].text[6] == "0")
    _, results = episode(
        "native/team_builder", "add plan", "add plan", "add search", "add code to plan", "stop", seed=seed
    )
    assert [each.info["action_reward"] for each in results] == [0.2, -0.2, -0.2, 0.2, 0.0]
    assert results[-1].rewards == {"builder": pytest.approx(1 - 4 * 0.05)}
    assert not results[0].observations["builder"].mask[results[0].observations["builder"].index("stop") - 2]


def test_calls_may_come_in_any_order() -> None:
    env = envs.make("roles/calls")()
    env.reset(0)
    gold = env.gold[0]
    _, results = episode("roles/calls", *gold[::-1])
    assert results[-1].rewards == {"caller": 1.0}
    assert [each["name"] for each in json.loads(results[0].info["gold"])] == [f"tool_{number}" for number in gold]
    assert json.loads(results[0].info["calls"]) == [{"name": f"tool_{gold[-1]}", "arguments": {}}]
    _, results = episode("roles/calls", *gold[:3], gold[0])
    assert results[-1].rewards == {"caller": 0.0}


def test_a_hit_does_not_depend_on_the_size_of_the_box() -> None:
    env = envs.make("native/grounding", cells=2)()
    seen = env.reset(0)["clicker"]
    target = env.targets[int(env.task.split()[1])]
    right = [
        number
        for number, (left, top, *_), centre in ((n, b, env.centres[n // 4]) for n, b in enumerate(env.boxes))
        if target[0] <= centre[0] * 100 <= target[2] and target[1] <= centre[1] * 100 <= target[3]
    ]
    paid = [episode("native/grounding", number, cells=2)[1][0] for number in range(len(seen.choices))]
    assert [number for number, each in enumerate(paid) if each.rewards["clicker"]] == right[:3], "cut at the edge"
    share = np.prod(np.array(target[2:]) - target[:2]) / 100**2
    assert paid[0].info["difficulty"] == pytest.approx(1 - share**0.5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("native/grounding", {"cells": 0}),
        ("native/inquiry", {"bits": 0}),
        ("native/lock", {"numbers": 1}),
        ("native/lock", {"gamma": 2.0}),
        ("native/call", {"tasks": 0}),
        ("native/hops", {"hops": 0}),
        ("native/plan", {"details": 0}),
        ("native/verdict", {"chances": [2.0]}),
        ("native/desktop", {"values": 1}),
        ("native/jobs", {"broken": 8}),
        ("native/jobs", {"improve": 2.0}),
        ("native/dial", {"target": 0}),
        ("native/lookup", {"chances": [[2.0]]}),
        ("native/memory_team", {"agrees": [True]}),
        ("native/guardians", {"kinds": 0}),
        ("native/team_builder", {"horizon": 0}),
        ("roles/calls", {"needed": 7}),
    ],
)
def test_options_out_of_range(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        envs.make(name, **options)()


def test_a_task_in_several_wordings_has_one_right_answer() -> None:
    env = envs.make("native/answers", tasks=1, wordings=2)()
    seen = {env.reset(seed)["answerer"].text: env.step({"answerer": 3}).info for seed in range(20)}
    assert set(seen) == {"task 0, wording 0", "task 0, wording 1"}
    assert {told["wording"] for told in seen.values()} == {0, 1}
    assert len({told["correct"] for told in seen.values()}) == 1


def test_a_call_is_said_part_by_part() -> None:
    env, _ = episode("native/call", tasks=1)
    right = env.gold[0]
    env, said = episode("native/call", *right, tasks=1)
    assert said[-1].rewards == {"caller": 1.0}
    assert said[-1].info["calls"] == said[-1].info["gold"]
    assert env.reset(0)["caller"].legal == ("option 0", "option 1", "option 2"), "three tools"
    _, wrong = episode("native/call", right[0], right[1], (right[2] + 1) % 5, tasks=1)
    assert wrong[-1].rewards == {"caller": 0.0}
    assert wrong[-1].info["calls"] != wrong[-1].info["gold"]
    assert said[0].observations["caller"].text == wrong[0].observations["caller"].text


def test_a_point_is_hit_or_near() -> None:
    env, _ = episode("native/pointing", tasks=1)
    across, down = env.gold[0]
    step = 1 if across < 15 else -1
    for off, hit in ((0, True), (1, True), (2, False)):
        _, said = episode("native/pointing", across + off * step, down, tasks=1)
        assert said[-1].info["distance"] == pytest.approx(10.0 * off)
        assert said[-1].rewards == {"user_agent": float(hit)}
    _, none = episode("native/pointing", "option 99", down, tasks=1)
    assert "point" not in none[-1].info


def test_hops_tell_what_was_read_on_every_turn() -> None:
    env, _ = episode("native/hops", tasks=1)
    right = env.gold[0]
    _, said = episode("native/hops", *right, tasks=1)
    assert [each.info.get("found") for each in said[:-1]] == said[-1].info["entities"]
    assert "found" not in said[-1].info, "an answer is not read"
    assert said[-1].rewards == {"seeker": 1.0}
    _, wrong = episode("native/hops", (right[0] + 1) % 5, *right[1:], tasks=1)
    assert wrong[-1].rewards == {"seeker": 0.0}


def test_an_outcome_does_not_see_inventions() -> None:
    env, _ = episode("native/plan")
    slot = env.feasible[0]
    _, said = episode("native/plan", slot, 1, 0, 1, 0)
    assert said[-1].rewards == {"planner": 1.0}
    assert (said[-1].info["gate"], said[-1].info["detail"], said[-1].info["invented"]) == (True, 0.5, 2)
    _, shut = episode("native/plan", (slot + 1) % 5, 0, 0, 0, 0)
    assert shut[-1].rewards == {"planner": 0.0}
    assert shut[-1].info["invented"] == 0


def test_cues_tell_the_odds() -> None:
    found = [episode("native/verdict", "yes", seed=seed, chances=[0.8])[1][-1] for seed in range(300)]
    assert np.mean([each.info["relevance"] > 0.5 for each in found]) == pytest.approx(0.8, abs=0.08)
    assert all(each.rewards["reader"] == float(each.info["relevance"] > 0.5) for each in found)
    assert {each.info["judge"] for each in found} == {1}


def test_settings_can_have_fewer_values() -> None:
    env, _ = episode("native/desktop", values=3)
    assert env.moves == ("set 0", "set 1", "set 2", "done", "infeasible")
    goal = env.state.params["value"]
    _, said = episode("native/desktop", goal, "done", values=3)
    assert said[-1].rewards == {"user_agent": 1.0}


def test_every_number_may_be_the_answer() -> None:
    """The first is said by the first choice after the questions."""
    for seed in range(8):
        env, results = episode("native/inquiry", "say 0", bits=1, seed=seed)
        assert results[0].terminated
        right = float(env.task == "number 0")
        assert (results[0].rewards, results[0].info["success"]) == ({"seeker": right}, bool(right))
        assert results[0].info["gold"] == 6 + 1 - int(right)


def test_a_push_moves_a_sample_beside_its_drift() -> None:
    """Without noise x' = x + .3 (tanh 3x - x) + push, and the last x is paid by its distance from 1."""
    for name, pushed in (("down", -0.2), ("as it is", 0.0), ("up", 0.2)):
        env = envs.make("native/denoise", steps=1, noise=0.0, push=0.2)()
        seen = env.reset(3)["sampler"]
        x = float(env.task.split()[1])
        assert seen.text == f"step 0, x {round(4 * x) / 4:+.2f}"
        result = env.step({"sampler": name})
        x += 0.3 * (np.tanh(3 * x) - x) + pushed
        assert result.info["sample"] == pytest.approx(x)
        assert result.rewards["sampler"] == pytest.approx(-((x - 1) ** 2))
        assert result.info["success"] == (abs(x - 1) < 0.5)


def test_who_never_arrives_stops_at_the_limit() -> None:
    from palaestra.envs.worlds.automation_grid import LIMIT

    env = envs.make("native/automation_grid", levels=["L2"])()
    seen, steps = env.reset(0), 0
    while seen:
        result = env.step(dict.fromkeys(seen, "wait"))
        seen, steps = result.observations, steps + 1
    assert (steps, result.rewards, result.info["success"]) == (LIMIT, {"operator": 0.0}, False)


def test_the_right_fix_solves_and_advice_is_that_of_the_cause() -> None:
    env = envs.make("native/retries", causes=3, tries=2, skill=1.0, luck=(0.0, 0.0))()
    env.reset(4)
    cause = env.state.cause
    first = env.step({"actor": f"fix {(cause + 1) % 3}"})
    assert (first.rewards, first.info["score"]) == ({"actor": 0.0}, 0.0)
    assert first.observations["reflector"].text == f"it failed like {cause}"
    told = env.step({"reflector": f"fix {cause}"})
    assert told.info["advised"] == 1.0
    assert told.observations["actor"].text == f"task, advice: fix {cause}"
    last = env.step({"actor": f"fix {cause}"})
    assert (last.rewards, last.info["success"], last.terminated) == ({"actor": 1.0}, True, True)


def test_each_try_scores_the_part_of_its_task_and_a_success_the_rest() -> None:
    """With progress .8 a failed try scores the task's part, from 0 to .8, a success .2 more, and is paid as much."""
    env = envs.make("native/retries", causes=3, tries=2, skill=1.0, luck=(0.0, 0.0), progress=0.8)()
    parts = []
    for seed in range(20):
        env.reset(seed)
        cause = env.state.cause
        part = env.step({"actor": f"fix {(cause + 1) % 3}"}).info["score"]
        env.step({"reflector": f"fix {cause}"})
        last = env.step({"actor": f"fix {cause}"})
        assert last.info["score"] == last.rewards["actor"] == pytest.approx(part + 0.2)
        parts.append(part)
    assert 0 <= min(parts) < 0.2
    assert 0.6 < max(parts) < 0.8


def test_a_key_that_is_none_stands_still_for_a_step() -> None:
    env = envs.make("native/explored_grid", test="plan", explore=3)()
    before = env.reset(1)["explorer"]
    for choice in (before.choices[len(KEYS)], "no key"):
        after = env.step({"explorer": choice}).observations["explorer"]
        assert after.text.splitlines()[-1].split(" time")[0] == before.text.split(" time")[0]
