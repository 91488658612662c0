"""Our envs as a plugin of verifiers 0.4: played by its own runner, interception and clients against a server in this
process; without verifiers the same loop against players that stand in."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pydantic
import pytest

from palaestra.agents import tiny
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, MissingExtraError
from palaestra.learning.adapters.prime_rl import assign, to_turns
from palaestra.learning.adapters.verifiers_v1 import plugin
from palaestra.teams import pipeline


class Sums(TaskEnv):
    """What is 1 + seed?"""

    def draw(self, seed: int) -> Task:
        return Task(f"1+{seed}", f"1 + {seed}", lambda text: float(text == str(1 + seed)), str(1 + seed))


class Numbers:
    """All say a number at once, three times; it is worth itself, ten times itself, a hundred times itself."""

    agents: tuple[str, ...] = ("ann", "bob")
    task = "numbers"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.round = 0
        return self._seen()

    def _seen(self) -> dict[str, Observation]:
        return {agent: Observation(f"{agent}, round {self.round}") for agent in self.agents}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        rewards: dict[str, float | None] = {agent: float(said) * 10**self.round for agent, said in actions.items()}
        valid = {agent: said != "0" for agent, said in actions.items()}
        self.round += 1
        over = self.round == 3
        info = {"valid": valid, **({"success": {self.agents[0]: True}} if over else {})}
        return StepResult({} if over else self._seen(), rewards, terminated=over, info=info)


class Alone(Numbers):
    """One agent, who reads what it said before."""

    agents = ("lab-1",)

    def _seen(self) -> dict[str, Observation]:
        talk = self._talk()
        return {"lab-1": Observation("\n".join(each["content"] for each in talk), messages=talk)}

    def _talk(self) -> tuple[dict[str, Any], ...]:
        told = [{"role": "system", "content": "count"}]
        for number in range(self.round + 1):
            told += [{"role": "assistant", "content": "2"}] if number else []
            told += [{"role": "user", "content": f"round {number}"}]
        return tuple(told)


Say = Callable[[str], "str | int"]
"""What an endpoint answers to the last message; a number is a status of failure."""


# -- with verifiers ---------------------------------------------------------------------------------------------------


@pytest.fixture
def vf() -> Any:
    pytest.importorskip("verifiers")
    return pytest.importorskip("verifiers.v1", reason="another verifiers")


@pytest.fixture
def serve() -> Iterator[Callable[[Say], tuple[str, list[Any]]]]:
    """An endpoint that chats as OpenAI's do, and samples tokens as vLLM's generate does."""
    made: list[ThreadingHTTPServer] = []

    def start(say: Say, tokenizer: Any = None) -> tuple[str, list[Any]]:
        asked: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # in one piece: else every answer waits 40 ms for an acknowledgement

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "generate" in self.path:
                    asked.append(tokenizer.decode(body["token_ids"]))
                    ids = [*tokenizer.encode(str(say(asked[-1])), add_special_tokens=False), tokenizer.eos_token_id]
                    content = [{"token": f"token_id:{each}", "logprob": -0.5} for each in ids]
                    choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": "stop"}
                    return self._answer(200, {"request_id": "x", "choices": [choice]})
                asked.append(body["messages"])
                words = say(body["messages"][-1]["content"])
                if isinstance(words, int):
                    return self._answer(words, {"error": {"message": "out of order"}})
                message = {"role": "assistant", "content": words}
                answer = {
                    "id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
                }  # fmt: skip
                return self._answer(200, answer)

            def do_GET(self) -> None:
                self._answer(404, {})

            def _answer(self, status: int, answer: Any) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        made.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=made[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{made[-1].server_port}/v1", asked

    yield start
    for each in made:
        each.shutdown()


@pytest.fixture
def play(vf: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Every task once (`repeat`: more often), by verifiers' own loading and running of a plugin's module."""
    loaders = pytest.importorskip("verifiers.v1.utils.loaders")

    def run(made: EnvFactory, seeds: Any, client: Any, *, repeat: int = 1, **options: Any) -> list[Any]:
        settings = {name: options.pop(name) for name in set(options) - {"longest", "conversation"}}
        module = ModuleType("my_game")
        module.Tasks, module.Game, module.Chat = plugin(made, seeds, **options)  # type: ignore[attr-defined]
        module.__all__ = ["Chat", "Game", "Tasks"]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "my_game", module)
        taskset = {"id": "my_game"} | settings.pop("taskset", {})
        env = loaders.load_environment(loaders.resolve_env_config({"taskset": taskset, **settings}))
        context = vf.ModelContext(model="tiny", client=client, sampling=vf.SamplingConfig())

        async def all_of_them() -> list[Any]:
            async with env.serving():
                slots = [slot for task in env.taskset for slot in env.slots(task, repeat)]
                return [await env.run_slot(slot, context) for slot in slots]

        return asyncio.run(all_of_them())

    return run


