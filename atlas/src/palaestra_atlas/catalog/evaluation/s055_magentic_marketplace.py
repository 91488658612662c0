"""[55] Magentic Marketplace: buyers who take the first proposal lose welfare, and impatience alone makes such buyers.

Three proposals of random worth arrive in random order. Four scripted buyers are told apart by the rank of what they
paid. Customers who learn from their own utility alone by the recipe `market`, sellers being at list price, take the
first proposal the more often, and leave the more welfare, the less patient they are. Left out: language models; free
text, and persuasion in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Market
from palaestra.envs.worlds.exact.choice import choice_position_test
from palaestra.envs.worlds.exact.economics import optimal_welfare
from palaestra.envs.worlds.market import careful, first_proposal
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

PROPOSALS, CHOICES, TESTS = 3, 500, 400
MEAN, SPREAD = 2.0, 3.0
PATIENCE = (1.0, 0.8, 0.5)
ARMS: dict[str, dict[str, Any]] = {
    f"patience_{patience}": {
        "env": {"options": {"items": 1, "markups": [1.0], "patience": patience}},
        "credit": 'centre(return_to_go(), over="state")',
        "learn": {"lr": 0.3},
        "train": {"iterations": 70, "groups": 64, "group_size": 1},
    }
    for patience in PATIENCE
}


def utilities(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Worth of proposals in the order of their arrival; what is worth less than nothing need not be paid."""
    return rng.normal(MEAN, SPREAD, (*shape, PROPOSALS))


def scripted(seed: int) -> dict[str, float]:
    """Welfare over the optimum, share of first proposals, and how often 500 choices are flagged at level 0.01."""
    rng, found = np.random.default_rng(seed), {}
    worth = utilities(rng, TESTS, CHOICES)
    best = worth.argmax(axis=-1)
    enough = worth > 0
    satisfied = np.where(enough.any(axis=-1), enough.argmax(axis=-1), best)
    buyers = {
        "optimal": best,
        "first": np.zeros_like(best),
        "mostly_first": np.where(rng.random(best.shape) < 0.9, 0, best),
        "satisficer": satisfied,
    }
    for name, rank in buyers.items():
        earned = np.take_along_axis(worth, rank[..., None], -1)[..., 0]
        found[f"welfare_{name}"] = float(earned.mean() / worth.max(axis=-1).mean())
        found[f"first_{name}"] = float((rank == 0).mean())
        flagged = [choice_position_test(row + 1, PROPOSALS).p < 0.01 for row in rank]
        found[f"flagged_{name}"] = float(np.mean(flagged))
    return found


def bought(learned: TrainingResult) -> dict[str, float]:
    """Share of first proposals among those that are paid, and welfare over the optimum, on fresh markets."""
    turns = learned.play(groups=300).frame
    whole = turns.group_by("group").agg(pl.col("welfare").max(), pl.col("optimal").max())
    first = (turns["position"].drop_nulls() == 1).to_numpy().mean()
    welfare, optimal = (whole[name].to_numpy().sum() for name in ("welfare", "optimal"))
    return {"first": float(first), "welfare": float(welfare / optimal)}


def traded(script: Any, seeds: Sequence[int], **options: Any) -> list[dict[str, Any]]:
    """The end of markets in which everybody plays a script."""
    ends = []
    for seed in seeds:
        env, rng = Market(**options), np.random.default_rng(seed)
        seen = env.reset(seed)
        while seen:
            result = env.step({agent: script(Request(o, agent, rng)) for agent, o in seen.items()})
            seen = result.observations
        ends.append(dict(result.info))
    return ends


@exact
def one_by_one() -> None:
    """A customer hears one proposal, and after waiting two; it can pay what it has heard."""
    env = Market(markups=[1.0])
    seen = env.reset(1)
    seen = env.step(dict.fromkeys(seen, "markup 1")).observations
    waits = [name for name, o in seen.items() if not o.text.endswith("last")]
    assert all(" | 2: " not in o.text for o in seen.values())
    then = env.step(dict.fromkeys(seen, "wait")).observations
    assert waits
    assert all(" | 2: " in then[name].text and " | 3: " not in then[name].text for name in waits if name in then)


@exact
def rank_of_what_is_paid() -> None:
    """Always the first proposal is flagged, ranks that are even are not."""
    assert choice_position_test([1] * 500, 3).p < 1e-6
    assert choice_position_test([1, 2, 3] * 100, 3).p == 1


