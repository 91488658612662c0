"""Our team procedures as verifiers' environments, played by its own rollout against a server in this process."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from palaestra.envs.protocol import Observation, StepResult
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, MissingExtraError
from palaestra.learning.adapters.verifiers import _pay, environment, load_environment
from palaestra.teams import pipeline

pytest.importorskip("datasets")


@pytest.fixture
def vf() -> Any:
    found = pytest.importorskip("verifiers")
    try:
        _ = found.MultiTurnEnv
    except AttributeError:
        pytest.skip("another verifiers, or not all of it")
    return found


class Sums(TaskEnv):
    """What is 1 + seed?"""

    def draw(self, seed: int) -> Task:
        return Task(f"1+{seed}", f"1 + {seed}", lambda text: float(text == str(1 + seed)), str(1 + seed))


@pytest.fixture
def server() -> Iterator[tuple[str, list[Any]]]:
    """An OpenAI-compatible endpoint: a solver that says 9, and a checker that repairs it."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body["messages"])
            words = "3" if "|" in str(body["messages"]) else "9"
            answer = {
                "id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": words}}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
            }  # fmt: skip
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}/v1", asked
    made.shutdown()


@pytest.mark.usefixtures("vf")
def test_a_rollout_of_verifiers_plays_a_team(server: tuple[str, list[Any]]) -> None:
    from openai import AsyncOpenAI
    from verifiers.clients.openai_chat_completions_client import OpenAIChatCompletionsClient

    url, asked = server
    game = environment(pipeline(Sums, improvement=0.5), range(2, 4))
    assert [row["info"]["name"] for row in game.dataset] == ["1+2", "1+3"]
    client = OpenAIChatCompletionsClient(AsyncOpenAI(base_url=url, api_key="none"))
    row = dict(game.dataset[0]) | {"example_id": 0}
    state = asyncio.run(game.rollout(row, client, "tiny", {"temperature": 1.0}))
    assert state.get("error") is None
    steps = state["trajectory"]
    assert [(each["extras"]["agent"], each["extras"]["turn"], each["reward"]) for each in steps] == [
        ("solver", 0, 1.0),
        ("checker", 1, 1.5),
    ]
    assert [messages[-1]["content"] for messages in asked] == ["1 + 2", "1 + 2 | 9"], "each reads its own prompt only"
    assert len({each["extras"]["state"] for each in steps}) == 2
    asyncio.run(game.rubric.score_rollout(state))
    assert state["reward"] == pytest.approx(1.25)


def test_verifiers_finds_it_by_the_name_of_its_module(vf: Any) -> None:
    try:
        load = vf.load_environment
    except AttributeError:
        pytest.skip("not all of verifiers is installed")
    game = load("palaestra.learning.adapters.verifiers", env="native/corridor", episodes=3)
    assert len(game.dataset) == 3


class Game:
    """What verifiers' `MultiTurnEnv` does here: it keeps what it is given, and the steps."""

    def __init__(self, **given: Any) -> None:
        self.__dict__ |= given

    async def add_trajectory_step(self, state: Any, step: Any) -> None:
        state["trajectory"].append(step)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"MultiTurnEnv": Game, "Rubric": SimpleNamespace, "stop": lambda method: method}
    monkeypatch.setitem(sys.modules, "verifiers", SimpleNamespace(**parts))


@pytest.mark.usefixtures("stand_in")
def test_what_an_agent_gets_is_for_its_last_step_and_the_rollout_is_paid_the_mean() -> None:
    game = environment(pipeline(Sums, improvement=0.5), range(2, 4))
    state: dict[str, Any] = {"info": game.dataset[1]["info"], "trajectory": []}

    async def play(*words: str) -> tuple[list[Any], float]:
        await game.setup_state(state)
        seen = []
        for said in words:
            seen.append((await game.get_prompt_messages(state))[-1]["content"])
            assert not await game.game_over(state)
            step = {"prompt": [], "completion": [{"content": f" {said}"}], "extras": {}}
            await game.add_trajectory_step(state, step)
        assert await game.game_over(state)
        return seen, await game.rubric.funcs[0](state)

    seen, paid = asyncio.run(play("9", "4"))
    assert ["1 + 3" in each for each in seen] == [True, True]
    assert ['<message from="solver">\n9\n</message>' in each for each in seen] == [False, True]
    steps = [(each["extras"]["agent"], each["extras"]["turn"], each["reward"]) for each in state["trajectory"]]
    assert steps == [("solver", 0, 1.0), ("checker", 1, 1.5)]
    assert paid == 1.25
    assert asyncio.run(game.rubric.funcs[0]({})) == 0


def test_what_is_paid_twice_adds_up() -> None:
    steps: list[Any] = [{"extras": {"agent": agent}, "reward": 0.0} for agent in "abab"]
    state: dict[str, Any] = {"paid": {}, "trajectory": steps}
    for rewards in ({"a": 1.0, "b": None}, {"a": 2.0, "b": 4.0, "absent": 8.0}):
        _pay(state, SimpleNamespace(rewards=rewards))  # type: ignore[arg-type]
    assert state["paid"] == {"a": 3.0, "b": 4.0, "absent": 8.0}
    assert [each["reward"] for each in steps] == [0, 0, 3, 4]


@pytest.mark.usefixtures("stand_in")
def test_it_is_made_by_name_and_refuses_what_it_cannot_play() -> None:
    made = load_environment("native/corridor", episodes=3)
    assert [row["info"]["seed"] for row in made.dataset] == [0, 1, 2]
    later = load_environment("native/corridor", episodes=2, seed=5)
    assert [row["info"]["seed"] for row in later.dataset] == [5, 6]

    class Both:
        agents: tuple[str, ...] = ("a", "b")
        task = "both"

        def reset(self, seed: int) -> Any:
            return {agent: Observation("now") for agent in self.agents}

        def step(self, actions: Any) -> StepResult:
            return StepResult({}, terminated=True)

    with pytest.raises(InputError, match="a, b act at once"):
        environment(Both, [0])
    with pytest.raises(InputError, match="no seeds"):
        environment(Sums, [])


def test_without_verifiers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtraError, match=r"pip install verifiers==0\.1\.14"):
        environment(Sums, [0])