def chat(vf: Any, url: str) -> Any:
    return vf.EvalClientConfig(base_url=url, api_key_var="NOBODYS_KEY")


def told(episode: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(turn[name] for name in names) for trace in episode.traces for turn in trace.info["palaestra"]]


def test_a_team_is_played_and_each_agent_reads_its_own_prompt_only(
    vf: Any, serve: Any, play: Any, tmp_path: Path
) -> None:
    url, asked = serve(lambda last: "3" if "<message" in last else "9")
    (tmp_path / "system.txt").write_text("Be brief.")
    first, second = play(
        pipeline(Sums, improvement=0.5), range(2, 4), chat(vf, url), taskset={"system_prompt": tmp_path / "system.txt"}
    )
    assert first.ok
    assert (first.task.data.name, first.task.data.seed, first.task.key) == ("1+2", 2, "1+2 #2")
    assert [trace.agent.name for trace in first.traces] == ["solver", "checker"]
    assert [trace.reward for trace in first.traces] == [1.0, 1.5]
    assert told(first, "agent", "turn", "reward", "valid", "success") == [
        ("solver", 0, 1.0, True, True),
        ("checker", 1, 1.5, True, True),
    ]
    assert [trace.reward for trace in second.traces] == [0.0, 0.0]
    assert [messages[0]["role"] for messages in asked] == ["system"] * 4
    assert [len(messages) for messages in asked] == [2] * 4
    systems = [messages[0]["content"].partition(" in a pipeline")[0] for messages in asked]
    assert systems == ["Be brief.\n\nYou are solver", "Be brief.\n\nYou are checker"] * 2
    questions = [messages[-1]["content"].split("\n")[1] for messages in asked]
    assert questions == ["1 + 2", "1 + 2", "1 + 3", "1 + 3"]
    assert ['<message from="solver">\n9\n' in messages[-1]["content"] for messages in asked] == [False, True] * 2
    assert {trace.agent.runtime.type for trace in first.traces} == {"subprocess"}, "nothing is sent to a machine"
    again = [vf.WireEpisode.model_validate_json(json.dumps(each.to_record())) for each in (first, second)]
    assert to_turns(again).frame.equals(to_turns([first, second]).frame), "prime-rl reads them from a wire"


def test_agents_that_act_at_once_are_asked_at_once(vf: Any, serve: Any, play: Any) -> None:
    both = threading.Barrier(2, timeout=20)

    def say(last: str) -> str:
        both.wait()
        return "1" if last.startswith("ann") else "2"

    url, asked = serve(say)
    (episode,) = play(Numbers, [7], chat(vf, url), max_concurrent_agents=None)
    assert episode.ok, episode.errors
    assert sorted(told(episode, "turn", "agent", "reward")) == [
        (0, "ann", 1.0), (0, "bob", 2.0), (1, "ann", 10.0), (1, "bob", 20.0), (2, "ann", 100.0), (2, "bob", 200.0),
    ]  # fmt: skip
    assert {(trace.agent.name, trace.reward) for trace in episode.traces} == {("ann", 111.0), ("bob", 222.0)}
    assert all(len(messages) == 1 for messages in asked)