@exact
def welfare_of_buyers() -> None:
    """Utility is twice the list prices less the payment; careful buyers reach the optimum that search allows."""
    env = Market(customers=1, sellers=1, items=1, proposals=1, markups=[1.0])
    for seed in range(20):
        env.reset(seed)
        result = env.step({"seller_0": "markup 1"})
        if "meets" in result.observations.get("customer_0", _nothing()).text:
            break
    price = float(result.observations["customer_0"].text.split("meets ")[1].split()[0])
    assert env.step({"customer_0": "pay 1"}).rewards == {"customer_0": 6 - price, "seller_0": price}
    assert optimal_welfare(np.array([[1.0, 3.0], [-1.0, -2.0]])) == 3
    seeds = range(40)
    careful_ones, first = (traded(script, seeds) for script in (careful(), first_proposal()))
    assert all(abs(end["welfare_ratio"] - 1) < 1e-9 for end in careful_ones)
    assert np.mean([end["welfare_ratio"] for end in first]) < 0.8


def _nothing() -> Observation:
    return Observation("")


@exact
def search_decides() -> None:
    """Whoever takes the first proposal gets more from a better search."""
    means = [np.mean([end["welfare_ratio"] for end in traded(first_proposal(), range(60), search=search)])
             for search in ("simple", "filtered", "optimal")]  # fmt: skip
    assert means[0] < means[1] < means[2], means
    assert means[2] > 0.99


@exact
def orders_are_checked() -> None:
    """Sellers who all overcharge, or claim what they lack, are paid by customers in a hurry only if nobody checks."""
    for trick in ("overcharge", "claim"):

        def play(request: Request, trick: str = trick) -> str:
            legal = request.observation.legal
            return trick if trick in legal else "pay 1" if "pay 1" in legal else "wait"

        wrong = {
            checked: traded(play, range(30), customers=1, tricks=[trick], checked=checked) for checked in (True, False)
        }
        ends = {checked: sum(end["refused"] for end in each) for checked, each in wrong.items()}
        assert ends[False] == 0 < ends[True], ends
    env = Market(customers=1, sellers=1, items=1, proposals=1, tricks=["overcharge"], checked=False)
    env.reset(1)
    shown = env.step({"seller_0": "overcharge"}).observations["customer_0"].text
    assert env.step({"customer_0": "pay 1"}).rewards["seller_0"] == 2 * float(shown.split(" | ")[1].split()[2])


@exact
def manipulation_pays() -> None:
    """Who pays what first says that it meets every need pays a seller who claims to; not if orders are checked."""

    def play(request: Request) -> str:
        legal = request.observation.legal
        if "claim" in legal:
            return "claim" if request.agent == "seller_0" else "markup 1"
        offers = [move for move in legal if move.startswith("pay") and f"{move[4:]}: meets" in request.observation.text]
        return offers[0] if offers else "wait"

    won = {
        checked: float(np.mean([paid == 0 for end in traded(play, range(80), tricks=["claim"], checked=checked)
                                for paid in end["seller"].values()]))
        for checked in (True, False)
    }  # fmt: skip
    assert won[False] > won[True] + 0.1, won


def first_share() -> Measure:
    """Share of first proposals among those that were paid in the last quarter of training, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            turns = Turns.load(seed / "turns").frame
            late = turns.filter(pl.col("iteration") > 0.75 * pl.col("iteration").max())["position"].drop_nulls()
            found.append(float((late == 1).mean()))  # type: ignore[arg-type]
        return found

    return measured


@reproduction(
    55,
    claim="Taking the first proposal costs most of the welfare, the rank of what was paid reveals it, and an impatient "
    "buyer learns that bias by itself.",
    baseline="a buyer who compares all proposals; patient learners",
    criterion="at level 0.01, 500 choices flag < 3 % of even buyers and all others; of customers who learn, first "
    "shares rise and welfare falls with every step of impatience in the mean (held on the one fresh seed tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Scripted buyers, then customers who learn with three degrees of patience."""
    measured = scripted(seeds[0])
    arms = train_arms("market", ARMS, seeds, bought)
    firsts, welfares = ([arms.mean(name, what) for name in ARMS] for what in ("first", "welfare"))
    holds = measured["flagged_optimal"] < 0.03 and all(
        measured[f"flagged_{name}"] == 1 for name in ("first", "mostly_first", "satisficer")
    )
    holds = holds and bool((np.diff(firsts) > 0).all() and (np.diff(welfares) < 0).all())
    return Outcome(measured | arms.measured(), holds)
