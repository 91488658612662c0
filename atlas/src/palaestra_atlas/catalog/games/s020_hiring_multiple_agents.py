"""[20] Online information acquisition (arXiv 2307.06210): whom to hire for information, and what for.

The best mechanism for several agents, and what it costs if the law of their signals has to be found out first. The
online half is a reconstruction from the summary: explore with a mechanism that induces all profiles, count, commit to
the linear program with slack. Left out: costs that are not known.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games.hiring import Mechanism, best_fixed, scoring_rule
from palaestra.evaluation.games.hiring_online import explore_then_commit, respond
from palaestra_atlas.reproductions import Outcome, exact, reproduction

EVEN = np.array([0.5, 0.5])
DECIDE = np.eye(2)


def audit() -> np.ndarray:
    """Agent 0 is right in easy cases and in 60 % of hard ones if it works; agent 1 tells easy from hard if it works."""
    law = np.zeros((2, 2, 2, 2, 2))
    for works, looks, state, easy, said, told in itertools.product(range(2), repeat=6):
        right = 0.5 if not works else 1.0 if easy else 0.6
        seen = float(told == easy) if looks else 0.5
        law[works, looks, state, said, told] += 0.5 * (right if said == state else 1 - right) * seen
    return law


def problem(first: float = 0.1, second: float = 0.01) -> tuple[Any, ...]:
    """Prior, signals, costs and reward of the audit."""
    return EVEN, audit(), [np.array([0, first]), np.array([0, second])], DECIDE


def twins(accuracy: float = 0.8, cost: float = 0.1) -> tuple[Any, ...]:
    """Two agents of whom each, if it works, sees one and the same signal, right in a share `accuracy` of the cases."""
    law = np.zeros((2, 2, 2, 2, 2))
    for works, helps, state, signal, said, told in itertools.product(range(2), repeat=6):
        chance = accuracy if signal == state else 1 - accuracy
        law[works, helps, state, said, told] += (
            chance * (float(said == signal) if works else 0.5) * (float(told == signal) if helps else 0.5)
        )
    return EVEN, law, [np.array([0, cost])] * 2, DECIDE


def independent(parts: tuple[Any, ...], cap: float, grid: int = 11) -> float:
    """Value of the best mechanism whose recommendations to two agents are drawn apart, over a grid of their chances."""
    found = []
    for first, second in itertools.product(np.linspace(0, 1, grid), repeat=2):
        try:
            mixture = np.outer([1 - first, first], [1 - second, second])
            found.append(scoring_rule(*parts, cap=cap, least=mixture).value)
        except InputError:
            continue
    return max(found)


def written(seed: int, folder: Path) -> None:
    """Twins whose accuracy and cost are drawn, as the command reads them."""
    rng = np.random.default_rng(seed)
    names = ("prior", "signals", "costs", "reward")
    parts = twins(float(rng.uniform(0.78, 0.82)), float(rng.uniform(0.09, 0.11)))
    told = {name: [x.tolist() for x in part] if name == "costs" else part.tolist() for name, part in zip(names, parts)}
    (folder / "problem.json").write_text(json.dumps(told))


def gains(found: Mechanism) -> float:
    """Largest gain of an agent that is told something, does another effort and reports by any map."""
    prior, law, costs, _ = problem()
    joint = np.moveaxis(law, 2, -1) * prior
    best = -np.inf
    for i, told in itertools.product(range(2), repeat=2):
        value = {}
        for done, rule in itertools.product(range(2), itertools.product(range(2), repeat=2)):
            total = 0.0
            for other in range(2):
                b, a = ((told, other), (done, other)) if i == 0 else ((other, told), (other, done))
                for s in itertools.product(range(2), repeat=2):
                    said = (rule[s[0]], s[1]) if i == 0 else (s[0], rule[s[1]])
                    total += found.profile[b] * float(joint[a][s] @ found.payments[i][b][said])
                total -= found.profile[b] * costs[i][done]
            value[done, rule] = total
        best = max(best, max(value.values()) - value[told, (0, 1)])
    return float(best)


@exact
def one_agent() -> None:
    """Accuracy .8, cost .05: value .66667, pay .13333."""
    law = np.stack([np.full((2, 2), 0.5), np.array([[0.8, 0.2], [0.2, 0.8]])])
    found = scoring_rule(EVEN, law, [np.array([0, 0.05])], DECIDE)
    assert abs(found.value - 2 / 3) < 1e-6
    assert abs(found.pay[0] - 2 / 15) < 1e-6


@exact
def three_agents() -> None:
    """Three of accuracy .7 and cost .01 all work: value .679, pay .105."""
    own = np.stack([np.full((2, 2), 0.5), np.array([[0.7, 0.3], [0.3, 0.7]])])
    law = np.einsum("atx,bty,ctz->abctxyz", own, own, own)
    found = scoring_rule(EVEN, law, [np.array([0, 0.01])] * 3, DECIDE)
    assert abs(found.value - 0.679) < 1e-6
    assert abs(found.pay.sum() - 0.105) < 1e-6
    assert abs(found.profile[1, 1, 1] - 1) < 1e-9


@exact
def correlated_efforts() -> None:
    """The audit: .574 for the best fixed profile, .5948 (cap 2) and .59896 (cap 10) with rare audits."""
    assert abs(best_fixed(*problem()).value - 0.574) < 1e-6
    for cap, value, rare in ((2.0, 0.5948, 0.2), (10.0, 0.59896, 0.04)):
        found = scoring_rule(*problem(), cap=cap)
        assert abs(found.value - value) < 1e-6
        assert abs(found.profile[1, 1] - rare) < 1e-6
    with tempfile.TemporaryDirectory() as folder:
        written(0, Path(folder))
        mixed, fixed = (
            analyze(f"hire(mixed={each})", Path(folder) / "problem.json")["value"][0] for each in (True, False)
        )
    assert mixed > fixed + 0.01


@exact
def efforts_are_drawn_together() -> None:
    """Twins at a cap of 1: .57778 with one of them at work and at times both; .56 drawn apart, .53333 fixed.

    Payment is 1 if both were asked and agree. Who is asked gains .5 by work where the other was asked too, at a cost
    of .1, so both are asked in a share m of the cases with .5 m = .1 (1 + m) / 2, m = 1 / 9. Each is then paid m on
    average: .8 - 2 / 9. Drawn apart, one always works, the other in a fifth of the cases: .8 - .2 - .2 · .2. One alone
    is paid .1 / .3 for every right answer.
    """
    found = scoring_rule(*twins(), cap=1.0)
    assert abs(found.value - (0.8 - 2 / 9)) < 1e-6
    np.testing.assert_allclose(found.profile, [[0, 4 / 9], [4 / 9, 1 / 9]], atol=1e-6)
    assert abs(independent(twins(), 1.0) - 0.56) < 1e-6
    assert abs(best_fixed(*twins(), cap=1.0).value - (0.8 - 0.8 / 3)) < 1e-6


@exact
def no_deviator_gains() -> None:
    """Brute force over efforts and reporting maps: nobody gains by disobeying or by lying."""
    for cap in (2.0, 10.0):
        assert gains(scoring_rule(*problem(), cap=cap)) < 1e-7


@exact
def payments_are_capped() -> None:
    """No payment is above the cap, and audits keep a probability of .04 at a cap of 10."""
    found = scoring_rule(*problem(), cap=10.0)
    assert found.payments.max() <= 10 + 1e-6
    assert found.profile[1, 1] > 0.03


@exact
def agents_who_know_the_law_obey_it() -> None:
    """Best responses to the best mechanism are to obey; to one without payments, nobody works and nothing is known."""
    found = scoring_rule(*problem(), cap=2.0)
    response = respond(found, *problem())
    assert response.obeyed == 1.0
    assert abs(response.value - 0.5948) < 1e-6
    unpaid = respond(Mechanism(found.profile, 0 * found.payments, found.pay, 0.0), *problem())
    assert unpaid.obeyed == 0.0
    assert abs(unpaid.value - 0.5) < 1e-6


@exact
def regret_flattens() -> None:
    """From T = 10^6 to 10^10 regret grows as T^(2/3): per round it falls by 21.5 for each 10^4, here by 10 and more."""
    regret, broken = {}, 0.0
    prior, law, costs, reward = problem()
    for rounds in (10**6, 10**10):
        found = [
            explore_then_commit(prior, law, costs, reward, np.random.default_rng(seed), rounds=rounds)
            for seed in range(8)
        ]
        regret[rounds] = float(np.mean([each.regret / rounds for each in found]))
        broken = float(np.mean([1 - each.response.obeyed for each in found]))
    assert regret[10**6] / regret[10**10] > 10, regret
    assert broken < 0.01, "efforts are made under the true law, not only under the counted one"
    with tempfile.TemporaryDirectory() as folder:
        written(0, Path(folder))
        table = analyze("hire_online(rounds=100000000, runs=2)", Path(folder) / "problem.json")
    assert (table["regret_per_round"] < 0.05).all()
    assert (table["explored"] == 215444).all()


@reproduction(
    20,
    claim="Recommendations that are drawn together, so that rare joint effort checks both agents, are worth more.",
    baseline="the best mechanism that always recommends one profile, and the best of those that draw efforts apart",
    criterion="the value is higher for each of five pairs of twins, and no deviator gains in the worked case",
    seeds=(0,),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Values for twins that are drawn, and the gain of a deviator in the audit."""
    values = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(5):
            parts = twins(float(rng.uniform(0.78, 0.82)), float(rng.uniform(0.09, 0.11)))
            values.append(
                [f(*parts, cap=1.0).value for f in (scoring_rule, best_fixed)] + [independent(parts, 1.0, 21)]
            )
    mixed, fixed, apart = np.array(values).T
    gain = gains(scoring_rule(*problem()))
    means = {"mixed": float(mixed.mean()), "fixed": float(fixed.mean()), "apart": float(apart.mean())}
    return Outcome(means | {"deviator": gain}, bool((mixed > np.maximum(fixed, apart) + 1e-6).all()) and gain < 1e-7)
