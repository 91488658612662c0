"""[140] OneFlow (arXiv 2601.12307): a workflow of one model can be one conversation, and then costs less.

The worked prices; and a stub that depends on its role and on what it heard alone plays a chain of roles: the answer of
the team is that of the same roles asked one after the other by one agent. And a search over workflows: edits that a
rule reviews, beside edits at random with as many evaluations, and the reward with and without cost, in simulated
offices in which four of eight roles are needed in one order. Left out: language models as designer and critic, the
seven benchmarks.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.analyses import ANALYSES
from palaestra.evaluation.teamwork import workflow_cost
from palaestra.play.rollout import rollout
from palaestra.teams import one_conversation, workflows
from palaestra.teams.workflow_edits import WorkflowDesign
from palaestra.teams.workflow_search import drawn_edits, search_workflows, surrogate_critic
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

WORKED = {(1000, 4, 200): (9200, 5540), (4000, 4, 200): (21200, 9440), (4000, 8, 200): (45600, 15920),
          (500, 2, 500): (5900, 5020)}  # fmt: skip
ROLES, TASKS = ("reader", "planner", "writer", "checker"), 30
POOL, NEEDED, BUDGET, PRICE = tuple("abcdefgh"), 4, 40, 0.05
OFFICES, PLAYED = 20, 400


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
    turns = conversation(seed)
    return turns.filter(pl.col("round") == len(ROLES) - 1).sort("group")["answer"].to_list()


def conversation(seed: int, groups: int = TASKS) -> pl.DataFrame:
    """One agent that answers as each role in turn."""

    def say(request: Request) -> str:
        question, *before, role = request.observation.text.split(" | ")
        return node(role, question, before[0] if before else "")

    env = one_conversation(Prompts, ROLES)
    return rollout(env, Team(solver=ScriptedPolicy(say, name="stub")), groups=groups, seed=seed, timeout=None).frame


@exact
def worked_prices() -> None:
    """The card's prices of four workflows, as a team and as one conversation."""
    for (shared, count, output), expected in WORKED.items():
        np.testing.assert_allclose(workflow_cost(shared, [200] * count, [output] * count), expected, atol=1e-6)
    (row,) = ANALYSES.build("conversation(1000, [200, 200, 200, 200], [200, 200, 200, 200])")().to_dicts()
    assert (row["team"], row["one_conversation"]) == (9200.0, 5540.0)


@exact
def no_shared_cache() -> None:
    """Two models that take turns read again what the other one wrote; with a model for each node nothing is saved."""
    sizes = [200] * 4, [200] * 4
    first = (1200 + 800) + (200 + 1400 + 800)  # both models read all before their first turn
    third = 200 + 0.1 * 1400 + (400 + 800)  # of 1800 the first one holds 1400: what it read and wrote
    fourth = 200 + 0.1 * 1800 + (400 + 800)
    np.testing.assert_allclose(workflow_cost(1000, *sizes, models="abab")[1], first + third + fourth, atol=1e-6)
    apart = workflow_cost(1000, *sizes, models="abcd")
    assert apart[1] >= apart[0], apart


@exact
def same_answers() -> None:
    """A policy that reads its role and what the one before said gives the team's answers, in as many calls."""
    assert as_team(3) == as_one(3)
    turns = conversation(3, groups=1)
    assert len(turns) == len(ROLES)
    assert turns["agent"].cast(str).unique().to_list() == ["solver"]


@exact
def earlier_turns_stay() -> None:
    """The last role reads every earlier prompt and answer, which the last role of a chain never sees."""
    env = one_conversation(Prompts, dict.fromkeys(ROLES, "do your part"))()
    (seen,) = env.reset(0).values()
    for role in ROLES[:-1]:
        (seen,) = env.step({"solver": f"said by {role}"}).observations.values()
    talk = list(seen.messages or ())
    assert [message["role"] for message in talk] == ["system", *["user", "assistant"] * 3, "user"]
    whole = "\n".join(str(message["content"]) for message in talk)
    assert all(f"{role}: do your part" in whole for role in ROLES)
    assert all(f"said by {role}" in whole for role in ROLES[:-1])
    team = workflows.chain(Prompts, dict.fromkeys(ROLES, "do your part"))()
    (seen,) = team.reset(0).values()
    for role in ROLES[:-1]:
        (seen,) = team.step({role: f"said by {role}"}).observations.values()
    assert "said by reader" not in "\n".join(str(message["content"]) for message in seen.messages or ())


