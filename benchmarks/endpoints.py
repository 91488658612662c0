"""What a team of chat policies makes of a bad endpoint: slow, one request in ten a fault, one of two replicas killed.

A supervisor sends a coder, who calls a tool, and then a writer: six requests an episode, 200 episodes. Each answer
takes 0.2 s; a tenth of the requests fail by HTTP 500, HTTP 429 or a broken connection; after two fifths of the
requests one replica goes away. Nothing may be lost (every episode ends with the right answer), nothing be paid twice
(each turn of the table is one answer that was paid for), and the time may be 1.2 times that of the ideal schedule: a
plain client that keeps every slot busy with as many requests, faults included, at an endpoint that never fails. It
runs right afterwards on the same machine. Beside it stands the bound that no machine can beat, latency times requests
over slots.

Run: python benchmarks/endpoints.py
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ChatPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.envs.tools import Tool
from palaestra.play.rollout import rollout
from palaestra.teams import role_tools, supervisor
from palaestra.testing.endpoint import StubEndpoint

EPISODES, LATENCY, FAULTS, SLOTS = 200, 0.2, 0.1, 8
REQUESTS = 6
"""Of an episode: the supervisor three times, the coder twice, the writer once."""
MOST = 1.2


class Double(TaskEnv):
    """Twice a number."""

    def draw(self, seed: int) -> Task:
        """Number of the seed."""
        return Task(f"{seed}", f"What is {seed} times 2?", lambda text: float(text == str(2 * seed)), str(2 * seed))


def answer(body: dict[str, Any]) -> str | dict[str, Any]:
    """What the model says: it works step by step as it should."""
    last = body["messages"][-1]
    if body.get("tools"):
        if last["role"] == "tool":
            return f"Answer: {last['content']}"
        number = last["content"].split("What is ")[1].split()[0]
        call = {"name": "double", "arguments": json.dumps({"n": int(number)})}
        return {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    if "next" in properties:
        done = [worker for worker in ("coder", "writer") if f'from="{worker}"' in last["content"]]
        step = "FINISH" if "writer" in done else "writer" if done else "coder"
        return json.dumps({"reasoning": "", "instruction": "Do it.", "next": step})
    heard = re.search(r'from="coder"[^>]*>\s*(?:Answer: )?(\d+)', last["content"])
    return json.dumps({"reasoning": "", "answer": heard[1] if heard else "?"})


@dataclass
class Result:
    """What came of it.

    wall, ideal, bound: seconds of the team, of the ideal schedule, and at least.
    right: episodes that ended with the right answer. turns: rows. paid: answers that were paid. twice: those of them
    that were paid before. faulty: requests that failed. lost: attempts that may have been billed.
    """

    wall: float
    ideal: float
    bound: float
    right: int
    turns: int
    paid: int
    twice: int
    faulty: int
    lost: int


async def plainly(requests: int, *, latency: float, slots: int) -> float:
    """Seconds that a plain client takes for so many requests, none of which fails."""
    from openai import AsyncOpenAI

    left = iter(range(requests))

    async def work(client: AsyncOpenAI) -> None:
        for number in left:
            talk = [{"role": "user", "content": f"{number} {'word ' * 100}"}]
            await client.chat.completions.create(model="stub", messages=talk)  # type: ignore[arg-type]

    with StubEndpoint(lambda body: "yes", latency=latency) as endpoint:
        async with AsyncOpenAI(base_url=endpoint.url, api_key="none") as client:
            await client.chat.completions.create(model="stub", messages=[])
            began = perf_counter()
            await asyncio.gather(*[work(client) for _ in range(slots)])
            return perf_counter() - began


def measure(
    *, episodes: int = EPISODES, latency: float = LATENCY, faults: float = FAULTS, slots: int = SLOTS, seed: int = 0,
    wait: float = 1.0,
) -> Result:  # fmt: skip
    """Play, with one replica killed on the way. wait: of the policy."""
    arrived, enough = 0, threading.Event()

    def counted(body: dict[str, Any]) -> str | dict[str, Any]:
        nonlocal arrived
        arrived += 1
        if arrived >= 0.4 * REQUESTS * episodes:
            enough.set()
        return answer(body)

    replicas = [StubEndpoint(counted, latency=latency, faults=faults, seed=seed + number) for number in range(2)]
    killer = threading.Thread(target=lambda: enough.wait() and replicas[1].kill(), daemon=True)
    killer.start()
    policy = ChatPolicy(
        "stub", base_url=[each.url for each in replicas], api_key_env=None, concurrency=slots, wait=wait
    )
    double = Tool("double", "Twice a number.", {"n": {"type": "integer"}}, lambda n: str(2 * n))
    env = role_tools(supervisor(Double, {"coder": "You compute.", "writer": "You write."}), {"coder": [double]})
    with StubEndpoint(lambda body: "hi") as other:  # what has to be imported is imported
        ChatPolicy("stub", base_url=other.url, api_key_env=None).act(
            [Request(Observation("hi"), "nobody", np.random.default_rng(0))]
        )
    began = perf_counter()
    turns = rollout(
        env, Team(dict.fromkeys(env().agents, policy)), groups=episodes, group_size=1, seed=seed,
        concurrency=episodes, retries=0,
    )  # fmt: skip
    wall = perf_counter() - began
    enough.set()
    killer.join()
    replicas[0].kill()
    paid = [json.dumps(body, sort_keys=True) for each in replicas for body in each.paid]
    faulty = sum(each.faulty for each in replicas)
    right = turns.frame.filter(pl.col("error").is_null() & pl.col("success"))["group"].n_unique()
    requests = len(paid) + faulty
    bound = max(requests * latency / slots, REQUESTS * latency)
    ideal = max(asyncio.run(plainly(requests, latency=latency, slots=slots)), REQUESTS * latency)
    lost = int(policy.totals["lost"])
    return Result(wall, ideal, bound, right, len(turns), len(paid), len(paid) - len(set(paid)), faulty, lost)


def main() -> None:
    """Two seeds; exits with 1 if something was lost or paid twice, or took too long."""
    failed = False
    for seed in range(2):
        found = measure(seed=seed)
        print(
            f"seed {seed}: {found.right} of {EPISODES} right; {found.turns} turns, {found.paid} answers paid,"
            f" {found.twice} twice; {found.faulty} faults, {found.lost} without an answer; {found.wall:.1f} s,"
            f" {found.wall / found.ideal:.2f} of the ideal {found.ideal:.1f} s (at least {found.bound:.1f} s)"
        )
        failed |= found.right < EPISODES or found.twice > 0 or found.turns != found.paid
        failed |= found.wall > MOST * found.ideal
    sys.exit(failed)


if __name__ == "__main__":
    main()
