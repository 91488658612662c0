"""[140] OneFlow (arXiv 2601.12307): a workflow of one model can be one conversation, and then costs less.

The worked prices; and a stub that depends on its role and on what it heard alone plays a chain of roles: the answer of
the team is that of the same roles asked one after the other by one agent. Left out: search over workflows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import workflow_cost
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, reproduction

WORKED = {(1000, 4, 200): (9200, 5540), (4000, 4, 200): (21200, 9440), (4000, 8, 200): (45600, 15920),
          (500, 2, 500): (5900, 5020)}  # fmt: skip
ROLES, TASKS = ("reader", "planner", "writer", "checker"), 30


class Prompts(TaskEnv):
    """A number to start from."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", f"{seed}", lambda text: float(text != ""), None)


def node(role: str, question: str, heard: str) -> str:
    """What a context-free model says: a function of its role and what it was given."""
    return hashlib.blake2b(f"{role}/{question}/{heard}".encode(), digest_size=4).hexdigest()


def as_team(seed: int) -> list[str]:
    """The last answers of a chain of roles."""

    def say(request: Request) -> str:
        question, _, heard = request.observation.text.partition(" | ")
        return node(request.agent, question, heard)

    env, policy = workflows.chain(Prompts, ROLES), ScriptedPolicy(say, name="stub")
    turns = rollout(env, Team(dict.fromkeys(ROLES, policy)), groups=TASKS, seed=seed, timeout=None).frame
    return turns.filter(turns["agent"].cast(str) == ROLES[-1]).sort("group")["answer"].to_list()


def as_one(seed: int) -> list[str]:
    """The same roles, asked in turn by one agent that keeps the conversation."""
    env, policy = workflows.single(Prompts), None

    def say(request: Request) -> str:
        question, said = request.observation.text, ""
        for role in ROLES:
            said = node(role, question, said)
        return said

    policy = ScriptedPolicy(say, name="stub")
    turns = rollout(env, Team(solver=policy), groups=TASKS, seed=seed, timeout=None).frame
    return turns.sort("group")["answer"].to_list()


@reproduction(
    140,
    claim="One conversation with a cached prefix does what a workflow of one model does, for 15 to 65 % less.",
    baseline="a call for each role",
    criterion="worked prices exact; both executors agree on every task of every seed",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Prices, then both executors."""
    measured, exact = {}, True
    for (shared, count, output), expected in WORKED.items():
        team, alone = workflow_cost(shared, [200] * count, [output] * count)
        measured[f"saved_{shared}_{count}_{output}"] = 1 - alone / team
        exact &= abs(team - expected[0]) < 1e-6 and abs(alone - expected[1]) < 1e-6
    agreed = [as_team(seed) == as_one(seed) for seed in seeds]
    return Outcome(measured | {"agree": float(sum(agreed) / len(agreed))}, bool(exact and all(agreed)))