def test_a_conversation_goes_on_with_what_is_new(vf: Any, serve: Any, play: Any) -> None:
    url, asked = serve(lambda last: "2")
    (episode,) = play(Alone, [0], chat(vf, url), conversation=True)
    (trace,) = episode.traces
    assert (trace.agent.name, trace.num_turns, len(trace.branches), trace.reward) == ("lab_1", 3, 1, 222.0)
    assert told(episode, "agent", "turn", "reward") == [("lab-1", 0, 2.0), ("lab-1", 1, 20.0), ("lab-1", 2, 200.0)]
    assert [each["content"] for each in asked[-1]] == ["count", "round 0", "2", "round 1", "2", "round 2"]
    turns = to_turns([episode])
    assert turns["observation"].to_list() == ["count\nround 0", "round 1", "round 2"]

    url, asked = serve(lambda last: "1" if last.startswith("ann") else "2")
    (episode,) = play(Numbers, [0], chat(vf, url), conversation=True)
    assert [each["content"] for each in asked[-1]] == ["bob, round 0", "2", "bob, round 1", "2", "bob, round 2"]
    assert {(trace.agent.name, trace.reward) for trace in episode.traces} == {("ann", 111.0), ("bob", 222.0)}


@pytest.mark.parametrize("conversation", [False, True])
def test_an_endpoint_that_fails_is_an_error_and_not_a_loss(vf: Any, serve: Any, play: Any, conversation: bool) -> None:
    url, _ = serve(lambda last: 400 if last == "bob, round 1" else "1")
    (episode,) = play(Numbers, [0], chat(vf, url), conversation=conversation)
    assert not episode.ok
    assert [trace.rewards for trace in episode.traces] == [{}] * len(episode.traces)
    assert [error.type for trace in episode.traces for error in trace.errors] == ["ProviderError"]
    assert sorted(told(episode, "turn", "agent", "reward"), key=str) == [
        (0, "ann", 1.0), (0, "bob", 1.0), (1, "ann", None),
    ]  # fmt: skip
    turns = to_turns([episode])
    assert turns["error"].str.contains("^ProviderError: .*400.*out of order").all()
    assert turns["reward"].to_list() == [1.0, 1.0, None]
    assert turns["truncated"].to_list() == [False] * 3

    url, _ = serve(lambda last: 400)
    (nothing,) = play(Numbers, [0], chat(vf, url), conversation=conversation)
    rows = to_turns([nothing, episode]).frame.select("group", "episode", "agent", "reward").rows()
    assert rows[:2] == [(0, 0, None, None), (0, 1, "ann", 1.0)]


def test_an_env_that_breaks_is_an_error_of_the_episode(vf: Any, serve: Any, play: Any) -> None:
    url, _ = serve(lambda last: "x" if last == "ann, round 1" else "1")
    (episode,) = play(Numbers, [0], chat(vf, url))
    turns = to_turns([episode])
    assert turns["error"].str.contains("^EnvError: .*could not convert").all()
    assert turns["reward"].to_list() == [1.0, 1.0, None, None]


def test_a_seat_with_a_model_of_its_own_is_not_trained(vf: Any, serve: Any, play: Any) -> None:
    url, _ = serve(lambda last: "3")
    team, other = pipeline(Sums, improvement=0.5), {"client": chat(vf, serve(lambda last: "4")[0])}
    for given, said, trained in (({}, "3", True), ({"model": "other"}, "3", False), (other, "4", False)):
        (episode,) = play(team, [2], chat(vf, url), solver=given)
        assert [trace.agent.trainable for trace in episode.traces] == [trained, True]
        assert [trace.last_reply for trace in episode.traces] == [said, "3"]
        assert {call.model for call in episode.traces[0].calls} == {given.get("model", "tiny")}


def test_what_is_too_long_is_cut_and_says_so(vf: Any, serve: Any, play: Any) -> None:
    url, _ = serve(lambda last: "2")
    (episode,) = play(Alone, [0], chat(vf, url), longest=2)
    assert episode.ok
    assert told(episode, "turn", "reward", "truncated") == [(0, 2.0, True), (1, 20.0, True)]
    assert [trace.reward for trace in episode.traces] == [22.0, 22.0]

    (episode,) = play(Alone, [0], chat(vf, url), conversation=True, lab_1={"max_turns": 2})
    assert episode.ok
    assert told(episode, "turn", "reward", "truncated") == [(0, 2.0, True), (1, 20.0, True)]
    assert [trace.reward for trace in episode.traces] == [22.0], "a seat's own limit cuts, too"


