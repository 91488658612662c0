"""`program`: somebody's own program as a team; it runs unchanged, and its calls of chat models are turns.

    program("my_team:graph", agents={"router": "You are the router", "solver": ""})

The program asks `OPENAI_BASE_URL`, as clients of that API do; it is a function of a question, or a graph with
`invoke()`, as LangGraph compiles them. It runs in a process of its own, one for each episode at once (`concurrency` of
the executor), and what it returns is scored as the task says. Each of its requests is a turn of the agent whose words
stand in the system prompt; so any policy can sit there, play, be measured and be trained on exactly the tokens that it
sampled. Requests that are under way at once are one turn of several agents. What a program asks after its answer is
refused, unless the next question has been asked by then. Left out: sampling options of a request, which are the
policy's, and programs that ask elsewhere.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from palaestra.envs.interception import Intercepted, Interceptor
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.replies import read_reply
from palaestra.envs.tasks import TaskEnv
from palaestra.errors import EnvError, InputError
from palaestra.teams.task_wrapper import TaskTeamEnv, made_task

WORKER = Path(__file__).with_name("program_worker.py")
TOGETHER = 0.01
"""Seconds without a further request after which those that are there make a turn."""
TOO_LATE = "the program has answered already"
LAST_WORDS = 2000
"""Characters of what a program printed that an error shows."""


@dataclass
class _Running:
    """A process with the program, the endpoint that only it knows, what came from both, and the end of what it printed.

    busy: a question has no answer yet.
    """

    process: subprocess.Popen[str]
    endpoint: Interceptor
    events: SimpleQueue[Intercepted | dict[str, str]]
    printed: deque[str]
    busy: bool = False

    def begin(self, patience: float) -> None:
        """Listen to what it asks on the next question; requests that came too late for the last one are refused."""
        while not self.events.empty():
            if isinstance(event := self.events.get(), Intercepted):
                event.refuse(TOO_LATE)
        self.endpoint.patience, self.endpoint.listens, self.busy = patience, True, True

    def end(self) -> None:
        """Kill it and whatever it started."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self.endpoint.close()


_IDLE: dict[tuple[str, ...], list[_Running]] = defaultdict(list)
"""Processes whose env is gone and that wait for the next question to the same program: imports take their time."""


@atexit.register
def end_idle() -> None:
    """End all idle worker processes of `ProgramTeam` envs, which wait for a question; runs at exit."""
    for each in [each for many in _IDLE.values() for each in many]:
        each.end()
    _IDLE.clear()


def _give_back(key: tuple[str, ...], running: list[_Running]) -> None:
    for each in running:
        if each.busy or not key or each.process.poll() is not None:
            each.end()
        else:
            _IDLE[key].append(each)


