"""[28] MARS (arXiv 2510.15414): self-play in which every seat has its own baseline.

Two tables of logits play Kuhn poker against each other (the recipe `kuhn-selfplay` with tables for the language model):
12 information sets, credit `mars()`, exploitability is exact. One baseline for both seats learns as well here, because
their values differ little (±1/18); what it cannot do is leave no seat biased. The released code centres on *distinct*
values and so leaves a bias of its own, `seat_bias_mars` (in standard deviations). Left out: language models, other
games.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.signals import centre, col, evaluate, mean
from palaestra.algebra.turns import Turns
from palaestra.credit import mars, return_to_go
from palaestra.envs.worlds.exact.exploitability import exploitability, uniform_policy
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS = {"mars": {"credit": "mars()"}, "pooled": {"credit": "reinforce()"}}
SETTINGS: dict[str, Any] = {
    "policies": {"player": {"kind": "tabular", "options": {"actions": 2, "capacity": 32}}},
    "warm_start": {"steps": 0, "groups": 1},
    "learn": {"lr": 0.05, "terms": ["surrogate()", "entropy(0.01)"]},
    "train": {"iterations": 60, "groups": 64, "group_size": 1},
    "evaluation": {"metrics": [], "measure": "score"},
}


def worked_error() -> float:
    """Seats whose results are 1, 1, 1, -1 and -1, -1, -1, 1: centred by distinct values they stay that; whitened."""
    keys = {"group": [0] * 8, "episode": [*range(4)] * 2, "turn": [0] * 8, "agent": ["a"] * 4 + ["b"] * 4}
    results = np.array(
        [1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, 1.0]
    )  # less their means ±1/2, less those of the distinct
    found = np.asarray(mars().evaluate(Turns(keys | {"reward": results})))
    return float(np.abs(found - results / np.sqrt(8 / 7 + 1e-8)).max())


def three_steps_error() -> float:
    """Rewards .2, -.1, 1 of a seat beside a seat without any: to go 1.1, .9, 1, less their mean, whitened over both."""
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": range(4), "agent": ["a", "b", "a", "a"]}
    found = np.asarray(mars().evaluate(Turns(keys | {"reward": [0.2, 0.0, -0.1, 1.0]})))
    earned = np.array([0.2, -0.1, 1.0]) - 1.1 / 3
    to_go = earned[::-1].cumsum()[::-1]
    both = np.array([to_go[0] - to_go.mean(), 0.0, *(to_go[1:] - to_go.mean())])
    return float(np.abs(found - (both - both.mean()) / np.sqrt(both.var(ddof=1) + 1e-8)).max())


def seat_bias(turns: Turns) -> dict[str, float]:
    """Largest |mean advantage| of any seat, by kind of credit, and the largest |value of a seat|.

    A seat counts once per game: on its first turn, where its return-to-go is the game's result.
    """
    opening, result = col("turn") < 2, return_to_go()
    kinds = {
        "seat_value": result,
        "seat_bias_own": centre(result, over="agent", where=opening),
        "seat_bias_pooled": centre(result, over=(), where=opening),
        "seat_bias_mars": mars(),
    }
    means = evaluate(turns, *(mean(credit, over="agent", where=opening) for credit in kinds.values()))
    return {name: float(np.nanmax(np.abs(np.asarray(value)))) for name, value in zip(kinds, means, strict=True)}


def left_to_exploit(learned: Any) -> float:
    """Exploitability of the trained team, exact."""
    from palaestra.runs.measures import table_of

    return exploitability(*table_of(learned.setup.test, learned.team))


@reproduction(
    28,
    claim="Self-play credited by MARS nears the equilibrium of Kuhn poker; a baseline per seat leaves no seat biased.",
    baseline="uniform policies; the same self-play with one baseline for both seats",
    criterion="worked credit to 1e-6, distinct values included; exploitability after self-play by MARS at most half of "
    "uniform play's in every seed; a seat's mean advantage 0 ± 1e-9 with its own centring, ± the seat's value with "
    "pooled centring",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, both arms, then the seats' mean advantages in the last batch of `mars()`."""
    last: dict[str, Turns] = {}
    arms = train_arms(
        "kuhn-selfplay", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"exploitability": left_to_exploit(learned)},
        on_turns=lambda arm, iteration, turns: last.update({arm: turns}),
    )  # fmt: skip
    uniform = exploitability("kuhn_poker", uniform_policy("kuhn_poker"))
    worst = float(arms.values["mars"]["exploitability"].max())
    errors = {"worked_error": worked_error(), "three_steps_error": three_steps_error()}
    bias = seat_bias(last["mars"])
    measured = errors | {"exploitability_uniform": uniform, "worst_mars": worst} | arms.measured() | bias
    pooled_is_value = abs(bias["seat_bias_pooled"] - bias["seat_value"]) <= 1e-9 < bias["seat_value"]
    holds = max(errors.values()) <= 1e-6 and worst <= 0.5 * uniform and bias["seat_bias_own"] <= 1e-9
    return Outcome(measured, bool(holds and pooled_is_value))
