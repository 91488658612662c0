"""[210] MMOA-RAG (arXiv 2501.15228): rewriter, selector and generator as one team, paid the F1 of the answer.

A fixed retriever, six questions and a few rewritings, selections and answers, some of which break a rule. One network
with a role in its features is all three seats, warm-started on play that is seldom right. Left out: language models,
HotpotQA, a floor of the KL coefficient.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import MLPPolicy, ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Rag
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout
from palaestra.rewards import answer_penalty, mmoa_rag_reward, rewriting_penalty, role_periods, selection_penalty
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import exact

INPUTS = 3 + 6 + 4 + 5


def settings() -> dict[str, Any]:
    """The recipe of the team."""
    return {
        "name": "rag",
        "env": {"make": "native/rag"},
        "policies": {
            "shared": {"kind": "mlp", "options": {"hidden": [32]}},
            "teacher": {"kind": "script", "options": {"script": f"{__name__}:beginner", "skill": 0.4}},
        },
        "team": {"*": "shared"},
        "reward": "mmoa_rag_reward()",
        "stages": ["critic()"],
        "credit": "role_periods(gae())",
        "learn": {"lr": 0.03},
        "phases": [
            {"name": "tuned", "until": 10, "stages": ["demonstrate('teacher')"], "credit": "return_to_go()",
             "learn": {"lr": 0.03, "terms": ["clone(column='loss_mask')"]}},
            {"name": "joint"},
        ],
        "train": {"iterations": 100, "groups": 32, "group_size": 4, "evaluate_every": 100, "checkpoint_every": 100},
        "evaluation": {"tasks": 300, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip


def ready() -> dict[str, Any]:
    """The recipe without the imitation before it."""
    return {name: value for name, value in settings().items() if name != "phases"}


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `rag.yaml`."""
    (folder / "rag.yaml").write_text(json.dumps(settings()))


def beginner(skill: float = 0.3) -> Any:
    """A script that breaks no rule and is right with this chance: labels for the warm start of each module."""
    world = Rag()

    def play(request: Request) -> int:
        words = request.observation.text.replace(",", "").split()
        question, mask = int(words[2]), request.observation.mask
        allowed = np.arange(4) if mask is None else np.flatnonzero(mask)
        right = int(world.rewriting[question])
        if words[0] == "selector:":
            right = int(world.document[question])
        if words[0] == "generator:":
            read = request.observation.text.rpartition("read ")[2]
            right = request.observation.legal.index(read) if read in request.observation.legal else 0
        lucky = request.rng.random() < skill and right in allowed
        return right if lucky else int(request.rng.choice(allowed))

    return play


def numbers(signal: Any, turns: Turns) -> list[float]:
    """Values of a signal."""
    found: list[float] = np.asarray(signal.evaluate(turns), float).round(6).tolist()
    return found


def talk(f1: float = 0.8) -> Turns:
    """One episode in which the rewriter asks five things, the selector names an unknown document."""
    return Turns(
        {
            "iteration": [1] * 3, "group": [0] * 3, "episode": [0] * 3, "turn": [0, 1, 2],
            "agent": ["rewriter", "selector", "generator"],
            "action": ["a; b; c; d; e", "Document 3, Document 9", "yes"], "found": [[1, 3]] * 3,
            "answer_f1": [None, None, f1],
        }
    )  # fmt: skip


@exact
def the_answer_pays_every_role() -> None:
    """Each role gets the F1 of the answer, .8, beside its own penalty: .3, -.2, .8; without penalties .8 each."""
    assert numbers(mmoa_rag_reward(), talk()) == [0.3, -0.2, 0.8]
    assert numbers(mmoa_rag_reward(penalties=0.0), talk()) == [0.8, 0.8, 0.8]
    played = rollout(
        Rag, Team(dict.fromkeys(Rag.agents, ScriptedPolicy(beginner(1.0)))), groups=20, group_size=1, seed=0
    )
    assert played.frame["success"].drop_nulls().all()
    assert set(numbers(mmoa_rag_reward(), played)) == {1.0}