class LongPrompts(Prompts):
    """The same after a text of three hundred words, which every role reads."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", " ".join(["word"] * 300 + [f"{seed}"]), lambda text: float(text != ""), None)


def stub() -> Callable[[Request], str]:
    """Script of any role, alone or in a team: forty words that depend on the role and on what the one before said."""

    def say(request: Request) -> str:
        question, *told = request.observation.text.split(" | ")
        role = told.pop() if request.agent == "solver" else request.agent
        return " ".join([node(role, question, told[0] if told else "")] * 40)

    return say


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of roles that a stub plays, `roles.yaml`."""
    here = __name__
    made = {
        "name": "roles",
        "env": {"make": f"{here}:LongPrompts"},
        "policies": {"stub": {"kind": "script", "options": {"script": f"{here}:stub"}}},
        "team": {"*": "stub"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 20, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "roles.yaml").write_text(json.dumps(made))


def spent(cached: float = 0.1, output: float = 4.0) -> Measure:
    """Price of an episode in words, per seed: what an agent read before costs `cached`, what it says `output` times."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            frame = Turns.load(seed / "turns").frame.sort("group", "episode", "turn")
            total = 0.0
            for (_, _), episode in frame.group_by("group", "episode", maintain_order=True):
                held: dict[str, int] = {}
                said: dict[str, int] = {}
                for agent, read, answer in episode.select(pl.col("agent").cast(str), "observation", "answer").rows():
                    question = len(read.split(" | ")[0].split())
                    before = held.get(agent, 0)
                    new = len(read.split()) - (question + said[agent] if agent in said else 0)
                    out = len(answer.split())
                    total += new + cached * before + output * out
                    held[agent], said[agent] = before + new + out, out
            found.append(total / frame.select("group", "episode").n_unique())
        return found

    return measured


class Office:
    """Simulated tasks of one to four steps: each step needs its role, after the one before it; roles may fail.

    A role that stands twice in order tries twice. One agent in one conversation loses a hundredth of its accuracy with
    each earlier node; in a vote or a debate nobody goes on from what another one did, so that only first steps are
    done; in a star the last role goes on from the others.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.needed = [POOL[at] for at in rng.permutation(len(POOL))[:NEEDED]]
        self.skill = rng.uniform(0.7, 0.95, NEEDED)
        self.words = dict(zip(POOL, rng.integers(20, 200, len(POOL)).tolist(), strict=True))

    def accuracy(self, design: WorkflowDesign) -> float:
        """Share of tasks that a workflow solves."""
        roles, done, at, right = design.roles, [], 0, 1.0
        if design.shape in ("vote", "debate"):
            share = roles.count(self.needed[0]) / len(roles)
            return float(self.skill[0] * (1.0 if share > 0.5 else share) / NEEDED)
        for step, role in enumerate(self.needed):
            later = [place for place in range(at, len(roles)) if roles[place] == role]
            if design.shape == "star" and step == 1:
                later = later[-1:] if roles[-1] == role else []
            right *= 1 - (1 - self.skill[step]) ** len(later) if step < 2 or design.shape != "star" else 0.0
            at = later[0] + 1 if later else at
            done.append(right)
        return float(np.mean(done)) * (0.99 ** (len(roles) - 1) if design.shape == "one_conversation" else 1.0)

    def cost(self, design: WorkflowDesign) -> float:
        """Price of a task in words, with a cache where there is one conversation."""
        team, alone = workflow_cost(300, [60] * len(design.roles), [self.words[role] for role in design.roles])
        return alone if design.shape == "one_conversation" else 2 * team if design.shape == "debate" else team


def searched(seed: int, number: int, *, reviewed: bool = True, price: float = PRICE) -> tuple[Office, WorkflowDesign]:
    """An office, and the workflow that a search chooses for it by noisy evaluations; its edits reviewed or not."""
    office, noise = (
        Office(np.random.default_rng([seed, number, 0])),
        np.random.default_rng([seed, number, 1]),
    )
    known: dict[str, WorkflowDesign] = {}

    def evaluate(design: WorkflowDesign) -> tuple[float, float]:
        known[design.text()] = design
        return noise.binomial(PLAYED, office.accuracy(design)) / PLAYED, office.cost(design)

    table = search_workflows(
        WorkflowDesign("chain", POOL[:1]),
        evaluate,
        POOL,
        budget=BUDGET,
        rng=np.random.default_rng([seed, number, 2]),
        price=price,
        designer=drawn_edits(32),
        critic=surrogate_critic(POOL) if reviewed else None,
    )
    return office, known[table.filter(pl.col("best"))["workflow"].item()]


def worth(office: Office, design: WorkflowDesign) -> float:
    """True reward of a workflow."""
    return office.accuracy(design) - PRICE * office.cost(design) / office.cost(WorkflowDesign("chain", POOL[:1]))


@exact
def edits_reviewed_in_a_tree() -> None:
    """With as many evaluations reviewed edits find a better workflow for its cost than edits at random."""
    pairs = [
        [worth(*searched(0, number, reviewed=reviewed)) for reviewed in (True, False)] for number in range(OFFICES)
    ]
    with_critic, without = np.mean(pairs, axis=0)
    assert with_critic >= without + 0.08, (with_critic, without)


@exact
def cost_in_the_reward() -> None:
    """Accuracy less λ times the cost by the first one's; without the cost the chosen workflow has more nodes."""
    start = WorkflowDesign("chain", ("a",))
    table = search_workflows(
        start, lambda design: (0.5, 8.0 * len(design.roles)), ["a", "b"], budget=6, rng=np.random.default_rng(0)
    )
    np.testing.assert_allclose(table["reward"], 0.5 - 0.1 * table["nodes"].to_numpy(), atol=1e-12)
    assert table.filter(pl.col("best"))["step"].item() == 0
    nodes = [
        float(np.mean([len(searched(0, number, price=price)[1].roles) for number in range(OFFICES)]))
        for price in (PRICE, 0.0)
    ]
    assert nodes[1] >= nodes[0] + 0.5, nodes


@exact
def command() -> None:
    """The command plays a recipe: of equal accuracy the cheapest is best, one conversation below a chain."""
    with tempfile.TemporaryDirectory() as folder:
        recipe(0, Path(folder))
        text = f"search_workflow({list(ROLES)}, 12, tasks=3, start={list(ROLES)}, most=4, seed=1, trust=True)"
        table = ANALYSES.build(text)(Path(folder) / "roles.yaml")
    cost = dict(table.select("workflow", "cost").rows())
    chain, alone = (f"{name}({list(ROLES)})" for name in ("chain", "one_conversation"))
    assert table["accuracy"].to_list() == [1.0] * 12
    assert table.filter(pl.col("best"))["cost"].item() == min(cost.values()) < cost[chain]
    assert cost.get(alone, 0.0) < 0.85 * cost[chain]


@reproduction(
    140,
    claim="One conversation with a cached prefix does what a workflow of one model does, for 15 to 65 % less; with as "
    "many evaluations edits that a critic reviews find better workflows for their cost than edits at random.",
    baseline="a call for each role; edits at random without a critic; a reward without cost",
    criterion="worked prices exact; both executors agree on every task of every seed; in the mean over simulated "
    "offices the workflow found is worth .06 more with the critic, and has .3 nodes more without the cost",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Prices, then both executors, then searches."""
    measured, exact = {}, True
    for (shared, count, output), expected in WORKED.items():
        team, alone = workflow_cost(shared, [200] * count, [output] * count)
        measured[f"saved_{shared}_{count}_{output}"] = 1 - alone / team
        exact &= abs(team - expected[0]) < 1e-6 and abs(alone - expected[1]) < 1e-6
    agreed = [as_team(seed) == as_one(seed) for seed in seeds]
    measured["agree"] = float(sum(agreed) / len(agreed))
    ways: dict[str, dict[str, object]] = {"reviewed": {}, "random": {"reviewed": False}, "free": {"price": 0.0}}
    for name, options in ways.items():
        found = [searched(seed, number, **options) for seed in seeds for number in range(OFFICES)]  # type: ignore[arg-type]
        measured[f"worth_{name}"] = float(np.mean([worth(*each) for each in found]))
        measured[f"nodes_{name}"] = float(np.mean([len(design.roles) for _, design in found]))
    better = measured["worth_reviewed"] >= measured["worth_random"] + 0.06
    smaller = measured["nodes_free"] >= measured["nodes_reviewed"] + 0.3
    return Outcome(measured, bool(exact and all(agreed) and better and smaller))
