"""[135] DyLAN (arXiv 2310.02170): importance that flows back through messages finds the members to keep.

Seven scripted agents of different accuracy play a debate of three rounds; each goes over to what the others say most.
Importance is read from turns and messages, without knowing who was right; the three most important then play against
three drawn ones. Left out: ratings by a language model; a message weighs as
much as others agree with it.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import spearmanr

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.analyses import ANALYSES
from palaestra.evaluation.teamwork import importance_flow
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

ACCURACY = dict(zip((f"debater-{k}" for k in range(1, 8)), np.linspace(0.75, 0.25, 7).tolist()))
OPTIONS, QUESTIONS = 4, 200


W1 = [[0.6, 0.2, 0.2], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]]
W2 = [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]
"""Ratings of the card's example, [receiver][sender]."""
MEMBERS = ("a", "b", "c")


class Choice(TaskEnv):
    """One of four answers, 0 is right."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "which?", lambda text: float(text == "0"), "0")


def rated(weights: Sequence[Sequence[Sequence[float]]]) -> np.ndarray:
    """Importance in each round of three members whose last answers are A, A, B, under these ratings."""
    rounds = len(weights) + 1
    turns = [
        {"group": 0, "episode": 0, "turn": at, "agent": member, "answer": "AAB"[k] if at == rounds - 1 else "?"}
        for at in range(rounds) for k, member in enumerate(MEMBERS)
    ]  # fmt: skip
    sent = [
        {"group": 0, "episode": 0, "sender": sender, "sender_turn": at, "receiver": receiver, "receiver_turn": at + 1,
         "weight": rates[i][k], "kept": True}
        for at, rates in enumerate(weights) for i, receiver in enumerate(MEMBERS) for k, sender in enumerate(MEMBERS)
    ]  # fmt: skip
    found = importance_flow(Turns(pl.DataFrame(turns)), pl.DataFrame(sent, infer_schema_length=None))
    return found["importance"].to_numpy().reshape(rounds, len(MEMBERS))


def layers(said: dict[str, Sequence[str]], **options: object) -> pl.DataFrame:
    """One question, played by members who say these texts in turn."""
    left = {name: iter(texts) for name, texts in said.items()}
    env = workflows.layered(Choice, len(said), **options)  # type: ignore[arg-type]
    policy = ScriptedPolicy(lambda request: next(left[request.agent]), name="s")
    return rollout(env, Team(dict.fromkeys(said, policy)), groups=1, seed=0, timeout=None).frame


@exact
def flows_back() -> None:
    """The worked example: (.5, .5, 0), then (.35, .45, .20), then (.45, .31, .24); every round shares 1."""
    found = rated([W1, W2])
    np.testing.assert_allclose(found[1:], [[0.35, 0.45, 0.20], [0.5, 0.5, 0.0]], atol=1e-9)
    np.testing.assert_allclose(found[0], [0.45, 0.31, 0.24], atol=1e-9)
    np.testing.assert_allclose(found.sum(0), [1.30, 1.26, 0.44], atol=1e-9)


@exact
def ratings() -> None:
    """A missing rating is 0, ratings that are all 0 are equal; in a played team they are shares of agreement."""
    np.testing.assert_allclose(rated([np.zeros((3, 3)).tolist()])[0], [1 / 3] * 3, atol=1e-9)
    for missing in (None, float("nan"), -2.0):
        unread: Any = [[missing, 3.0, 1.0]] * 3
        np.testing.assert_allclose(rated([unread])[0], [0.0, 0.75, 0.25], atol=1e-9)
    frame = layers({f"agent-{at}": [text] * 2 for at, text in enumerate("0012", 1)}, rounds=2)
    weights = frame.filter(pl.col("round") == 1).sort("agent")["heard_weight"].to_list()
    np.testing.assert_allclose(weights[3], [2 / 3, 2 / 3, 1 / 3], atol=1e-9)


@exact
def quorum() -> None:
    """Three of four who agree end it at once; two of four do not, nor do two of three, who are not more than 2/3."""
    assert len(layers({f"agent-{at}": [text] * 3 for at, text in enumerate("0001", 1)})) == 4
    assert len(layers({f"agent-{at}": [text] * 3 for at, text in enumerate("0012", 1)}, rounds=2)) == 8
    assert len(layers({f"agent-{at}": [text] * 3 for at, text in enumerate("001", 1)}, rounds=2)) == 6


@exact
def two_go_on() -> None:
    """From the third round on the two whose answers most others share act; of three members all do."""
    frame = layers({f"agent-{at}": [text] * 4 for at, text in enumerate("12003", 1)}, rounds=4)
    active = frame.group_by("round").agg(pl.col("agent").cast(str).sort()).sort("round")["agent"].to_list()
    assert [len(names) for names in active] == [5, 5, 2, 2]
    assert active[2] == active[3] == ["agent-3", "agent-4"]
    assert len(layers({f"agent-{at}": [text] * 3 for at, text in enumerate("012", 1)})) == 9


@exact
def most_important_kept() -> None:
    """The command gives the members with the highest mean importance over tasks, the best first, and no others."""
    rows = [
        {"group": group, "episode": group, "turn": 0, "agent": agent, "answer": answer,
         "heard": [], "heard_turn": []}
        for group, answers in enumerate(("0012", "0021", "0122")) for agent, answer in zip("wxyz", answers)
    ]  # fmt: skip
    schema = {"heard": pl.List(pl.String), "heard_turn": pl.List(pl.Int64)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "team.parquet"
        pl.DataFrame(rows, schema_overrides=schema).write_parquet(path)
        found = ANALYSES.build("importance(keep=2)")(path)
    assert found["agent"].to_list() == ["w", "x"]
    np.testing.assert_allclose(found["importance"].to_numpy(), [1 / 3, 1 / 3], atol=1e-9)


def say(skill: dict[str, float], request: Request) -> str:
    """An answer of its own; then, half of the time, what most others say."""
    _, *heard = request.observation.text.split(" | ")
    if heard and request.rng.random() < 0.5:
        return Counter(heard[1:]).most_common(1)[0][0]
    if heard:
        return heard[0]
    right = request.rng.random() < skill[request.agent]
    return "0" if right else str(int(request.rng.integers(1, OPTIONS)))


def importance(seed: int) -> dict[str, float]:
    """Of each member, mean over questions."""
    policy = ScriptedPolicy(functools.partial(say, ACCURACY), name="talker")
    env = workflows.debate(Choice, len(ACCURACY), 3, gate=f"top({len(ACCURACY)})")
    turns = rollout(env, Team(dict.fromkeys(ACCURACY, policy)), groups=QUESTIONS, seed=seed, timeout=None)
    flow = importance_flow(turns, messages(turns))
    return {str(agent): float(total) / QUESTIONS for agent, total in flow.group_by("agent").agg(
        pl.col("importance").sum()).iter_rows()}  # fmt: skip


def played(seed: int, directory: Path) -> None:
    """Many questions, answered by a layered team of seven.

    Accuracies are moved on by two names with each seed, so that the names that a lot draws are not always the best.
    """
    skills = np.roll(list(ACCURACY.values()), -2 * seed)
    names = [f"agent-{at}" for at in range(1, len(skills) + 1)]
    policy = ScriptedPolicy(functools.partial(say, dict(zip(names, skills.tolist()))), name="talker")
    env = workflows.layered(Choice, len(names))
    turns = rollout(env, Team(dict.fromkeys(names, policy)), groups=400, seed=seed, timeout=None)
    turns.frame.write_parquet(directory / "team.parquet")
    (directory / "seed.json").write_text(json.dumps([seed, dict(zip(names, skills.tolist()))]))


def chosen_team() -> Measure:
    """Success of the members that were printed, in a debate about fresh questions."""

    def measured(left: Left) -> list[float]:
        seed, skills = json.loads((left.directory / "seed.json").read_text())
        members = [row["agent"] for row in json.loads(left.stdout)]
        return [success([skills[name] for name in members], seed + 50_000, questions=3 * QUESTIONS)]

    return measured


def success(members: Sequence[float], seed: int, *, questions: int = QUESTIONS) -> float:
    """Of a team with these accuracies in a debate of two rounds."""
    names = [f"debater-{k}" for k in range(1, len(members) + 1)]
    skill = dict(zip(names, members))
    policy = ScriptedPolicy(functools.partial(say, skill), name="talker")
    env = workflows.debate(Choice, len(members), 2)
    turns = rollout(env, Team(dict.fromkeys(names, policy)), groups=questions, seed=seed + 1000, timeout=None)
    return float(turns.frame.unique(["group"])["success"].mean())  # type: ignore[arg-type]


@reproduction(
    135,
    claim="Importance that flows back through who heard whom ranks members by accuracy, and a team of the most "
    "important is better than one drawn.",
    baseline="three members drawn",
    criterion="rank correlation of importance and accuracy at least 0.85 and the chosen three ahead of drawn ones by "
    "0.1 or more, in the mean over seeds (held on both fresh blocks)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Importance, then teams."""
    ranks, chosen, drawn = [], [], []
    for seed in seeds:
        found = importance(seed)
        ranks.append(float(spearmanr([found[name] for name in ACCURACY], list(ACCURACY.values())).statistic))
        chosen.append(success([ACCURACY[name] for name in sorted(ACCURACY, key=lambda name: -found[name])[:3]], seed))
        rng = np.random.default_rng(seed)
        drawn += [success(rng.choice(list(ACCURACY.values()), 3, replace=False).tolist(), seed) for _ in range(3)]
    measured = {"rank_correlation": float(np.mean(ranks)), "chosen": float(np.mean(chosen)),
                "drawn": float(np.mean(drawn))}  # fmt: skip
    return Outcome(measured, measured["rank_correlation"] >= 0.85 and np.mean(chosen) >= np.mean(drawn) + 0.1)
