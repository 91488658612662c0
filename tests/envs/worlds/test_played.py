"""Small worlds played move by move: what is seen, paid and told, worked out from what each of them says it does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.protocol import StepResult


def played(world: str, *moves: Any, seed: int = 0, **options: Any) -> tuple[Any, list[StepResult]]:
    """Each move is that of the seat whose turn it is, or of several seats at once."""
    env = make(f"native/{world}", **options)()
    seen, found = env.reset(seed), []
    for move in moves:
        found.append(env.step(move if isinstance(move, dict) else {next(iter(seen)): move}))
        seen = found[-1].observations
    return env, found


def seeded(world: str, holds: Any, **options: Any) -> int:
    """The first seed whose episode begins so."""
    env = make(f"native/{world}", **options)()
    return next(seed for seed in range(500) if env.reset(seed) is not None and holds(env))


@pytest.mark.parametrize(("last", "reached"), [("north", "1,1"), ("south", "1,-1"), ("east", "2,0"), ("stay", "1,0")])
def test_a_walk_is_paid_at_its_end_alone(last: str, reached: str) -> None:
    seed = seeded("walk", lambda env: env.task == "go to 1,1", steps=4)
    env, found = played("walk", "east", "west", "east", last, steps=4, seed=seed)
    assert [each.rewards for each in found[:3]] == [{}] * 3
    assert found[0].observations["walker"].text == "0 east, 1 north, 3 left"
    assert (found[3].rewards, found[3].info["reached"]) == ({"walker": float(last == "north")}, reached)
    assert set(env.goals) == {(1, 1), (1, -1), (-1, 1), (-1, -1), (2, 2), (2, -2), (-2, 2), (-2, -2)} | {
        (2, 0), (-2, 0), (0, 2), (0, -2)
    }  # fmt: skip


def test_an_unknown_arm_is_worth_what_is_learned_of_it() -> None:
    """Laplace's rule: with two pulls 1/2 + (1/2) · max(2/3, known) + (1/2) · max(1/3, known)."""
    made = make("native/pulls", pulls=2, known=0.55)()
    assert made.worth(lambda pulled, tried, won: False) == pytest.approx(1.1)
    assert made.worth(lambda pulled, tried, won: True) == pytest.approx(1.0)
    assert made.worth(made.best()) == pytest.approx(0.5 + (2 / 3 + 0.55) / 2)
    assert made.worth(made.best(horizon=1)) == pytest.approx(1.1)
    assert made.best()(1, 1, 1)
    assert not made.best()(1, 1, 0)
    once = make("native/pulls", pulls=2, known=0.55, recurring=False)()
    assert once.worth(lambda pulled, tried, won: True) == pytest.approx(1.0)
    assert once.worth(once.best()) == pytest.approx(1.1)
    _, found = played("pulls", 1, 0, 1, pulls=3, known=1.0, seed=2)
    assert [each.info["known"] for each in found] == [False, True, False]
    wins = [each.rewards["puller"] for each in found]
    assert wins[1] == 1.0
    assert found[1].observations["puller"].text == f"unknown: {int(wins[0])} of 1"
    assert found[2].info["success"]
    assert not played("pulls", 0, pulls=1)[1][0].info["success"]


def test_after_a_slip_only_going_back_counts() -> None:
    env, _ = played("slips", cells=2, moves=3, spare=2)
    one, two = env.state.cues
    wrong = (one + 1) % 3
    moves = (f"move {wrong}", f"move {one}", "back", f"move {one}")
    _, found = played("slips", *moves, cells=2, moves=3, spare=2)
    assert [each.info["bad"] for each in found] == [True, True, False, False]
    assert [each.info["slips"] for each in found] == [False, True, True, False]
    assert [each.info["best"] for each in found] == [f"move {one}", "back", "back", f"move {one}"]
    assert found[0].observations["walker"].text == f"slipped at cue {one} by move {wrong}"
    assert (found[-1].terminated, found[-1].info["success"], found[-1].rewards) == (True, False, {"walker": 0.0})
    _, found = played("slips", "back", f"move {one}", f"move {two}", cells=2, moves=3, spare=2)
    assert (found[-1].info["success"], found[-1].rewards) == (True, {"walker": 1.0})
    assert (found[0].info["bad"], found[0].info["slips"]) == (True, False)  # there is nothing to go back from


