"""[118] Debate as test-time scaling (arXiv 2505.22960): without a bias to the truth talking adds nothing to a vote.

Scripted agents play the workflow `debate` itself: each answers with a chance of its own for the question, then goes
over to a peer it drew, or, with a bias, rather to one that is right. Beside it `self_consistency` with as many calls.
An agent that copies an unbiased peer keeps the mean number of right answers, a martingale. Left out: language models.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import flips
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, exact, reproduction

AGENTS, ROUNDS, QUESTIONS, CHANCE = 4, 3, 200, 0.6
RIGHT, WRONG = "right", ("likely wrong", "other")


class Questions(TaskEnv):
    """How hard it is stands in the question: a chance to be right, drawn from Beta(3p, 3(1 - p))."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        chance = float(np.random.default_rng(seed).beta(3 * CHANCE, 3 * (1 - CHANCE)))
        return Task(f"{seed}", f"{chance:.4f}", lambda text: float(text == RIGHT), RIGHT)


def say(bias: float, request: Request) -> str:
    """First an answer of its own; then that of a peer, right ones (1 + bias) times as likely."""
    question, *heard = request.observation.text.split(" | ")
    if not heard:
        if request.rng.random() < float(question):
            return RIGHT
        return WRONG[0] if request.rng.random() < 0.6 else WRONG[1]
    weights = np.array([1 + bias * (text == RIGHT) for text in heard])
    return heard[int(request.rng.choice(len(heard), p=weights / weights.sum()))]


