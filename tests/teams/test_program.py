"""Somebody's program as a team: it runs unchanged, its requests are turns, and any of its agents can be trained."""

from __future__ import annotations

import gc
import subprocess
import sys
import time

import polars as pl
import pytest
import torch

import palaestra as pa
from palaestra.agents import LMPolicy, ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.credit import grpo
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.executors import Local
from palaestra.play.rollout import rollout
from palaestra.runs.trust import code_in
from palaestra.teams import program
from palaestra.teams.program import _IDLE, end_idle

ROLES = {"planner": "You are the planner", "writer": "You are the writer"}
HERE = "tests.teams.plain_programs:"


class Sums(TaskEnv):
    """a + b."""

    def draw(self, seed: int) -> Task:
        a, b = seed % 5, seed // 5 % 5
        return Task(f"{a}+{b}", f"{a} + {b} =", lambda text: float(int(text) == a + b), str(a + b))


def adds(request: Request) -> str:
    a, _, b, *_ = request.observation.text.split()
    return str(int(a) + int(b))


def team(**scripts: object) -> Team:
    return Team({name: ScriptedPolicy(script, name=name) for name, script in scripts.items()})  # type: ignore[arg-type]


def test_requests_are_turns_of_who_is_asked() -> None:
    made = program(Sums, HERE + "chain", ROLES)
    rows = rollout(made, team(planner=lambda request: "add them", writer=adds), groups=3, group_size=2, seed=1).frame
    assert rows["agent"].to_list() == ["planner", "writer"] * 6
    assert rows["success"].all()
    assert rows["reward"].to_list() == [1.0] * 12
    assert rows["asked_model"].unique().to_list() == ["m"]
    read = rows.filter(pl.col("agent") == "writer")["observation"].to_list()
    assert all(text.endswith("= add them") for text in read), "what one said, the program told the other"
    final = rows.filter(pl.col("agent") == "writer")
    assert final["final"].to_list() == final["expected"].to_list()


def test_a_coroutine_and_a_command() -> None:
    made = program(Sums, HERE + "later", ["planner"])
    assert rollout(made, team(planner=adds), groups=2, group_size=1, seed=1).frame["success"].all()
    script = (
        "import sys\nfrom tests.teams.plain_programs import ask\nprint('working')\n"
        "print(ask('You are the planner.', sys.stdin.read()))"
    )
    made = program(Sums, agents=["planner"], command=[sys.executable, "-P", "-c", script])
    assert rollout(made, team(planner=adds), groups=2, group_size=1, seed=1).frame["success"].all()


def test_coroutines_share_one_loop() -> None:
    made = program(Sums, HERE + "keeps_a_client", ["planner"])
    rows = rollout(made, team(planner=adds), groups=3, group_size=1, seed=1, concurrency=1).frame
    assert rows["success"].to_list() == [True] * 3, rows["error"].to_list()


def test_what_is_asked_behind_the_answer_is_no_turn_of_the_next_question() -> None:
    env = program(Sums, HERE + "writes_its_memory_later", {"planner": ""})()
    for seed in (1, 2):
        seen = env.reset(seed)["planner"]
        assert not seen.text.startswith("remember")
        assert env.step({"planner": "1"}).terminated
        time.sleep(0.8)
    assert env._running[0].process.poll() is None  # type: ignore[attr-defined]


def test_a_process_that_is_used_again_has_the_patience_of_who_uses_it() -> None:
    gc.collect()
    end_idle()
    first = program(Sums, HERE + "chain", ROLES, patience=0.3)()
    for seen, said in ((first.reset(1), {"planner": "x"}), (None, {"writer": "1"})):
        assert seen is None or set(seen) == {"planner"}
        first.step(said)
    running = first._running[0]  # type: ignore[attr-defined]
    del first
    gc.collect()
    second = program(Sums, HERE + "chain", ROLES, patience=30)()
    second.reset(1)
    assert second._running[0] is running  # type: ignore[attr-defined]
    time.sleep(0.6)
    assert set(second.step({"planner": "x"}).observations) == {"writer"}


def test_an_env_that_goes_away_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    env = program(Sums, HERE + "chain", ROLES, patience=0.3)()
    env.reset(1)
    del env
    gc.collect()
    time.sleep(0.8)
    assert "Exception" not in capfd.readouterr().err


def test_requests_under_way_at_once_are_one_turn() -> None:
    made = program(Sums, HERE + "together", ROLES, together=1.0)  # a busy machine starts threads late
    rows = rollout(made, team(planner=lambda r: "1", writer=lambda r: "2"), groups=1, group_size=1, seed=1).frame
    assert rows["turn"].to_list() == [0, 0]
    assert set(rows["final"]) == {"1 2"}
    both = program(Sums, HERE + "together", {"both": ""}, together=1.0)
    rows = rollout(both, team(both=lambda r: "1"), groups=1, group_size=1, seed=1).frame
    assert rows["turn"].to_list() == [0, 1], "one agent has one request a turn"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alone", "without asking anybody"),
        ("broken", "ValueError: no such file.*the last words"),
        ("many", "HTTP Error 400"),
        ("stuck", "neither asked nor answered for 0.5 s"),
    ],
)
def test_a_program_that_fails_is_an_error_of_its_rows_and_the_next_episode_goes_on(name: str, message: str) -> None:
    made = program(Sums, HERE + name, ["planner"], patience=0.5 if name == "stuck" else 60)
    rows = rollout(made, team(planner=adds), groups=2, group_size=1, seed=1).frame
    assert rows["error"].str.contains(f"(?s){message}").all(), rows["error"].to_list()
    assert rows["group"].to_list() == [0, 1]


