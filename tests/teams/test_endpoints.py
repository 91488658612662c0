"""Teams of chat models against a real local server that is slow and fails: what a team costs in time is its longest
chain, whoever waits beside it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from palaestra.agents import ChatPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.play.rollout import rollout
from palaestra.teams import workflows

LATENCY, EPISODES = 0.4, 8


class Capitals(TaskEnv):
    """One question, asked differently."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", f"{seed}: the capital of Peru?", lambda text: float("Lima" in text), "Lima")


class Server:
    """Answers `Lima` after LATENCY; the first attempt at every fifth question fails, each time in another way."""

    def __init__(self) -> None:
        server, self.lock = self, threading.Lock()
        self.texts: list[str] = []
        self.now = self.most = self.failed = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with server.lock:
                    server.texts.append(body.decode())
                    number, first = len(server.texts), server.texts.count(body.decode()) == 1
                    fault = number % 5 == 0 and first
                    server.failed += fault
                    server.now += 1
                    server.most = max(server.most, server.now)
                time.sleep(LATENCY)
                message = {"role": "assistant", "content": "Lima"}
                answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m",
                          "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                          "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}}  # fmt: skip
                data = b'{"oops": 1}' if fault and number % 10 else json.dumps(answer).encode()
                with server.lock:
                    server.now -= 1
                self.send_response(503 if fault and not number % 10 else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def play(server: Server, env: EnvFactory, *, shared: bool) -> tuple[Turns, float]:
    """The turns and the seconds, of seats with a policy each, or one for all."""
    url = f"http://127.0.0.1:{server.http.server_port}/v1"

    def seat(name: str) -> ChatPolicy:
        return ChatPolicy(
            "m", name=name, base_url=url, api_key_env=None, concurrency=64, wait=0.001, longest_wait=0.01, retries=3
        )

    one, agents = seat("all"), env().agents
    team = Team({agent: one if shared else seat(agent) for agent in agents})
    began = time.perf_counter()
    turns = rollout(env, team, groups=EPISODES, seed=1)
    return turns, time.perf_counter() - began


@pytest.mark.parametrize("shared", [True, False])
def test_a_debate_of_five_costs_its_longest_chain_and_not_the_sum(server: Server, shared: bool) -> None:
    play(server, workflows.single(Capitals), shared=True)  # connections and imports
    server.most, asked, failed = 0, len(server.texts), server.failed
    turns, seconds = play(server, workflows.debate(Capitals, 5, rounds=2), shared=shared)
    assert turns["error"].null_count() == len(turns) == EPISODES * 10
    assert turns["success"].all()
    assert server.failed - failed > 5, "the faults were met"
    assert len(server.texts) - asked == EPISODES * 10 + server.failed - failed, "and only they were asked again"
    assert 2 * LATENCY <= seconds < EPISODES * 10 * LATENCY / 3, "in the time of a few answers, not of eighty"
    assert server.most > 2 * EPISODES, "across episodes, and across the debaters of each"
    heard = messages(turns)
    assert len(heard) == EPISODES * 5 * 4
    assert heard["tokens"].to_list() == [1] * len(heard)


def test_branches_of_a_tree_wait_for_each_other_only_where_they_meet(server: Server) -> None:
    play(server, workflows.single(Capitals), shared=True)
    turns, seconds = play(server, workflows.tree(Capitals, branch=3, depth=2), shared=False)
    assert len(turns) == EPISODES * 13
    assert turns["success"].all()
    assert 3 * LATENCY <= seconds < EPISODES * 13 * LATENCY / 3