@pytest.mark.parametrize("conversation", [False, True])
def test_credit_stands_on_the_tokens_that_were_sampled_in_its_turn(
    vf: Any, serve: Any, play: Any, tmp_path: Path, conversation: bool
) -> None:
    """The client that prime-rl trains with, which keeps tokens."""
    tokenizer = tiny.tokenizer(["round 0 1 2 count 12"], chat=True)
    tokenizer.save_pretrained(tmp_path)
    numbers = iter(["1", "1", "2", "12", "2", "2"])
    url, _ = serve(lambda last: next(numbers), tokenizer)
    client = vf.TrainClientConfig(base_url=url, api_key_var="NOBODYS_KEY", renderer_model_name=str(tmp_path))
    episodes = play(Alone, [0], client, repeat=2, conversation=conversation)
    assert [told(each, "turn", "reward") for each in episodes] == [
        [(0, 1.0), (1, 10.0), (2, 200.0)],
        [(0, 12.0), (1, 20.0), (2, 200.0)],
    ]
    assign(episodes, "centre('reward', over=('group', 'turn'))")
    expected = [[-5.5, -5.0, 0.0], [5.5, 5.0, 0.0]]
    for episode, values in zip(episodes, expected, strict=True):
        nodes = [node for trace in episode.traces for node in trace.nodes]
        assert [node.advantages for node in nodes if not node.sampled] == [None] * sum(not n.sampled for n in nodes)
        sampled = [node for node in nodes if node.sampled]
        assert all(2 <= sum(node.mask) < len(node.mask) for node in sampled), "an answer, its end, and what asks for it"
        assert [node.advantages for node in sampled] == [[v] * sum(n.mask) for v, n in zip(values, sampled)]
        for branch in (branch for trace in episode.traces for branch in trace.branches):
            assert all(trained or not each for each, trained in zip(branch.advantages, branch.sampled_mask))
    sizes = [sum(n.mask) for each in episodes for trace in each.traces for n in trace.nodes if n.sampled]
    assert to_turns(episodes)["tokens_out"].to_list() == sizes


# -- without verifiers ------------------------------------------------------------------------------------------------


