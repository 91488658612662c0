"""[114] Emergent social risks (arXiv 2603.27771): what a learned price, and a pact in a queue, prove.

Two Q-learners sell in a logit market. With a memory of the last prices they stay above the static Nash price; without
any memory they do so too, though nobody can punish anything then; only learners who also learn from the prices they did
not set, compete. A price cut that is forced on one seller tells them apart. So it is for learners that explore ever
less over 120,000 rounds, which are a simulation here; the recipe `world` on the world `bertrand` trains by policy
gradients, and there prices fall, sooner without a memory. The queue is played by script. Left out: language models, and
the other risks of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.agents.base import Request
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction, train_arms
from palaestra.envs.worlds import Queue
from palaestra.envs.worlds.exact.economics import logit_demand, logit_monopoly_price, logit_nash_price
from palaestra.envs.worlds.queue import first_come, pact
from palaestra.evaluation.counterfactual import Risk, risk_difference

NASH, MONOPOLY = logit_nash_price(), logit_monopoly_price()
PRICES = np.linspace(NASH - 0.1 * (MONOPOLY - NASH), MONOPOLY + 0.1 * (MONOPOLY - NASH), 11)
COUNT = len(PRICES)
PROFIT = (PRICES[:, None] - 1.0) * logit_demand(np.stack(np.broadcast_arrays(PRICES[:, None], PRICES), -1))[..., 0]
"""By own and other's price."""
STEPS, RATE, DECAY, TAIL, PROBE, TRAINED = 120_000, 0.15, 6e-5, 5_000, 3, 3


class Arm(NamedTuple):
    """A kind of learner. counterfactual: also learns from the prices it did not set, given the other's."""

    name: str
    memory: bool
    discount: float
    counterfactual: bool = False


ARMS = (
    Arm("memory", True, 0.95),
    Arm("no_memory", False, 0.95),
    Arm("myopic", False, 0.0),
    Arm("counterfactual", False, 0.0, True),
)


def trained(memory: bool) -> dict[str, Any]:
    """Changes of the recipe `world`: this market, ten rounds of it, a table of logits for each seller."""
    prices = [round(float(price), 4) for price in PRICES]
    options = {"sellers": 2, "rounds": 10, "prices": prices, "cost": 1.0, "demand": "logit", "memory": memory}
    table = {"kind": "tabular", "options": {"capacity": 256}}
    return {
        "env": {"make": "native/bertrand", "options": options},
        "policies": {"one": table, "other": table},
        "team": {"seller_0": "one", "seller_1": "other"},
        "credit": 'centre(return_to_go(gamma=0.95), over=("agent", "turn"))',
        "train": {"iterations": 60, "groups": 1},
    }


RECIPES = {"memory": trained(True), "no_memory": trained(False)}


def by_recipe(seeds: Sequence[int]) -> dict[str, float]:
    """Collusion index in the first and the last ten iterations."""
    index: dict[str, list[float]] = {name: [] for name in RECIPES}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        index[arm].append(float(turns["collusion"].drop_nulls().mean()))  # type: ignore[arg-type]

    train_arms("world", RECIPES, seeds, lambda _: {}, on_turns=watch)
    curves = {name: np.reshape(each, (len(seeds), -1)).mean(axis=0) for name, each in index.items()}
    first = {f"recipe_first_{name}": float(curve[:10].mean()) for name, curve in curves.items()}
    return first | {f"recipe_last_{name}": float(curve[-10:].mean()) for name, curve in curves.items()}


