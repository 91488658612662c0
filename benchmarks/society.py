"""Wall time of a round of fifty seats at a slow endpoint, and the rows of a seat whose endpoint is down.

Fifty chat policies share a commons: in each round everybody is asked at once how much to take, then one of them speaks;
an answer takes 0.2 s. A round should cost its longest chain, which is two answers, not fifty-one. Then they debate with
`on_error="skip"`, and the endpoint of one seat fails for 60 s (`--down`) from the second round on. Its rows of that
time must say so, everybody else's answers must be there, no answer may be paid twice, and the seat must be heard
again as soon as its endpoint is back.

Run: python benchmarks/society.py [--down 60]
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import polars as pl

from palaestra.agents import ChatPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.envs.worlds.commons import Commons
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra.testing.endpoint import StubEndpoint

SEATS, LATENCY, ROUNDS, DOWN = 50, 0.2, 6, 60.0
MOST = 1.5
"""Times the longest chain that a round may take."""


class Seven(TaskEnv):
    """One sum."""

    def draw(self, seed: int) -> Task:
        """The same for each seed."""
        return Task("seven", "3 + 4 =", lambda text: float(text.strip() == "7"), "7")


def answer(body: dict[str, Any]) -> str:
    """An answer that every seat may give: seven, in the format that is asked for."""
    return json.dumps({"reasoning": "", "answer": "7"}) if "response_format" in body else "7"


def at(endpoint: StubEndpoint, **options: Any) -> ChatPolicy:
    """A policy at that endpoint."""
    return ChatPolicy("stub", base_url=endpoint.url, api_key_env=None, concurrency=SEATS, **options)


@dataclass
class Society:
    """Commons: seconds of an episode, and of its longest chain of answers. rows: turns. paid: answers paid for."""

    wall: float
    chain: float
    rows: int
    paid: int


def society(*, seats: int = SEATS, rounds: int = ROUNDS, latency: float = LATENCY) -> Society:
    """One episode of the commons."""
    make = functools.partial(Commons, people=seats, rounds=rounds, most=1, talk="limit")
    with StubEndpoint(lambda body: "1", latency=latency) as endpoint:
        policy = at(endpoint)
        rollout(
            make, Team(dict.fromkeys(make().agents, policy)), groups=1, group_size=1, seed=1
        )  # connections are made, modules imported
        endpoint.paid.clear()
        began = perf_counter()
        rows = rollout(
            make, Team(dict.fromkeys(make().agents, policy)), groups=1, group_size=1, seed=0, retries=0
        ).frame
        wall = perf_counter() - began
        return Society(wall, rows["turn"].n_unique() * latency, rows.height, len(endpoint.paid))


@dataclass
class Outage:
    """Debate: rows of the others, those without an error, answers paid to them, and twice; likewise of the seat.

    errors: rows of the seat that say that its policy failed. heard: its rows with an answer after the outage.
    """

    others: int
    answered: int
    paid: int
    twice: int
    errors: int
    heard: int
    seat_paid: int
    wall: float


def outage(*, seats: int = SEATS, rounds: int = ROUNDS, latency: float = LATENCY, down: float = DOWN) -> Outage:
    """One debate; the last seat's endpoint fails from its second answer on, for `down` seconds."""
    make = workflows.debate(Seven, seats, rounds=rounds, on_error="skip")
    with StubEndpoint(answer, latency=latency) as good, StubEndpoint(answer, latency=latency) as bad:

        def restored() -> None:
            bad.faults = 0.0

        timer = threading.Timer(down, restored)

        def fails_next(body: dict[str, Any]) -> str:
            if bad.faults == 0.0 and not timer.is_alive() and not timer.finished.is_set():
                bad.faults = 1.0
                timer.start()
            return answer(body)

        bad.answer = fails_next
        agents = make().agents
        last = at(bad, name="last", wait=down / 30, longest_wait=down / 4, retries=5)
        team = Team({**dict.fromkeys(agents, at(good)), agents[-1]: last})
        began = perf_counter()
        rows = rollout(make, team, groups=1, group_size=1, seed=0, retries=0).frame
        wall = perf_counter() - began
        timer.cancel()
    others, mine = (rows.filter(pl.col("agent").eq(agents[-1]) == own) for own in (False, True))
    paid = [json.dumps(body, sort_keys=True) for body in good.paid]
    return Outage(
        others.height, others["error"].null_count(), len(paid), len(paid) - len(set(paid)),
        mine.height - mine["error"].null_count(), mine["error"].null_count() - 1, len(bad.paid), wall,
    )  # fmt: skip


def main() -> None:
    """Both; exits with 1 if a round costs more, or something was lost or paid twice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--down", type=float, default=DOWN, help="seconds that the endpoint of a seat fails")
    down = parser.parse_args().down
    found = society()
    print(
        f"commons, {SEATS} seats: {found.rows} turns, {found.paid} answers paid, {found.wall:.2f} s,"
        f" {found.wall / found.chain:.2f} of the longest chain ({found.chain:.1f} s)"
    )
    gone = outage(down=down)
    print(
        f"debate, {SEATS} seats, one down for {down:.0f} s: {gone.answered} of {gone.others} answers of the others,"
        f" {gone.paid} paid, {gone.twice} twice; of the seat {gone.errors} rows with an error, {gone.heard} answers"
        f" afterwards; {gone.wall:.0f} s"
    )
    lost = gone.answered < gone.others or gone.paid != gone.others or found.rows != found.paid
    silent = gone.errors == 0 or gone.heard == 0 or gone.seat_paid != gone.heard + 1
    sys.exit(found.wall > MOST * found.chain or lost or silent)


if __name__ == "__main__":
    main()
