"""[68] Step-level Q-values (arXiv 2409.09345): labels from playing on, DPO per step, the log-ratio as Q, best of three.

Random layered graphs of six steps; Q of each step is the mean of eight continuations (`mc_values`), pairs are the best
action of a state against its worst sibling, and β·(log π - log π_start) ranks the actions of one state. The agent stays
as it was, uniform: only which of three sampled actions it executes is chosen. Left out: another, smaller model as Q.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.envs.worlds import LayersEnv
from palaestra.judges import siblings
from palaestra.judges.planning import BestOf
from palaestra.judges.search import TreeSearch
from palaestra.learning.reward_models import ImplicitReward, Labels
from palaestra.learning.stages.alternate import preferences
from palaestra.play.executors import Local, Plan
from palaestra.rewards import value_label
from palaestra.runs.inline import learn
from palaestra_atlas.catalog.reward_models.made import Ahead, Fork, stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction

LABELS = {"learned": "value_label()", "misplaced": "shift(value_label(), n=1, fill=0)"}
"""Of each step; and, to see that it is the step's own that counts, that of the step before it."""

TRAINING: dict[str, Any] = {
    "learn": {"terms": "dpo(beta=0.1)", "lr": 0.3, "epochs": 10},
    "train": {"iterations": 1, "groups": 150, "group_size": 2},
}


class LogRatio:
    """β·(log π - log π_start) of the actions of a table of logits that began uniform; shift is added per state."""

    name = "log_ratio"

    def __init__(self, policy: Any, world: LayersEnv, shift: float = 0.0) -> None:
        self.policy, self.choices, self.shift = policy, list(world.choices), shift

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        """A row per action."""
        logits = self.policy.logits([Observation(text, choices=tuple(self.choices)) for text in rows["prompt"]])
        q = logits.log_softmax(-1).detach().numpy()
        state = np.array([len(text) + ord(text[-1]) for text in rows["prompt"]]) * self.shift
        return pl.Series(0.1 * q[np.arange(len(q)), [self.choices.index(said) for said in rows["response"]]] + state)


class Exact:
    """Q of the uniform policy."""

    name = "exact"

    def __init__(self, world: LayersEnv) -> None:
        self.world, self.q = world, world.worth()

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        """A row per action."""
        words = rows["prompt"].str.extract_all(r"\d+").to_list()
        found = [self.q[int(step), int(place), self.world.choices.index(said)]
                 for (step, place), said in zip(words, rows["response"], strict=True)]  # fmt: skip
        return pl.Series(found, dtype=pl.Float64)


def anything(request: Any) -> str:
    """Any way."""
    return str(request.observation.legal[int(request.rng.integers(len(request.observation.legal)))])


def success(env: EnvFactory, scorer: Any, seed: int) -> float:
    """Of the uniform agent, with the best of three actions by a scorer if there is one."""
    policy: Any = ScriptedPolicy(anything, name="anything")
    policy = policy if scorer is None else BestOf(policy, scorer, 3)
    turns = Local().play(env, Team(walker=policy), Plan(groups=400, group_size=1, seed=seed, stream="eval"))
    return float(turns.frame.filter(pl.col("turn") == 5)["success"].mean())  # type: ignore[arg-type]


@exact
def values_of_steps() -> None:
    """A step is worth the mean of the continuations of what followed it, the last one what the episode came to."""
    keys = {"episode": [0, 0, 0], "turn": [0, 1, 2], "agent": ["a"] * 3}
    turns = Turns(keys | {"value": [0.9, 0.4, 0.2], "success": [True] * 3})
    np.testing.assert_allclose(np.asarray(value_label().evaluate(turns)), [0.4, 0.2, 1.0])


@exact
def pairs_of_a_state() -> None:
    """The best action of a state against its worst; the pair is of single steps, and equal siblings make none."""
    table = {"group": [0] * 6, "episode": [0, 0, 1, 1, 2, 2], "turn": [0, 1] * 3, "agent": ["a"] * 6,
             "observation": ["s", "t", "s", "u", "s", "u"], "state": [1, 2, 1, 3, 1, 3], "reward": [0.0] * 6,
             "action": ["x", "x", "y", "x", "z", "y"], "q": [0.5, 0.9, 0.1, 0.3, 0.4, 0.3]}  # fmt: skip
    assert siblings()(Turns(table)).select("chosen", "rejected").rows() == [(0, 2)]
    paired = preferences("siblings()", unit="turn")(Turns(table), stage_context()).frame.drop_nulls("pair")
    assert paired.select("action", "chosen").rows() == [("x", True), ("y", False)]


@exact
def executes_the_largest() -> None:
    """Of sixteen sampled actions the one of the largest score is executed."""
    policy = BestOf(ScriptedPolicy(lambda request: str(request.rng.integers(2)), name="anything"), Ahead(), 16)
    requests = [Request(Observation("at []"), "walker", np.random.default_rng(seed)) for seed in range(20)]
    said = [str(each.action) for each in policy.act(requests)]
    assert said == ["0"] * 20, said


@exact
def ratio_to_the_start() -> None:
    """Before anything was learned Q is 0 of every action, however much likelier one of them is."""
    model = ImplicitReward()
    rows = pl.DataFrame({"prompt": ["at 0"] * 3, "response": ["a", "go left", "go right and on"]})
    model.prepare(Labels(rows, np.zeros(3)), seed=68)
    np.testing.assert_allclose(model.score(rows).to_numpy(), 0.0, atol=1e-6)


@exact
def guided_by_visits() -> None:
    """With the mean backed up and rarely tried ways tried again, all leaves of a small tree are met."""
    policy = ScriptedPolicy(lambda request: str(request.rng.integers(2)), name="anything")
    search = TreeSearch(rollouts=60, backup="mean")
    found = search(lambda: Fork([0.5, 0.4, 0.3, 0.2, 0.3, 0.2, 0.1, 0.9]), policy)
    assert found.table.height == 14, found.table


@reproduction(
    68,
    claim="Step-level DPO on values of continuations makes a log-ratio that ranks a state's actions: an agent that is "
    "not trained executes the best of three by it.",
    baseline="the uniform agent alone; the same training with each step's label moved to the next step",
    criterion="mean success more than twice the uniform agent's and above 75 % of that with exact Q; less than 1.5 "
    "times the uniform agent's with misplaced labels; a constant per state changes no decision",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Label, fit, rank, execute."""
    found: dict[str, list[float]] = {"uniform": [], "learned": [], "misplaced": [], "exact": [], "shifted": []}
    for seed in seeds:
        options = {"draw": seed}
        env = functools.partial(LayersEnv, **options)
        world = env()
        for arm, q in LABELS.items():
            stages = ["mc_values(k=8)", f'preferences("siblings()", q="{q}", unit="turn")']
            where = {"env": {"make": "native/layers", "options": options}, "stages": stages}
            policy = learn("world", TRAINING | where, seed=seed).team.trainable[0]
            found[arm].append(success(env, LogRatio(policy, world), seed))
            if arm == "learned":
                found["shifted"].append(success(env, LogRatio(policy, world, 0.37), seed))
        found["uniform"].append(success(env, None, seed))
        found["exact"].append(success(env, Exact(world), seed))
    measured = {name: float(np.mean(values)) for name, values in found.items()}
    holds = (
        measured["learned"] > 2 * measured["uniform"]
        and measured["learned"] > 0.75 * measured["exact"]
        and measured["misplaced"] < 1.5 * measured["uniform"]
        and found["shifted"] == found["learned"]
    )
    return Outcome(measured, bool(holds))