class Part:
    """A class of verifiers that takes another in brackets."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def __class_getitem__(cls, _: Any) -> type[Part]:
        return cls


class TaskData(pydantic.BaseModel):
    name: str | None = None
    prompt: Any = None


class Given(Part):
    """A task."""

    def __init__(self, data: Any, config: Any = None) -> None:
        self.data = data

    def with_data(self, **update: Any) -> Given:
        return Given(self.data.model_copy(update=update))


class EnvConfig(pydantic.BaseModel):
    id: str = ""
    retries: int = 0


class AgentConfig(pydantic.BaseModel):
    runtime: Any


class Trace:
    """What a run leaves behind."""

    def __init__(self, name: str) -> None:
        self.id, self.agent, self.ok = f"{name}-{id(self)}", SimpleNamespace(name=name, trainable=True), True
        self.info: dict[str, Any] = {}
        self.rewards: dict[str, float] = {}
        self.num_turns, self.last_reply = 0, ""

    def record_reward(self, name: str, value: float) -> None:
        self.rewards[name] = value


class Player:
    """A seat: in its runs and conversations `say` answers to what it is told; None: the run fails."""

    def __init__(self, name: str, say: Callable[[str], str | None], traces: list[Trace], heard: list[Any]) -> None:
        self.name, self.say, self.traces, self.heard = name, say, traces, heard

    def _answer(self, trace: Trace, messages: list[Any]) -> str | None:
        self.heard.append(messages)
        words = self.say(messages[-1]["content"])
        trace.ok, trace.num_turns = words is not None, trace.num_turns + (words is not None)
        trace.last_reply = words or ""
        return words

    async def run(self, task: Any) -> Trace:
        self.traces.append(Trace(self.name))
        self._answer(self.traces[-1], task.data.prompt)
        return self.traces[-1]

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[Any]:
        assert task.data.prompt is None
        self.traces.append(trace := Trace(self.name))

        async def turn(messages: Any) -> Any:
            words = self._answer(trace, messages)
            return SimpleNamespace(terminated=words is None, last_reply=words)

        yield SimpleNamespace(trace=trace, turn=turn)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    v1 = SimpleNamespace(
        TaskData=TaskData, Task=Given, Taskset=Part, TasksetConfig=Part, EnvConfig=EnvConfig, AgentConfig=AgentConfig,
        Env=Part, Harness=Part, HarnessConfig=Part, ProgramResult=SimpleNamespace,
    )  # fmt: skip
    same = SimpleNamespace(parse_message=lambda message: message, message_to_wire=lambda message: message)
    openai = SimpleNamespace(AsyncOpenAI=None, DefaultAsyncHttpxClient=SimpleNamespace)
    for name, module in {
        "verifiers": SimpleNamespace(v1=v1), "verifiers.v1": v1, "verifiers.v1.dialects": SimpleNamespace(chat=same),
        "verifiers.v1.dialects.chat": same, "openai": openai,
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)


def alone(
    made: EnvFactory, say: Callable[[str], str | None], seats: tuple[str, ...], **options: Any
) -> tuple[list[Trace], list[Any]]:
    """One episode of seed 2."""
    tasks, game, _ = plugin(made, [2], **options)
    (task,) = tasks(SimpleNamespace(task=None)).load()
    traces: list[Trace] = []
    heard: list[Any] = []
    asyncio.run(game().run(task, SimpleNamespace(**{seat: Player(seat, say, traces, heard) for seat in seats})))
    return traces, heard


@pytest.mark.usefixtures("stand_in")
def test_each_turn_is_told_what_it_was_and_each_trace_what_its_agent_got() -> None:
    checks = '<message from="solver">\n9\n</message>'
    traces, heard = alone(
        pipeline(Sums, improvement=0.5), lambda last: "3" if checks in last else "9", ("solver", "checker")
    )
    assert ["1 + 2" in messages[-1]["content"] for messages in heard] == [True, True]
    assert [checks in messages[-1]["content"] for messages in heard] == [False, True]
    assert [trace.rewards for trace in traces] == [{"episode": 1.0}, {"episode": 1.5}]
    first, second = (trace.info["palaestra"] for trace in traces)
    assert first == [
        {"agent": "solver", "turn": 0, "state": first[0]["state"], "seed": 2, "reward": 1.0, "valid": True,
         "success": True, "truncated": False}
    ]  # fmt: skip
    assert (second[0]["agent"], second[0]["turn"], second[0]["reward"]) == ("checker", 1, 1.5)
    assert first[0]["state"] != second[0]["state"]

    traces, heard = alone(Numbers, lambda last: "0" if last == "ann, round 1" else "1", ("ann", "bob"))
    assert [len(messages) for messages in heard] == [1] * 6
    assert [(t["agent"], t["turn"], t["reward"], t["valid"], t["success"]) for (t,) in
            (trace.info["palaestra"] for trace in traces)] == [
        ("ann", 0, 1.0, True, True), ("bob", 0, 1.0, True, None), ("ann", 1, 0.0, False, True),
        ("bob", 1, 10.0, True, None), ("ann", 2, 100.0, True, True), ("bob", 2, 100.0, True, None),
    ]  # fmt: skip
    assert [trace.rewards["episode"] for trace in traces] == [101.0, 111.0] * 3


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("conversation", [False, True])
def test_a_run_that_fails_ends_the_episode_without_rewards(conversation: bool) -> None:
    traces, heard = alone(
        Numbers, lambda last: None if last == "ann, round 1" else "1", ("ann", "bob"), conversation=conversation
    )
    assert len(heard) == 4
    assert all(not trace.rewards for trace in traces)
    told = [turn for trace in traces for turn in trace.info["palaestra"]]
    assert {(t["agent"], t["turn"], t["reward"], t["truncated"]) for t in told} == {
        ("ann", 0, 1.0, False), ("bob", 0, 1.0, False), ("bob", 1, None, False),
    }  # fmt: skip


@pytest.mark.usefixtures("stand_in")
def test_a_conversation_is_one_trace_and_hears_each_thing_once() -> None:
    (trace,), heard = alone(Alone, lambda last: "2", ("lab_1",), conversation=True)
    assert [[each["content"] for each in messages] for messages in heard] == [
        ["count", "round 0"], ["round 1"], ["round 2"],
    ]  # fmt: skip
    assert [(turn["turn"], turn["reward"]) for turn in trace.info["palaestra"]] == [(0, 2.0), (1, 20.0), (2, 200.0)]
    assert trace.rewards == {"episode": 222.0}
    (trace,), _ = alone(Alone, lambda last: "2", ("lab_1",), conversation=True, longest=2)
    assert trace.rewards == {"episode": 22.0}
    assert [turn["truncated"] for turn in trace.info["palaestra"]] == [True, True]


class Late(Numbers):
    """Bob acts second, and is paid before; what is not scored is None."""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.round = 0
        return {"ann": Observation("first")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        self.round += 1
        if self.round == 1:
            return StepResult({"bob": Observation("second")}, {"ann": None, "bob": 0.5})
        return StepResult({}, {"bob": 1.0}, truncated=True)


@pytest.mark.usefixtures("stand_in")
def test_rewards_are_for_the_turns_that_a_rollout_gives_them_to() -> None:
    traces, _ = alone(Late, lambda last: "1", ("ann", "bob"))
    told = [trace.info["palaestra"][0] for trace in traces]
    assert [(turn["agent"], turn["reward"], turn["truncated"]) for turn in told] == [
        ("ann", None, True), ("bob", 1.5, True),
    ]  # fmt: skip
    assert [trace.rewards for trace in traces] == [{}, {"episode": 1.5}], "what is not scored has no reward"


@pytest.mark.usefixtures("stand_in")
def test_a_seat_is_trained_unless_it_has_a_model_of_its_own() -> None:
    _, game, _ = plugin(Numbers, [0])
    made, players = game(), SimpleNamespace(ann=SimpleNamespace(), bob=SimpleNamespace())
    for ann in ({"model": "other"}, {"client": "there"}):
        seats = {"ann": {"model": None, "client": None} | ann, "bob": {"model": None, "client": None}}
        made.config = SimpleNamespace(**{seat: SimpleNamespace(**given) for seat, given in seats.items()})
        asyncio.run(made.setup(players))
        assert (players.ann.trainable, players.bob.trainable) == (False, True)


@pytest.mark.usefixtures("stand_in")
def test_the_harness_asks_the_endpoint_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Client:
        def __init__(self, **given: Any) -> None:
            self.given = given
            self.chat = SimpleNamespace(completions=self)

        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None:
            asked.append("closed")

        async def create(self, **given: Any) -> None:
            asked.append((self.given["base_url"], self.given["api_key"], self.given["timeout"], given))

    monkeypatch.setattr(sys.modules["openai"], "AsyncOpenAI", Client)
    _, _, harness = plugin(Numbers, [0])
    monkeypatch.setattr(harness, "resolve_prompt", lambda _, data: data, raising=False)
    prompt = [{"role": "user", "content": "now"}]
    for system, first in (("be brief", [{"role": "system", "content": "be brief"}]), (None, [])):
        context = SimpleNamespace(model="tiny")
        done = asyncio.run(harness().launch(context, None, None, "http://there", "key", {}, (system, prompt)))
        assert done.exit_code == 0
        expected = {"model": "tiny", "messages": [*first, *prompt]}
        assert asked[-2:] == [("http://there", "key", None, expected), "closed"]


@pytest.mark.usefixtures("stand_in")
def test_seats_have_names_that_a_configuration_can_have() -> None:
    class Named(Numbers):
        agents = ("ann", "lab-1", "7", "retries", "_hidden")

    heard: list[str] = []
    seats = ("ann", "lab_1", "agent_7", "agent_retries", "agent__hidden")
    alone(Named, lambda last: heard.append(last) or "1", seats)  # type: ignore[func-returns-value]
    assert [last.partition(",")[0] for last in heard[:5]] == list(Named.agents)

    class Twice(Numbers):
        agents = ("lab-1", "lab_1")

    with pytest.raises(InputError, match="of lab-1, lab_1, two would share a seat: lab_1, lab_1"):
        plugin(Twice, [0])
    with pytest.raises(InputError, match="no seeds"):
        plugin(Numbers, [])


def test_without_verifiers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtraError, match=r"pip install verifiers==0\.4\.0"):
        plugin(Numbers, [0])