@exact
def penalties_of_each_role() -> None:
    """-.5 beyond 4 sub-questions or 300 characters, -1 for bad, unknown or repeated ids, -1 beyond 30 words."""
    said = ["a; b; c; d", "a; b; c; d; e", "x" * 300, "x" * 301, "a\nb\nc\nd\ne"]
    assert numbers(rewriting_penalty(), Turns({"action": said})) == [0, -0.5, 0, -0.5, -0.5]
    named = [
        "Document 1",
        "Document 1, Document 3",
        "Document 1,Document 1",
        "Document 2",
        "the first",
        "Document 1 3",
        "",
    ]
    rows = Turns({"action": named, "found": [[1, 3]] * 7})
    assert numbers(selection_penalty(), rows) == [0, 0, -1, -1, -1, -1, -1]
    assert numbers(answer_penalty(), Turns({"action": ["w " * 30, "w " * 31, ""]})) == [0, -1, 0]
    assert numbers(mmoa_rag_reward(), talk(0.0)) == [-0.5, -1.0, 0.0]


def played(policy: Any, groups: int = 40, **options: Any) -> Turns:
    """Turns of one policy in all seats."""
    return rollout(lambda: Rag(**options), Team(dict.fromkeys(Rag.agents, policy)), groups=groups, group_size=1, seed=1)


def probabilities(policy: Any, rows: pl.DataFrame) -> dict[str, np.ndarray]:
    """Current probability of the rows' actions under the policy, by role."""
    with torch.no_grad():
        logprobs = policy.score(rows).logprobs[:, 0].exp().double().numpy()
    agents = rows["agent"].cast(pl.String).to_numpy()
    return {role: logprobs[agents == role] for role in Rag.agents}


@exact
def all_roles_learn_in_one_update() -> None:
    """Every role's rows have an advantage in every iteration; with periods some rest, and not before `start`."""
    rows = Turns(talk().frame.with_columns(x=pl.lit(1.0)))
    assert numbers(role_periods("x"), rows) == [1, 1, 1]
    assert numbers(parse("role_periods('x', ('rewriter', 0), ('selector', 2))"), rows) == [0, 0, 1]
    assert numbers(role_periods("x", ("rewriter", 2), start=5), rows) == [1, 1, 1]
    done = learn(ready() | {"train": {"iterations": 2, "groups": 8, "group_size": 4}}, trust=True)
    told = done.lines[-1]["policies"]["shared"]
    assert told["zero_credit"] < 0.3, "the advantage of a third of the rows would be 0 for sure"


@exact
def one_network_for_all_roles() -> None:
    """The team has one policy; what it learns from the rewriter's rows alone changes the other roles' probabilities."""
    done = learn(ready() | {"train": {"iterations": 1, "groups": 8, "group_size": 4}}, trust=True)
    assert len(done.team.policies) == 1
    (policy,) = done.team.policies.values()
    rows = played(policy)
    before = probabilities(policy, rows.frame)
    learner = PolicyGradient(Team(dict.fromkeys(Rag.agents, policy)), lr=0.05)
    first = Turns(rows.frame.filter(pl.col("agent").cast(pl.String) == "rewriter").with_columns(advantage=pl.lit(1.0)))
    learner.update(first)
    after = probabilities(policy, rows.frame)
    assert all(np.abs(after[role] - before[role]).max() > 1e-3 for role in Rag.agents)


@exact
def warm_start_keeps_the_rules() -> None:
    """After imitation of scripted modules fewer outputs break the rules than before, even with free decoding."""

    def broken(policy: Any) -> float:
        found = numbers(mmoa_rag_reward(0.0), played(policy, 100, restricted=False))
        return float(np.mean(np.array(found) < 0))

    before = broken(MLPPolicy(INPUTS, 6, hidden=(32,), name="shared"))
    short = {"iterations": 10, "groups": 16, "group_size": 4}
    (policy,) = learn(settings() | {"train": short}, trust=True).team.policies.values()
    assert broken(policy) < 0.7 * before, (broken(policy), before)


@exact
def selector_names_what_was_found() -> None:
    """Before any learning every selection names a document that was found; with free decoding most do not."""
    policy = MLPPolicy(INPUTS, 6, hidden=(32,), name="shared")

    def invalid(**options: Any) -> float:
        rows = Turns(played(policy, 60, **options).frame.filter(pl.col("agent").cast(pl.String) == "selector"))
        return float(np.mean(np.array(numbers(selection_penalty(), rows)) < 0))

    assert invalid() == 0.0
    assert invalid(restricted=False) > 0.4