def test_what_cannot_be_is_named() -> None:
    for options, message in (
        ({"program": HERE + "chain", "agents": {}}, "at least one"),
        ({"program": HERE + "chain", "agents": {"a": "x", "b": "x"}}, "words of its own"),
        ({"program": "chain"}, "module:name"),
        ({}, "either"),
        ({"program": HERE + "chain", "patience": 0}, "patience"),
        ({"program": HERE + "chain", "together": 0}, "together"),
    ):
        with pytest.raises(InputError, match=message):
            program(Sums, **options)
    with pytest.raises(InputError, match="cannot be loaded"):
        rollout(program(Sums, HERE + "nobody"), team(agent=adds), groups=1, group_size=1, seed=1)
    with pytest.raises(InputError, match=r"accountant.*is of none of the agents planner, writer"):
        rollout(program(Sums, HERE + "strange", ROLES), team(planner=adds, writer=adds), groups=1, group_size=1, seed=1)


def test_a_recipe_that_runs_a_program_names_code() -> None:
    assert [each.module for each in code_in({"env": {"workflow": "program('mine:graph')"}})] == ["mine"]
    found = code_in({"env": {"workflow": "program(command=['python', 'mine.py'], agents=['a'])"}})
    assert [each.field for each in found] == ["env.workflow"]
    assert "python mine.py" in found[0].module


def ended(process: subprocess.Popen[str]) -> bool:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process.poll() is not None


def test_processes_are_used_again_and_end() -> None:
    gc.collect()
    end_idle()
    env = program(Sums, HERE + "chain", ROLES)()
    env.reset(1)
    process: subprocess.Popen[str] = env._running[0].process  # type: ignore[attr-defined]
    assert process.poll() is None
    del env
    gc.collect()
    assert ended(process), "in the middle of a question"
    made = program(Sums, HERE + "chain", ROLES)
    used = set()
    for _ in range(2):
        rollout(made, team(planner=adds, writer=adds), groups=1, group_size=1, seed=1)
        deadline = time.monotonic() + 60
        while not _IDLE[(HERE + "chain",)] and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
        (idle,) = _IDLE[(HERE + "chain",)]
        used.add(idle.process)
    assert len(used) == 1
    end_idle()
    assert ended(idle.process)


def test_a_langgraph_program_is_evaluated_and_one_of_its_agents_is_trained() -> None:
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain_openai")
    known = {"router": "You are the router", "solver": "You are the solver"}
    made = program(Sums, "tests.teams.langgraph_program:graph", known, patience=600)  # it imports a lot

    def solves(request: Request) -> str:
        last = request.observation.messages[-1]  # type: ignore[index]
        if last["role"] == "tool":
            return str(last["content"])
        a, _, b, *_ = str(request.observation.text).split()
        return f'<tool_call>{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}</tool_call>'

    solver = ScriptedPolicy(solves, name="solver")
    good = Team(router=ScriptedPolicy(lambda request: "sum", name="router"), solver=solver)
    rows = rollout(made, good, groups=4, group_size=1, seed=1, concurrency=1, timeout=None).frame
    assert rows["agent"].to_list() == ["router", "solver", "solver"] * 4
    assert rows["success"].all(), "tools are called and their results are read"
    assert rows.filter(pl.col("agent") == "solver")["asked_model"].unique().to_list() == ["gpt-4o-mini"]

    router = LMPolicy.tiny(["sum", "echo", "1 + 2 ="], name="router", hidden=16, layers=1, heads=2, max_new_tokens=2)
    learned = Team(router=router, solver=solver)
    played = rollout(made, learned, groups=8, group_size=1, seed=1, concurrency=1, timeout=None).frame
    imitate(router, played.filter(pl.col("agent") == "router"), ["sum", "echo"])
    trained = pa.Trainer(
        made, learned, credit=grpo(), learner=pa.PolicyGradient(learned, lr=0.03), iterations=5, groups=2,
        group_size=8, seed=3, executor=Local(concurrency=1, timeout=None), save_turns="all",
    )  # fmt: skip
    history = trained.run()
    rates = [each["success"] for each in history]
    assert rates[-1] > rates[0] + 0.25, rates


def imitate(policy: LMPolicy, rows: pl.DataFrame, answers: list[str]) -> None:
    """Make each answer about as likely, given the prompts of these rows."""
    tokens = [policy.tokenizer(text, add_special_tokens=False)["input_ids"] for text in answers]
    ids = [[*tokens[row % len(tokens)], policy.tokenizer.eos_token_id] for row in range(rows.height)]
    rows = rows.with_columns(pl.Series("action_ids", ids, pl.List(pl.Int32)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    for _ in range(40):
        scored = policy.score(rows)
        optimizer.zero_grad()
        (-(scored.logprobs * scored.mask).sum() / rows.height).backward()
        optimizer.step()