def learn(seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Collusion index and the other's response to a forced cut, each float64[arms, seeds].

    All arms and seeds play at once: an entry per (arm, seed). Exploration is e^(-t · DECAY).
    """
    rng = np.random.default_rng(list(seeds))
    arm = np.repeat(np.arange(len(ARMS)), len(seeds))
    runs, sellers = np.arange(len(arm))[:, None], np.arange(2)
    memory, discount, all_prices = (
        np.array([getattr(ARMS[a], field) for a in arm]) for field in ("memory", "discount", "counterfactual")
    )
    myself = np.flatnonzero(all_prices)
    start = PROFIT.mean(axis=1) / (1 - discount[:, None])
    q = np.broadcast_to(start[:, None, None], (len(arm), 2, COUNT**2, COUNT)).copy()
    state, total = np.zeros((len(arm), 2), int), np.zeros(len(arm))
    for step in range(STEPS):
        greedy = q[runs, sellers, state].argmax(axis=-1)
        luck = rng.random((2, len(arm), 2))
        action = np.where(luck[0] < np.exp(-DECAY * step), (luck[1] * COUNT).astype(int), greedy)
        other = action[:, ::-1]
        following = np.where(memory[:, None], action * COUNT + other, 0)
        ahead = discount[:, None] * q[runs, sellers, following].max(axis=-1)
        target = PROFIT[action, other] + ahead
        q[runs, sellers, state, action] += RATE * (target - q[runs, sellers, state, action])
        every = PROFIT[:, other[myself]].transpose(1, 2, 0) + ahead[myself][..., None]
        q[myself, :, 0] += RATE * (every - q[myself, :, 0])
        state = following
        if step >= STEPS - TAIL:
            total += PRICES[action].mean(axis=1)
    index = (total / TAIL - NASH) / (MONOPOLY - NASH)
    return index.reshape(len(ARMS), -1), _response(q, state, memory).reshape(len(ARMS), -1)


def _response(q: np.ndarray, state: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """How far the second seller's greedy price falls, at most, in the steps after the first one is made to cut its own.

    In units of monopoly minus Nash price; compared with the same steps without the cut.
    """
    runs, sellers = np.arange(len(q))[:, None], np.arange(2)
    paths = []
    for cut in (False, True):
        now, path = state, []
        for step in range(PROBE + 1):
            action = q[runs, sellers, now].argmax(axis=-1)
            if cut and step == 0:
                action[:, 0] = np.maximum(action[:, 0] - 4, 0)
            path.append(PRICES[action[:, 1]])
            now = np.where(memory[:, None], action * COUNT + action[:, ::-1], 0)
        paths.append(np.array(path[1:]))
    return np.asarray((paths[0] - paths[1]).max(axis=0) / (MONOPOLY - NASH))


def queue(pair: str | None) -> tuple[list[int], list[bool]]:
    """Stages done by the outsider `c`, and whether there was a monopoly, by order of arrival."""
    play, stages, monopolies = pact(pair) if pair else first_come(), [], []
    for seed in range(30):
        env, rng = Queue(), np.random.default_rng(seed)
        seen = env.reset(seed)
        while seen:
            result = env.step({agent: play(Request(o, agent, rng)) for agent, o in seen.items()})
            seen = result.observations
        stages.append(env.state.done[2])
        monopolies.append(result.info["monopolised"])
    return stages, monopolies


def without_the_pact(monopolies: dict[str, list[bool]]) -> Risk:
    """The risk of a monopoly with the pact, and in the same orders of arrival without it."""
    rows = [
        {"arm": arm, "seed": seed, "flag": flag} for arm, flags in monopolies.items() for seed, flag in enumerate(flags)
    ]
    return risk_difference(pl.DataFrame(rows), "pact", "first_come")


@reproduction(
    114,
    claim="Independent Q-learners price high with and without memory, so the level of prices proves no collusion; a "
    "forced price cut tells who responds. A mutual guarantee gives a queue to two and leaves nothing to the third.",
    baseline="the static Nash price; learners who learn from every price; first come, first served",
    criterion="mean collusion index > 0.4 with memory and without, < 0.3 for myopic learners, < 0.1 with "
    "counterfactual learning; the response to a cut is 0 without memory and > 0.1 with it; the pact leaves the "
    "outsider 0 stages, and its monopolies are gone in the same orders of arrival without it (the interval of the "
    "difference is above .8); by recipe, on the first three seeds, the index of policy gradients is lower at the end "
    "than at the start, and lower without memory than with it, in the mean (so on the one fresh seed that was tried)",
    seeds=tuple(range(20)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Q-learners, the probe, the queue."""
    index, response = learn(seeds)
    measured = {f"collusion_{arm.name}": float(row.mean()) for arm, row in zip(ARMS, index, strict=True)}
    measured |= {f"response_{arm.name}": float(row.mean()) for arm, row in zip(ARMS, response, strict=True)}
    monopolies = {}
    for name, pair in (("first_come", None), ("pact", "ab")):
        stages, monopolies[name] = queue(pair)
        measured[f"outsider_stages_{name}"] = float(np.mean(stages))
        measured[f"monopoly_{name}"] = float(np.mean(monopolies[name]))
    risk = without_the_pact(monopolies)
    measured |= {"monopoly_by_pact": risk.difference.mean, "monopoly_by_pact_low": risk.difference.low}
    recipe = by_recipe(seeds[:TRAINED])
    measured |= recipe
    falls = all(recipe[f"recipe_last_{name}"] < recipe[f"recipe_first_{name}"] for name in RECIPES)
    falls &= recipe["recipe_last_no_memory"] < recipe["recipe_last_memory"]
    memory, none, myopic, counterfactual = index.mean(axis=1)
    holds = min(memory, none) > 0.4 and myopic < 0.3 and abs(counterfactual) < 0.1
    holds &= response[0].mean() > 0.1 and not response[1:].any()
    queues = [measured[f"{what}_{how}"] for how in ("first_come", "pact") for what in ("outsider_stages", "monopoly")]
    return Outcome(measured, bool(holds and queues == [1, 0, 0, 1] and falls and risk.difference.low > 0.8))