class ProgramTeam(TaskTeamEnv):
    """Team env (of a `TaskEnv` factory): an external program answers its tasks; its chat requests are agents' turns.

    facts: expected, a right answer if one is known; asked_model, the model that the program named; final, what the
    program returned, on the last turns of an episode. Everybody whom it asked is paid the score.

    Args:
        tasks: Makes the `TaskEnv`.
        program: `module:name` of a function of a question, or of something with `invoke()`.
        command: Instead, a command line of another program. It reads the question from its input and prints the answer
            in the last line of its output; it starts anew for each episode.
        agents: Name -> words of the system prompt by which its requests are known, or the model that it asks; "" is
            everybody else. Names alone stand for themselves.
        patience: Seconds that the program may take between two requests, and a request may wait for its answer.
        variables: Further environment variables of the program.
        together: Seconds without a further request after which those that are there make a turn. What a program asks
            at once may be one turn or several: that is timing, and not of the seed.

    Raises:
        InputError: there is no program or no agent, or two agents are known by the same words.
    """

    facts = {"expected": str, "asked_model": str, "final": str}

    def __init__(
        self,
        tasks: EnvFactory,
        program: str | None,
        agents: Mapping[str, str] | Sequence[str],
        *,
        command: Sequence[str] | None = None,
        patience: float = 50.0,
        variables: Mapping[str, str] | None = None,
        together: float = TOGETHER,
    ) -> None:
        known = dict(agents) if isinstance(agents, Mapping) else {name: name for name in agents}
        if not known or len(set(known.values())) < len(known):
            raise InputError(f"program: agents={agents!r}: at least one, each known by words of its own")
        if (program is None) == (command is None):
            raise InputError("program: give either program='module:name' or command=[…]")
        if program is not None and ":" not in program:
            raise InputError(f"program: {program!r}, expected module:name")
        for name, seconds in (("patience", patience), ("together", together)):
            if not seconds > 0:
                raise InputError(f"program: {name}={seconds}, expected seconds above 0")
        self.inner: TaskEnv = made_task(tasks, "program")
        self.agents, self._known = tuple(known), known
        self.task = ""
        self._program, self._command, self._patience, self._together = program, command, patience, together
        self._variables = dict(variables or {})
        self._key = () if program is None else (program, *(f"{name}={text}" for name, text in self._variables.items()))
        self._running: list[_Running] = []  # one, or none yet
        weakref.finalize(self, _give_back, self._key, self._running)

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Give the program the question of `seed`, and wait for its first requests."""
        self.inner.reset(seed)
        self.task = self.inner.task
        self._waiting: dict[str, Intercepted] = {}
        self._backlog: list[tuple[str, Intercepted]] = []
        self._spoke: dict[str, None] = {}
        running = self._ready()
        running.begin(self._patience)
        assert running.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended; why is told below
            if self._command is None:
                running.process.stdin.write(json.dumps({"question": self.inner.question}) + "\n")
                running.process.stdin.flush()
            else:
                running.process.stdin.write(self.inner.question)
                running.process.stdin.close()
        result = self._until_somebody_is_asked()
        if result is not None:
            raise EnvError(f"{self._name()} answered {result[:80]!r} without asking anybody at OPENAI_BASE_URL")
        return self._seen()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Answer the program's requests; returns its next requests, or the score of its result."""
        if actions.keys() != self._waiting.keys():
            asked = sorted(self._waiting)
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {asked}")
        info: dict[str, Any] = {"expected": self.inner.answer}
        info["asked_model"] = {agent: call.model for agent, call in self._waiting.items()}
        waiting, self._waiting = self._waiting, {}
        for agent, call in waiting.items():
            self._spoke[agent] = None
            call.answer(str(actions[agent]))
        result = self._until_somebody_is_asked()
        if result is None:
            return StepResult(self._seen(), info=info)
        score = self.inner.score(read_reply(result.strip()).text)
        info |= {"final": result, "success": self.inner.solved(score)}
        return StepResult({}, dict.fromkeys(self._spoke, score or 0.0), terminated=True, info=info)

    # -- the program --------------------------------------------------------------------------------------------------

    def _ready(self) -> _Running:
        """A process that can be asked: its own, one that is idle, or a new one."""
        if self._running:
            own = self._running[0]
            if own.busy or self._command is not None or own.process.poll() is not None:
                self._running.pop().end()
        while not self._running and self._key and _IDLE[self._key]:
            found = _IDLE[self._key].pop()
            if found.process.poll() is None:
                self._running.append(found)
            else:
                found.end()
        if not self._running:
            self._running.append(self._start())
        return self._running[0]

    def _start(self) -> _Running:
        """A new process, and an endpoint that only it knows."""
        events: SimpleQueue[Intercepted | dict[str, str]] = SimpleQueue()
        endpoint = Interceptor(events, self._patience)
        path = os.pathsep.join(each for each in sys.path if each)
        variables = {
            **os.environ,
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_BASE": endpoint.url,
            "OPENAI_API_KEY": "none",
            **{name: ",".join(filter(None, (os.environ.get(name), "127.0.0.1"))) for name in ("NO_PROXY", "no_proxy")},
            "PYTHONPATH": path,
            "PYTHONSAFEPATH": "1",
            **self._variables,
        }
        line = [sys.executable, "-P", str(WORKER), str(self._program)] if self._command is None else [*self._command]
        try:
            process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            endpoint.close()
            raise InputError(f"program: cannot start {' '.join(line)!r} ({error})") from error
        running = _Running(process, endpoint, events, deque(maxlen=50))
        threading.Thread(target=_listen, args=(process, events, self._command is None), daemon=True).start()
        threading.Thread(target=_keep, args=(process, running.printed), daemon=True).start()
        return running

    def _until_somebody_is_asked(self) -> str | None:
        """What the program returned; None if it asks somebody instead."""
        backlog, self._backlog = self._backlog, []
        for agent, call in backlog:
            self._take(agent, call)
        while True:
            try:
                event = self._running[0].events.get(timeout=self._together if self._waiting else self._patience)
            except Empty:
                if self._waiting:
                    return None
                raise EnvError(
                    f"{self._name()} neither asked nor answered for {self._patience:g} s{self._words()}"
                ) from None
            if isinstance(event, Intercepted):
                self._take(self._agent_of(event), event)
            elif "answer" in event:
                self._running[0].busy = self._running[0].endpoint.listens = False
                for call in (*self._waiting.values(), *(call for _, call in self._backlog)):
                    call.refuse(TOO_LATE)
                return event["answer"]
            else:
                self._running[0].busy = self._running[0].process.poll() is not None
                self._running[0].endpoint.listens = False
                text = f"{self._name()}: {event['error']}{self._words()}"
                raise (InputError if event["error"].startswith("cannot be loaded") else EnvError)(text)

    def _take(self, agent: str, call: Intercepted) -> None:
        """One request an agent and turn; more wait for the next."""
        if agent in self._waiting:
            self._backlog.append((agent, call))
        else:
            self._waiting[agent] = call

    def _agent_of(self, call: Intercepted) -> str:
        system = "\n".join(each["content"] for each in call.messages if each["role"] == "system")
        for agent, words in self._known.items():
            if words and (words == call.model or words in system):
                return agent
        for agent, words in self._known.items():
            if not words:
                return agent
        call.refuse("none of the agents")
        raise InputError(
            f"program: a request to {call.model!r} with the system prompt {system[:120]!r} is of none of the agents "
            f"{', '.join(self._known)}: give agents={{name: words of its system prompt, or its model}}"
        )

    def _seen(self) -> dict[str, Observation]:
        found = {}
        for agent in self.agents:
            if agent in self._waiting:
                call = self._waiting[agent]
                found[agent] = Observation(call.messages[-1]["content"], messages=call.messages, tools=call.tools)
        return found

    def _name(self) -> str:
        return f"program {self._program or ' '.join(self._command or ())!r}"

    def _words(self) -> str:
        time.sleep(0.05)  # the thread that reads it may be a line behind
        printed = "".join(self._running[0].printed)[-LAST_WORDS:].strip()
        return f"; it printed: {printed}" if printed else ""


