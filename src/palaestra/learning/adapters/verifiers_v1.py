"""verifiers 0.4 and prime-rl: our envs and team procedures as a plugin of theirs. Written against verifiers 0.4.0.

    # my_maze.py, for `vf-eval my_maze`, and for `taskset.id = "my_maze"` of prime-rl
    from palaestra import envs
    from palaestra.learning.adapters.verifiers_v1 import plugin
    Tasks, Game, Chat = plugin(envs.make("native/maze"), range(512))
    __all__ = ["Chat", "Game", "Tasks"]

Each turn is a run of its agent, and so a trace: its prompt is what the agent saw and nothing else. The trace's reward
is what the agent got in the whole episode; `info["palaestra"]` says for each message that was sampled what its turn
was: `agent`, `turn`, `state`, `seed`, `reward`, `valid`, `success`, `truncated`. `prime_rl` makes credit by turn of it.

Left out: images, and tools and facts of our envs.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
from collections.abc import Collection, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from palaestra.agents.conversation import continues
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError, MissingExtraError
from palaestra.play.validation import CheckedStep, Seen, begin, step

INFO = "palaestra"
"""Where in a trace's `info` its turns are."""


def plugin(
    made: EnvFactory, seeds: Iterable[int], *, longest: int = 64, conversation: bool = False
) -> tuple[type[Any], type[Any], type[Any]]:
    """Returns three classes that export an env factory to verifiers 0.4: a `Taskset` (task per seed), `Env`, `Harness`.

    A seat is named as the agent; `_` stands for what no identifier has, and a name that is none even so, or that every
    `EnvConfig` has, gets `agent_` in front. Agents that act at once are asked at once, as many as verifiers'
    `max_concurrent_agents` allows (one, if nobody says otherwise). longest: turns after which an episode is cut off.
    conversation: each agent has one conversation in the episode, and a turn says what is new.

    Raises:
        InputError: there is no seed, or two agents would share a seat.
        MissingExtraError: verifiers 0.4 is not installed.
    """
    try:
        import verifiers.v1 as vf
        from pydantic import create_model
        from verifiers.v1.dialects.chat import parse_message
    except ImportError as error:
        raise MissingExtraError("verifiers 0.4 is not installed: pip install verifiers==0.4.0") from error
    numbers = tuple(seeds)
    if not numbers:
        raise InputError("plugin: no seeds; give at least one")
    seats = {agent: _seat(agent, vf.EnvConfig.model_fields) for agent in begin(None, made, numbers[0])[0].agents}
    if len({*seats.values()}) < len(seats):
        raise InputError(f"plugin: of {', '.join(seats)}, two would share a seat: {', '.join(seats.values())}")
    local = vf.AgentConfig(runtime={"type": "subprocess"})  # verifiers' own default is a remote machine
    fields: dict[str, Any] = dict.fromkeys(seats.values(), (vf.AgentConfig, local))
    config: Any = create_model("GameConfig", __base__=vf.EnvConfig, **fields)

    class SeedData(vf.TaskData):
        """No prompt: what an agent is to see is said when it acts."""

        seed: int

    class InitialState(vf.Task[SeedData]):
        """An initial state of the env."""

        @property
        def key(self) -> str:
            return f"{self.data.name} #{self.data.seed}"

    class Tasks(vf.Taskset[InitialState, vf.TasksetConfig]):
        """The seeds."""

        def load(self) -> Iterator[Any]:
            env = None
            for seed in numbers:
                env, name, _ = begin(env, made, seed)
                yield InitialState(SeedData(seed=seed, name=name), self.config.task)

    class Game(vf.Env[config]):
        """Plays an episode turn by turn. It ends where a run fails, or has no answer because a limit is reached."""

        async def setup(self, players: Any) -> None:
            """A seat that is given a model of its own is a partner, and not trained."""
            for seat in seats.values():
                given = getattr(self.config, seat)
                getattr(players, seat).trainable = given.model is None and given.client is None

        async def run(self, task: Any, players: Any) -> None:
            env, _, seen = begin(None, made, task.data.seed)
            played = _Played(task.data.seed)
            talks: dict[str, Any] = {}

            async def ask(agent: str, observation: Observation, _: object) -> str | None:
                before = played.begin(agent, observation)
                if conversation:
                    segment = await talks[agent].turn(_news(observation, before))
                    played.keep(agent, talks[agent].trace)
                    return None if segment.terminated else str(segment.last_reply)
                prompt = [parse_message(each) for each in _messages(observation)]
                trace = await getattr(players, seats[agent]).run(task.with_data(prompt=prompt))
                played.keep(agent, trace)
                return str(trace.last_reply) if trace.ok and trace.num_turns else None

            async with AsyncExitStack() as stack:
                while seen and played.rounds < longest:
                    for agent, _, _ in seen if conversation else ():
                        if agent not in talks:
                            talk = getattr(players, seats[agent]).interaction(task)
                            talks[agent] = await stack.enter_async_context(talk)
                    answers = await asyncio.gather(*(ask(*each) for each in seen))
                    if None in answers:
                        break
                    actions = {agent: str(words) for (agent, _, _), words in zip(seen, answers, strict=True)}
                    seen = played.pay(step(env, actions))
            played.close(cut=bool(seen))

    return Tasks, Game, _harness(vf)


