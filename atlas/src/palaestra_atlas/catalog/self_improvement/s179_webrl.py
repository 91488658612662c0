"""[179] WebRL (arXiv 2411.02337): phases of tasks that were made of the last phase's failures, and old successes again.

Phrases of a small grammar instead of web sites; the world makes one of another, where the paper asks a language model.
An outcome model says whether an episode succeeded. The actor regresses its log-ratio to the policy at the start of the
phase on the sign of the advantage. Left out: language models, pages, the critic's part in the advantage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Phrases
from palaestra.learning import PolicyGradient
from palaestra.learning.outcome_critic import OutcomeCritic
from palaestra.learning.stages import Context
from palaestra.learning.stages.failure_tasks import failure_tasks
from palaestra.learning.stages.success_replay import new_reference, success_replay
from palaestra.learning.terms import MicroBatch, ratio_regression
from palaestra.play.executors import Local, Plan
from palaestra.play.rollout import rollout
from palaestra.rewards import outcome_reward
from palaestra_atlas.reproductions import exact

CREDIT = 'where("replayed", 1.0, return_to_go(gamma=0.9) - 0.05)'


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a network that learns phrases, `web.yaml`."""
    made = {
        "name": "web",
        "env": {"make": "native/phrases", "options": {"longest": 8, "shortest": 3, "words": 4, "actions": 6}},
        "policies": {
            "net": {"kind": "mlp", "options": {"hidden": [32]}},
            "teacher": {"kind": "script", "options": {"script": f"{__name__}:beginner", "accuracy": 0.6}},
        },
        "team": {"doer": "net"},
        "reward": "outcome_reward()",
        "stages": ["failure_tasks(every=5)", "new_reference(5)", "success_replay()"],
        "credit": CREDIT,
        "learn": {"lr": 0.02, "terms": ["ratio_regression()", "entropy(0.06)"]},
        "phases": [
            {"name": "tuned", "until": 10, "stages": ["demonstrate('teacher')"], "credit": "return_to_go()",
             "learn": {"lr": 0.05, "terms": ["clone(column='loss_mask')"]}, "train": {"group_size": 2}},
            {"name": "web"},
        ],
        "train": {"iterations": 60, "groups": 64, "group_size": 1, "evaluate_every": 60, "checkpoint_every": 60},
        "evaluation": {"tasks": 400, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip
    (folder / "web.yaml").write_text(json.dumps(made))


def beginner(accuracy: float = 0.5, longest: int = 8, words: int = 4, actions: int = 6) -> Any:
    """A script that does a word right with this chance, and else anything: what the base model was fine-tuned on."""
    world = Phrases(longest=longest, words=words, actions=actions)

    def play(request: Request) -> int:
        *_, now, _, before = request.observation.text.split()
        gold = world.table[words if before == "nothing" else int(before[1:]), int(now[1:])]
        return int(gold if request.rng.random() < accuracy else request.rng.integers(actions))

    return play


def knows(length: int) -> Any:
    """A script that does every word right up to this place of a phrase, then the wrong thing."""
    world = Phrases(longest=6, words=4, actions=4)

    def play(request: Request) -> str:
        *_, place, _, now, _, before = request.observation.text.split()
        gold = int(world.table[4 if before == "nothing" else int(before[1:]), int(now[1:])])
        return f"do {gold if int(place) < length and gold >= 0 else (gold + 1) % 4}"

    return play


def grown(low: float = 0.05, high: float = 0.75, *, dead: int = 0) -> tuple[failure_tasks, Context, Turns, Phrases]:
    """The stage in its second phase, after a first one of a script that can do phrases of up to three words."""

    def env() -> Phrases:
        return Phrases(longest=6, words=4, actions=4, dead=dead)

    team = Team(doer=ScriptedPolicy(knows(3)))
    stage = failure_tasks(every=1, number=40, low=low, high=high)
    told = Context(np.random.default_rng(0), 1, env, team, Local())
    first = Plan(groups=120, seed=3, iteration=1)
    turns = Local().play(env, team, stage.plan(first, told))
    stage(turns, told)
    stage.plan(Plan(groups=40, seed=3, iteration=2), told)
    return stage, told, turns, env()


@exact
def tasks_are_made_of_failures() -> None:
    """Each new task is similar to a task that failed in the phase before, and says which."""
    stage, _, turns, world = grown(0.0, 1.0)
    failed = set(turns.frame.filter(pl.col("reward").sum().over("group") == 0)["seed"])
    solved = set(turns.frame["seed"]) - failed
    assert stage.parents
    assert solved
    assert set(stage.parents.values()) <= failed
    for child, parent in stage.parents.items():
        new, old = world.phrase(child), world.phrase(parent)
        one_word = len(new) == len(old) and sum(a != b for a, b in zip(new, old, strict=True)) == 1
        shared = min(len(new), len(old))
        assert one_word or (new[:shared] == old[:shared] and len(new) <= len(old) + 1), (new, old)
    played = Local().play(
        lambda: world, Team(doer=ScriptedPolicy(knows(3))), Plan(3, env_seeds=list(stage.parents)[:3])
    )
    told = Context(np.random.default_rng(0), 2, lambda: world, Team(doer=ScriptedPolicy(knows(3))), Local())
    marked = stage(played, told).frame
    assert marked["made_from"].null_count() == 0
    assert marked["first_value"].is_between(0, 1).all()


@exact
def neither_hopeless_nor_mastered() -> None:
    """At least one head of the critic gives each kept task a chance in [.05, .75]; others are refused and counted."""
    stage, told, _, world = grown()
    starts = [world.reset(seed)["doer"].text for seed in stage.parents]
    value = stage.critic.predict(starts)
    assert ((value >= 0.05) & (value <= 0.75)).any(axis=1).all()
    assert told.metrics["refused_by_critic"] > 0
    assert max(len(world.phrase(seed)) for seed in stage.parents) <= 5, "six words are hopeless"


@exact
def infeasible_tasks_are_refused() -> None:
    """No kept task has a word for which nothing is right, though candidates have."""
    stage, told, _, world = grown(0.0, 1.0, dead=1)
    assert told.metrics["infeasible"] > 0
    assert all(world.feasible(seed) for seed in stage.parents)


@exact
def critic_tells_short_from_long() -> None:
    """Fitted to outcomes, both heads are sure of what always went well and of what never did, and differ elsewhere."""
    critic = OutcomeCritic()
    np.testing.assert_allclose(critic.predict(["a", "b"]), 0.5)
    critic.fit(["a x", "b x"] * 30, np.array([1.0, 0.0] * 30), np.random.default_rng(0))
    value = critic.predict(["a x", "b x", "c x"])
    assert value[0].min() > 0.75
    assert value[1].max() < 0.25
    assert abs(value[2, 0] - value[2, 1]) > 1e-3


@exact
def yes_is_at_least_a_half() -> None:
    """P(yes) of .5 is a success and .49 none; the reward stands on the last row alone."""
    rows = {"group": [0] * 4, "episode": [0, 0, 1, 2], "agent": ["a"] * 4, "turn": [0, 1, 0, 0]}
    found = outcome_reward().evaluate(Turns(rows | {"yes": [None, 0.5, 0.49, 0.9]}))
    np.testing.assert_allclose(np.asarray(found, float), [0, 1, 0, 1])
    played = rollout(
        lambda: Phrases(longest=2, errs=0.2), Team(doer=TabularPolicy(6)), groups=200, group_size=1, seed=0
    )
    paid = np.asarray(outcome_reward().evaluate(played), float)
    last = played.frame["success"].is_not_null().to_numpy()
    agrees = (paid[last] == played.frame["success"].cast(float).to_numpy()[last]).mean()
    assert 0.7 < agrees < 0.9


def table(probabilities: list[float]) -> tuple[TabularPolicy, pl.DataFrame]:
    """A policy that says action 0 with these probabilities in as many states, and a row of each."""
    policy = TabularPolicy(2, name="net")
    seen = [f"state {place}" for place in range(len(probabilities))]
    states = [Observation(text).key() for text in seen]
    size = len(seen)
    frame = pl.DataFrame(
        {
            "iteration": [1] * size, "group": list(range(size)), "episode": [0] * size, "turn": [0] * size,
            "agent": ["doer"] * size, "policy": ["net"] * size, "task": seen, "observation": seen, "state": states,
            "action": ["do 0"] * size, "action_ids": [[0]] * size, "logprobs": [[-9.0]] * size,
            "entropies": [[0.0]] * size, "reward": [1.0] * size, "seed": list(range(size)),
        }
    ).with_columns(state=pl.col("state").cast(pl.UInt64))  # fmt: skip
    policy.meet(frame)
    with torch.no_grad():
        odds = torch.tensor(probabilities).log() - torch.log1p(-torch.tensor(probabilities))
        policy.module.get_parameter("logits")[:size, 0] = odds
    return policy, frame


def replayed(probabilities: list[float]) -> tuple[pl.DataFrame, Context]:
    """Rows of these that a second iteration with one failed row replays."""
    policy, frame = table(probabilities)
    told = Context(np.random.default_rng(0), 1, None, Team(doer=policy), None)  # type: ignore[arg-type]
    stage = success_replay(most=10.0)
    stage(Turns(frame), told)
    now = frame.head(1).with_columns(task=pl.lit("another"), reward=pl.lit(0.0))
    return stage(Turns(now), told).frame.filter("replayed"), told


@exact
def old_successes_are_played_again() -> None:
    """One success of each task comes back with today's log-probabilities; failures never do."""
    again, _ = replayed([0.6, 0.7, 0.8])
    assert sorted(again["task"]) == ["state 0", "state 1", "state 2"]
    np.testing.assert_allclose(sorted(np.exp(again["logprobs"].list.first())), [0.6, 0.7, 0.8], atol=1e-6)
    policy, frame = table([0.6, 0.7])
    stage = success_replay()
    told = Context(np.random.default_rng(0), 1, None, Team(doer=policy), None)  # type: ignore[arg-type]
    stage(Turns(frame.with_columns(reward=pl.Series([0.0, 1.0]))), told)
    assert stage.past is not None
    assert stage.past["task"].to_list() == ["state 1"]


@exact
def neither_trivial_nor_foreign() -> None:
    """Of probabilities .3, .49, .51, .7, .94, .96 under the policy of now the middle three are learned from."""
    again, told = replayed([0.3, 0.49, 0.51, 0.7, 0.94, 0.96])
    np.testing.assert_allclose(sorted(np.exp(again["logprobs"].list.first())), [0.51, 0.7, 0.94], atol=1e-6)
    assert (told.metrics["trivial"], told.metrics["foreign"], told.metrics["replayed"]) == (1, 2, 3)


@exact
def worked_losses() -> None:
    """Log-ratio .1 at β = 5: .025; .3 at 5 is capped at β = 3.33: 0; .05 at β = 1: .45125; negatives have none."""
    found = []
    for ratio, reference in ((0.1, 0.8), (0.3, 0.7), (0.05, 0.5)):
        then = torch.tensor([[np.log(reference)]])
        sure = 0.6 if reference == 0.7 else 0.8
        piece = MicroBatch.of(then + ratio, advantage=0.3, reference=then)
        found.append(float(ratio_regression(above=sure)(piece)))
    np.testing.assert_allclose(found, [0.025, 0.0, 0.45125], atol=1e-5)
    then = torch.tensor([[-0.5]])
    away = MicroBatch.of(then + 0.1, advantage=-0.3, reference=then)
    assert float(ratio_regression()(away)) == 0.0
    assert float(ratio_regression(negative=0.6)(away)) > 0.0


@exact
def held_at_the_start_of_the_phase() -> None:
    """The reference becomes the policy of now when a phase begins, and stays while the policy moves on."""
    policy, frame = table([0.5])
    team = Team(doer=policy)
    learner = PolicyGradient(team, "ratio_regression()", lr=0.1)
    stage, rows = new_reference(5), Turns(frame.with_columns(advantage=pl.lit(1.0), logprobs=pl.Series([[-0.7]])))
    for iteration in range(1, 7):
        stage(rows, Context(np.random.default_rng(0), iteration, None, team, None, learner))  # type: ignore[arg-type]
        behind = policy.score(frame).logprobs - learner.references["net"].score(frame).logprobs
        assert (float(behind.detach().max()) > 1e-3) == (iteration not in (1, 6)), iteration
        learner.update(rows)