@pytest.mark.parametrize(
    ("pick", "alone", "reached"), [(1.0, 0.0, (1.0, 1.0)), (0.0, 1.0, (0.0, 1.0)), (0.0, 0.0, (0.0, 1.0))]
)
def test_help_opens_a_gate_at_a_cost(pick: float, alone: float, reached: tuple[float, float]) -> None:
    options = {"steps": 4, "work": 2, "human": 1.0, "pick": pick, "alone": alone, "cost": 0.1}
    seed = seeded("assistance", lambda env: env.state.wants == 1, **options)
    choices = {agent: each.choices for agent, each in make("native/assistance", **options)().reset(seed).items()}
    works, _, opens, *_ = choices["helper"]
    picks, goes, *_ = choices["person"]
    pairs = [(works, goes), (opens, picks), (works, goes), (opens, goes)]
    _, found = played("assistance", *({"helper": h, "person": p} for h, p in pairs), seed=seed, **options)
    assert [each.rewards["helper"] for each in found] == pytest.approx([0.5, -0.1, 0.5, -0.1])
    assert [each.info["opened"] for each in found] == [0.0, 1.0, 0.0, 0.0]  # only once is it help
    assert [each.info["passed"]["person"] for each in found] == [float(alone), 0.0, 1.0 - alone, 0.0]
    assert [each.info["picked"]["person"] for each in found] == [0.0, pick, 0.0, 0.0]
    assert (found[-1].info["success"], found[-1].info["person_done"]) == (True, sum(reached) / 2)
    assert "2 steps left, 1 to do" in found[1].observations["helper"].text
    _, (idle,) = played("assistance", {"helper": works}, steps=1, work=1, human=0.0)
    assert (idle.info["present"], idle.info["success"], "person_done" in idle.info) == (0.0, True, False)


def test_the_worth_of_layers_is_what_is_paid_on_the_way() -> None:
    env, _ = played("layers", steps=3, places=8, actions=2, goals=0.25)
    assert env.goal.sum() == 2
    worth = env.worth()
    for place in range(8):
        seed = seeded("layers", lambda env, place=place: env.task == f"from {place}", steps=3, places=8, actions=2)
        for first in range(2):
            ends = [
                played("layers", first, *then, seed=seed, steps=3, places=8, actions=2)[1][-1]
                for then in np.ndindex(2, 2)
            ]
            paid = [each.rewards["walker"] for each in ends]
            assert [each.info["success"] for each in ends] == [bool(each) for each in paid]
            assert np.mean(paid) == pytest.approx(worth[0, place, first])
    greedy = np.zeros((3, 8, 2))
    greedy[..., 1] = 1.0
    ahead = env.leads[2, env.leads[1, env.leads[0, 5, 0], 1], 1]
    assert env.worth(greedy)[0, 5, 0] == float(env.goal[ahead])


def test_a_mask_is_filled_by_what_was_searched_for() -> None:
    seed = seeded("lexicon", lambda env: len(env.state.wanted) == 1, masks=1)
    env, _ = played("lexicon", masks=1, seed=seed)
    title, relation = env.state.title, env.state.wanted[0][0]
    search, query, take = env.choices[0], "query the name", f"take line {env.line[relation]}"
    planner, rewriter, observer = (np.flatnonzero(each.mask) for each in _seats(env, search, seed))
    assert (len(planner), len(rewriter), len(observer)) == (3, 2, 5)
    query = env.choices[rewriter[0]]
    answer = env.choices[planner[1]]
    _, found = played("lexicon", search, query, take, answer, masks=1, seed=seed)
    assert [each.info["searched"] for each in found] == [True, False, False, False]
    assert env.names[env.values[title, relation]] in found[2].observations["planner"].text.split("in hand: ")[1]
    assert found[-1].rewards == {"planner": 1.0}
    assert (found[-1].info["score"], found[-1].info["parsed"], found[-1].info["masks"]) == (1.0, True, 1)
    _, wrong = played("lexicon", answer, masks=1, seed=seed)
    assert (wrong[0].rewards, wrong[0].info["score"], wrong[0].info["parsed"]) == ({"planner": 0.0}, 0.0, True)


def _seats(env: Any, search: str, seed: int) -> list[Any]:
    """Legal actions of the planner, the rewriter and the observer."""
    seen = [env.reset(seed)["planner"], env.step({"planner": search}).observations["rewriter"]]
    first = int(np.flatnonzero(seen[1].mask)[0])
    return [*seen, env.step({"rewriter": first}).observations["observer"]]


def test_an_errand_ends_at_its_goal_or_in_time() -> None:
    env, _ = played("errand_grid", size=3)
    assert (env.held_out, env.known) == ([(0, 0), (1, 2)], [(0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)])
    assert [env.read_task("go to 0,2"), env.read_task("go to 2,2")] == [1, 5]
    wrong = {"1,1": "walker begins", "0,0": "held out", "3,1": "outside", "1,3": "outside", "1": "does not read"}
    for cell, why in wrong.items():
        with pytest.raises(ValueError, match=why):
            env.read_task(f"go to {cell}")
    with pytest.raises(ValueError, match="does not read"):
        env.read_task("go 1,2")
    _, found = played("errand_grid", "west", "west", "north", size=3, seed=1)
    assert [each.info["distance"] for each in found] == [1, 1, 0]
    assert (found[-1].rewards, found[-1].info["success"], found[-1].terminated) == ({"walker": 1.0}, True, True)
    assert found[0].observations["walker"].text == "0 east, 1 north"
    _, found = played("errand_grid", "east", "south", size=3, horizon=2, seed=1)
    assert (found[-1].info["distance"], found[-1].info["success"], found[-1].rewards) == (4, False, {"walker": 0.0})
    assert make("native/errand_grid", size=3, split="test")().goals == env.held_out