def _harness(vf: Any) -> type[Any]:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    from verifiers.v1.dialects.chat import message_to_wire

    class Chat(vf.Harness[vf.HarnessConfig]):
        """One question to the intercepted endpoint, from this process: a turn needs no program and no box."""

        APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            asked: list[Any] = [message_to_wire(message) for message in prompt]
            if system and asked and asked[0].get("role") == "system":  # templates know one system message
                asked[0] = {"role": "system", "content": f"{system}\n\n{asked[0]['content']}"}
            elif system:
                asked.insert(0, {"role": "system", "content": system})
            http = DefaultAsyncHttpxClient(verify=_certificates(), follow_redirects=False)
            async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, http_client=http) as client:
                await client.chat.completions.create(model=ctx.model, messages=asked)
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    return Chat


@functools.cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()  # 30 ms, which every client would take anew


def _seat(agent: str, taken: Collection[str]) -> str:
    name = re.sub(r"\W", "_", agent)
    return name if name.isidentifier() and name[0] != "_" and name not in taken else f"agent_{name}"


def _messages(observation: Observation) -> list[dict[str, Any]]:
    given = observation.conversation()
    return [{"role": message["role"], "content": message["content"]} for message in given]


def _news(observation: Observation, before: Observation | None) -> list[dict[str, Any]]:
    """New messages of a conversation whose last question was `before`."""
    if before is None:
        return _messages(observation)
    if continues(observation, before):
        return _messages(observation)[len(before.messages or ()) + 1 :]
    return [{"role": "user", "content": observation.text}]


@dataclass
class _Played:
    """An episode, and what its traces are told about it. A reward is for its agent's last turn, as in `rollout`."""

    seed: int
    rounds: int = 0
    saw: dict[str, Observation] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    turns: list[dict[str, Any]] = field(default_factory=list)
    traces: dict[str, tuple[str, Any]] = field(default_factory=dict)
    income: dict[str, float | None] = field(default_factory=dict)
    outcome: CheckedStep | None = None

    def begin(self, agent: str, observation: Observation) -> Observation | None:
        """A turn; gives what the agent saw in the one before."""
        if agent in self.last:
            self.last[agent]["reward"] = self.income.pop(agent, 0.0)
        self.last[agent] = {
            "agent": agent,
            "turn": self.rounds,
            "state": str(observation.key()),
            "seed": self.seed,
            "reward": None,
            "valid": True,
            "success": None,
            "truncated": False,
        }
        self.turns.append(self.last[agent])
        before, self.saw[agent] = self.saw.get(agent), observation
        return before

    def keep(self, agent: str, trace: Any) -> None:
        """Assign what was sampled since the turn began to this turn."""
        self.traces[trace.id] = agent, trace
        told = trace.info.setdefault(INFO, [])
        told += [self.last[agent]] * (trace.num_turns - len(told))

    def pay(self, outcome: CheckedStep) -> list[Seen]:
        """The round is over; gives who acts next."""
        self.rounds += 1
        self.outcome = outcome
        for agent, valid in outcome.valid.items():
            if agent in self.last:
                self.last[agent]["valid"] = valid
        for agent, reward in outcome.rewards.items():
            earned = self.income.setdefault(agent, None)
            self.income[agent] = earned if reward is None else (earned or 0.0) + reward
        return outcome.seen

    def close(self, *, cut: bool) -> None:
        """Settle what is open. An episode that failed has no reward."""
        failed = not all(trace.ok for _, trace in self.traces.values())
        for agent, turn in self.last.items():
            turn["reward"] = self.income.pop(agent, None if failed else 0.0)
        truncated = (cut and not failed) or (self.outcome is not None and self.outcome.truncated)
        success = self.outcome.success if self.outcome else None
        earned: dict[str, list[float]] = {}
        for turn in self.turns:
            turn["truncated"] = truncated
            turn["success"] = success.get(turn["agent"]) if isinstance(success, dict) else success
            if turn["reward"] is not None:
                earned.setdefault(turn["agent"], []).append(turn["reward"])
        for agent, trace in self.traces.values():
            if agent in earned and not failed:
                trace.record_reward("episode", sum(earned[agent]))