def debater(bias: float) -> Callable[[Request], str]:
    """Script of one that goes over to peers, to right ones (1 + bias) times as likely."""
    return functools.partial(say, bias)


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of debaters who find right answers twice as persuasive, `debaters.yaml`."""
    here = __name__
    made = {
        "name": "debaters",
        "env": {"make": f"{here}:Questions"},
        "policies": {"debater": {"kind": "script", "options": {"script": f"{here}:debater", "bias": 1.0}}},
        "team": {"*": "debater"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 600, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "debaters.yaml").write_text(json.dumps(made))


def spoken(env: EnvFactory, say: Callable[[Request], str], groups: int = 1) -> Turns:
    """Everybody of a team says what this function says."""
    return rollout(env, Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="s"))), groups=groups, timeout=None)


@exact
def all_are_heard() -> None:
    """In the second round everybody reads the own answer and those of all others."""
    frame = spoken(workflows.debate(Questions, 3, 2), lambda request: request.agent[-1]).frame
    second = frame.filter(pl.col("round") == 1).sort("agent")
    read = [text.partition(" | ")[2] for text in second["observation"]]
    assert read == ["1 | 2 | 3", "2 | 1 | 3", "3 | 1 | 2"]
    assert second["heard"].to_list()[0] == ["debater-2", "debater-3"]


@exact
def equal_calls() -> None:
    """Debate, vote and refinement take twelve calls each; the vote is that of all twelve samples."""
    last = functools.partial(say, 0.0)
    teams = {
        "debate": workflows.debate(Questions, AGENTS, ROUNDS),
        "vote": workflows.self_consistency(Questions, AGENTS * ROUNDS),
        "refine": workflows.refine(Questions, AGENTS * ROUNDS, stop="never()"),
    }
    frames = {name: spoken(env, last, groups=3).frame for name, env in teams.items()}
    assert {name: len(frame) / 3 for name, frame in frames.items()} == {"debate": 12, "vote": 12, "refine": 12}
    texts = [RIGHT] * 3 + [WRONG[0]] * 2 + [WRONG[0], RIGHT, RIGHT, RIGHT, RIGHT] + [WRONG[0]] * 2  # 7 of 12, not of 4
    numbered = dict(zip((f"solver-{at}" for at in range(1, 13)), texts))
    voted = spoken(teams["vote"], lambda request: numbered[request.agent]).frame
    assert voted["success"].all()
    few = dict(numbered, **{f"solver-{at}": WRONG[0] for at in (1, 2, 3)})  # 4 of 12, and the last says nothing right
    assert not spoken(teams["vote"], lambda request: few[request.agent]).frame["success"].any()


@exact
def one_refines() -> None:
    """The sequential baseline is one agent that reads its own last answer."""
    frame = spoken(workflows.refine(Questions, 3, stop="never()"), lambda request: WRONG[0]).frame
    assert frame["agent"].cast(str).unique().to_list() == ["solver"]
    assert [text.partition(" | ")[2] for text in frame.sort("turn")["observation"]] == ["", WRONG[0], WRONG[0]]


@exact
def unbiased_flips() -> None:
    """Who copies any peer turns right as often as wrong, to three standard errors."""
    turns = spoken(workflows.debate(Questions, AGENTS, ROUNDS), functools.partial(say, 0.0), groups=150)
    turned = flips(turns).select("to_right", "to_wrong").sum()
    right, wrong = turned.row(0)
    assert right + wrong > 100
    assert abs(right - wrong) <= 3 * np.sqrt(right + wrong), (right, wrong)


@exact
def flips_by_difficulty() -> None:
    """What turns right and wrong is counted apart for easy and hard tasks."""
    table = Turns({
        "group": [0] * 4 + [1] * 4, "episode": [0] * 4 + [1] * 4, "turn": [0, 0, 1, 1] * 2, "agent": ["a", "b"] * 4,
        "score": [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0], "level": ["hard"] * 4 + ["easy"] * 4,
        "success": [True] * 4 + [False] * 4,
    })  # fmt: skip
    found = flips(table, by="level").filter(pl.col("turn") == 1)
    rows = {row["level"]: (row["to_right"], row["to_wrong"]) for row in found.iter_rows(named=True)}
    assert rows == {"hard": (1, 0), "easy": (0, 1)}
    lost = {row["level"]: row["overruled_right"] for row in found.iter_rows(named=True)}
    assert lost == {"hard": 0, "easy": 1}  # right at the end, in a task that failed


@exact
def unsafe_spreads() -> None:
    """One agent that always says the unsafe thing, peers who conform half of the time: more say it in every round."""

    def conform(request: Request) -> str:
        _, *heard = request.observation.text.split(" | ")
        if request.agent == "debater-1" or (heard and heard[0] == "unsafe"):
            return "unsafe"
        return "unsafe" if "unsafe" in heard and request.rng.random() < 0.5 else "safe"

    frame = spoken(workflows.debate(Questions, AGENTS, 4), conform, groups=40).frame
    shares = frame.group_by("round").agg((pl.col("answer") == "unsafe").mean()).sort("round")["answer"].to_numpy()
    assert shares[0] == 1 / AGENTS
    assert (np.diff(shares) > 0.05).all(), shares


def played(bias: float, seed: int) -> tuple[float, float, list[float]]:
    """Success of a debate and of as many votes, and the share of right answers by round."""
    policy = ScriptedPolicy(functools.partial(say, bias), name="talker")
    talk, vote = workflows.debate(Questions, AGENTS, ROUNDS), workflows.self_consistency(Questions, AGENTS * ROUNDS)
    turns = {
        name: rollout(env, Team(dict.fromkeys(env().agents, policy)), groups=QUESTIONS, seed=seed, timeout=None)
        for name, env in (("talk", talk), ("vote", vote))
    }
    found = {name: float(each.frame.unique(["group"])["success"].mean()) for name, each in turns.items()}  # type: ignore[arg-type]
    rounds = turns["talk"].frame.group_by("round").agg(right="score").sort("round")["right"]
    return found["talk"], found["vote"], [float(each.mean()) for each in rounds]


@reproduction(
    118,
    claim="Debate with unbiased copying keeps the mean share of right answers and does not beat a vote with as many "
    "calls; with a bias to the truth it does.",
    baseline="self-consistency with as many calls",
    criterion="without bias the share of right answers stays within 3 standard errors over rounds and debate is at "
    "most the vote; with a bias of 3 it is ahead of the vote, in every seed (held on both fresh "
    "blocks of two seeds tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both biases, both workflows."""
    error = 3 * 0.5 / np.sqrt(QUESTIONS * AGENTS) * np.sqrt(2)
    plain, biased = ([played(bias, seed) for seed in seeds] for bias in (0.0, 3.0))
    drift = max(abs(rounds[-1] - rounds[0]) for _, _, rounds in plain)
    measured = {
        "debate_unbiased": float(np.mean([each[0] for each in plain])), "vote": float(np.mean([e[1] for e in plain])),
        "debate_biased": float(np.mean([each[0] for each in biased])), "drift": drift,
    }  # fmt: skip
    holds = drift <= error and all(talk <= vote + 1e-9 for talk, vote, _ in plain)
    return Outcome(measured, bool(holds and all(talk > vote for talk, vote, _ in biased)))
