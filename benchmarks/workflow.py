"""What the engine of workflows costs beside the policies: CPU time per message, 256 episodes at once.

Debates of five in three rounds and a star of eight, on a task of one line, with policies that say the same at once; the
time of the policies alone is subtracted. Beside it: a turn, and a turn of the same task without a workflow, as many
of them, which is what the engine costs alone; the table of messages from a table of turns, per message.

Run: python benchmarks/workflow.py
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from time import process_time

from palaestra.agents import Team
from palaestra.agents.policy import Decision, Request
from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.play.executors import Local, Plan
from palaestra.teams import workflows

AT_ONCE, EPISODES = 256, 1024
MOST_MICROSECONDS = 25


class Heads(TaskEnv):
    """Heads or tails."""

    def draw(self, seed: int) -> Task:
        """The question."""
        return Task(str(seed), f"heads or tails? {seed}", lambda text: float(text == "heads"), "heads")


class Constant:
    """Says one word, and counts its own time."""

    name = "constant"

    def __init__(self) -> None:
        self.seconds = 0.0

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The same for all."""
        began = process_time()
        said = [Decision("heads") for _ in requests]
        self.seconds += process_time() - began
        return said


def play(env: EnvFactory, episodes: int) -> tuple[Turns, float]:
    """The turns, and CPU microseconds of them all."""
    policy = Constant()
    team = Team(dict.fromkeys(env().agents, policy))
    gc.collect()
    began = process_time()
    turns = Local(concurrency=AT_ONCE, timeout=None).play(env, team, Plan(groups=episodes, seed=1))
    return turns, 1e6 * (process_time() - began - policy.seconds)


def once(env: EnvFactory) -> tuple[float, float, float, int, int]:
    """CPU microseconds per message of play, of the table of messages, of a plain turn; messages and turns."""
    turns, played = play(env, EPISODES)
    began = process_time()
    sent = messages(turns)
    told = 1e6 * (process_time() - began)
    _, plain = play(Heads, len(turns))
    return played / len(sent), told / len(sent), plain / len(turns), len(sent), len(turns)


def main() -> int:
    """Print the table; 1 if a criterion is not met."""
    holds = True
    teams = {
        "debate(5, rounds=3)": workflows.debate(Heads, 5, rounds=3),
        "debate(5, rounds=3, gate='top(2)')": workflows.debate(Heads, 5, rounds=3, gate="top(2)"),
        "star(8, rounds=2)": workflows.star(Heads, 8, rounds=2),
    }
    heads = ("messages", "turns", "µs a message", "a turn", "a plain turn", "table, µs")
    print(f"{'workflow':<36}" + "".join(f"{head:>14}" for head in heads))
    for name, env in teams.items():
        once(env)  # warm
        found = [once(env) for _ in range(4)]  # the best: whoever else is at work only adds
        each, table, plain = (min(row[at] for row in found) for at in range(3))
        sent, turns = found[0][3:]
        numbers = (each, each * sent / turns, plain, table)
        print(f"{name:<36}{sent:>14,}{turns:>14,}" + "".join(f"{number:>14.2f}" for number in numbers))
        holds &= each <= MOST_MICROSECONDS
    verdict = "met" if holds else "NOT met"
    print(f"at most {MOST_MICROSECONDS} µs of CPU for a message, {AT_ONCE} episodes at once: {verdict}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