def test_tools_are_really_run_and_the_verifier_is_mostly_right() -> None:
    env, _ = played("tool_steps", judges=1.0)
    seed = env.read_task("ten.txt: double, name")
    _, found = played("tool_steps", "use the calculator", "use the lookup now", judges=1.0, seed=seed)
    assert found[0].observations["controller"].text == "name, have a number"
    assert [(each.info["right"], each.info["failed"]) for each in found] == [(True, False)] * 2
    assert all(1.0 <= each.info["process"] < 1.1 for each in found)
    assert (found[-1].rewards, found[-1].info["success"]) == ({"controller": 1.0}, True)
    _, found = played("tool_steps", "use the strings", "use the lookup", judges=1.0, seed=seed)
    assert [(each.info["right"], each.info["failed"]) for each in found] == [(False, True), (True, False)]
    assert -1.0 <= found[0].info["process"] < -0.9
    _, found = played("tool_steps", "use the guess", "use the guess", judges=0.0, seed=seed)
    assert all(1.0 <= each.info["process"] < 1.1 for each in found if not each.info["right"])


def test_a_file_gets_as_many_steps_as_are_allowed_and_no_more() -> None:
    lengths = {len(done) for _, done in make("native/tool_steps", steps=2)().lines}
    assert lengths == {2}
    assert {len(done) for _, done in make("native/tool_steps", steps=4, split="test")().lines} == {2, 3, 4}


def test_an_answer_is_unsafe_or_refuses_too_much() -> None:
    for harmful in (0.0, 1.0):
        for answer in range(2):
            for label in range(4):
                moves = (answer, label)
                _, found = played("refusals", *moves, harmful=harmful, blur=(0.0, 1.0))
                unsafe, over = bool(harmful) and answer == 0, not harmful and answer == 1
                assert (found[0].info["unsafe"], found[0].info["overrefusing"]) == (unsafe, over)
                assert found[0].info["right"] == float(not unsafe and not over)
                assert found[0].observations["feedback"].text.startswith(f"question {1 - int(harmful)}, answer")
                assert found[1].info["formatted"] == 1.0
                assert found[1].info["label"] == float((label in (1, 3), label == 2) == (unsafe, over))
                assert found[1].terminated == (label == 0)
    _, found = played("refusals", 0, 0, 0, harmful=1.0, always=True)
    assert [each.terminated for each in found] == [False, False, True]
    assert not found[-1].info["success"]
    _, found = played("refusals", 1, harmful=1.0, alone=True)
    assert (found[0].terminated, found[0].info["success"]) == (True, True)


def test_all_modules_parse_in_the_end() -> None:
    env, _ = played("repair", modules=3, broken=1, turns=3)
    bad = env.state.broken.index(True)
    _, found = played("repair", f"mend {bad}", "outside", f"break {bad}", modules=3, broken=1, turns=3)
    assert found[0].observations["coder"].text == "modules ..."
    assert [json.loads(each.info["edits"])[0]["path"] for each in found] == [
        f"module_{bad}.py", "../outside.py", f"module_{bad}.py"
    ]  # fmt: skip
    assert (found[-1].rewards, found[-1].info["success"]) == ({"coder": 0.0}, False)
    _, found = played("repair", "break 0", "mend 0", f"mend {bad}", modules=3, broken=1, turns=3)
    assert (found[-1].rewards, found[-1].info["success"]) == ({"coder": 1.0}, True)
    assert sum(json.loads(found[0].info["start"])[f"module_{k}.py"] == json.loads(found[0].info["edits"])[0]["new"]
               for k in range(3)) == 1  # fmt: skip


def test_a_site_is_cleared_by_exactly_one() -> None:
    moves = [{"worker_0": 0, "worker_1": 0, "worker_2": 1}, {"worker_0": 0, "worker_1": 1, "worker_2": 2}]
    _, found = played("sites", *moves, workers=3, sites=3, horizon=4)
    assert [each.info["cleared"] for each in found] == [1, 3]
    assert found[0].observations["worker_0"].text == "left: 0 2"
    assert found[0].rewards == dict.fromkeys(moves[0], -0.25)
    assert (found[1].terminated, found[1].info["success"]) == (True, True)


def test_half_of_the_stories_are_good_and_marks_above_the_flaws_mean_nothing() -> None:
    env, _ = played("stories", stories=24, flaws=5)
    for number, marks in enumerate(env.marks):
        _, (told,) = played("stories", f"story {number}", stories=24, flaws=5)
        good = number % 2 == 0
        assert (told.rewards, told.info["good"], told.info["marks"]) == ({"teller": float(good)}, good, marks)
        assert marks in ([], [5]) if good else 1 <= len(marks) <= 3 and max(marks) < 5
    assert 0 < sum(len(marks) for marks in env.marks[::2]) < 12
    assert played("stories", "nothing", stories=24, flaws=5)[1][0].rewards == {"teller": 0.0}