def _listen(process: subprocess.Popen[str], events: SimpleQueue[Any], lines: bool) -> None:
    """In a thread: answers of the program, and its end. lines: each line of its output is an answer."""
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        if lines:
            events.put(json.loads(line))
        elif line.strip():
            last = line.strip()
    code = process.wait()
    events.put({"error": f"ended with exit code {code}"} if lines or code else {"answer": last})


def _keep(process: subprocess.Popen[str], printed: deque[str]) -> None:
    """In a thread: the end of what the program prints."""
    assert process.stderr is not None
    for line in process.stderr:
        printed.append(line)


def program(
    tasks: EnvFactory,
    program: str | None = None,
    agents: Mapping[str, str] | Sequence[str] = ("agent",),
    *,
    command: Sequence[str] | None = None,
    patience: float = 50.0,
    variables: Mapping[str, str] | None = None,
    together: float = TOGETHER,
) -> EnvFactory:
    """Env factory from another, `tasks`: an unchanged program, whose requests to `OPENAI_BASE_URL` become turns.

    Args:
        tasks: Makes the `TaskEnv`.
        program: `module:name` of a function of a question, or of something with `invoke()`.
        agents: Name -> words of the system prompt by which its requests are known, or its model; "" is everybody else.
        command: A command line instead, which reads the question and prints the answer last.
        patience: Seconds between two requests, and of a request for its answer.
        variables: Further environment variables of the program.
        together: Seconds without a further request after which those that are there make a turn; it is timing.

    Raises:
        InputError: see `ProgramTeam`.
    """
    factory = functools.partial(
        ProgramTeam,
        tasks,
        program,
        agents,
        command=command,
        patience=patience,
        variables=variables,
        together=together,
    )
    factory()
    return factory
