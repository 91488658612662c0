from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs.worlds import Bargaining, Bertrand, Market, Negotiation, Persuasion, Queue
from palaestra.envs.worlds.bargaining import equilibrium
from palaestra.envs.worlds.exact.economics import monopolised
from palaestra.envs.worlds.market import careful, first_proposal
from palaestra.envs.worlds.queue import first_come, pact
from palaestra.errors import InputError


def script(env, *moves, seed=0):
    """The last result of moves that are made one after the other, whoever's turn it is."""
    observations = env.reset(seed)
    for move in moves:
        result = env.step(dict.fromkeys(observations, move))
        observations = result.observations
    assert not observations
    return result


def play(env, seed, act):
    observations, total = env.reset(seed), dict.fromkeys(env.agents, 0.0)
    while observations:
        result = env.step({a: act(Request(seen, a, np.random.default_rng(0))) for a, seen in observations.items()})
        observations = result.observations
        for agent, reward in result.rewards.items():
            total[agent] += reward
    return total, result


def test_bargaining_pays_discounted_shares():
    moves = ["keep 90", "reject", "keep 90", "reject", "keep 50", "accept"]
    result = script(Bargaining((0.9, 0.8), rounds=3), *moves)
    assert result.rewards == {"first": pytest.approx(0.405), "second": pytest.approx(0.32)}
    assert result.info["efficiency"] == pytest.approx(0.725)
    assert result.info["fairness"] == 1.0
    assert result.info["reference"] == pytest.approx(0.92)
    assert script(Bargaining(rounds=2, offers=11), "keep 70", "reject", "keep 90", "accept").info[
        "agreed"
    ] == pytest.approx(0.1)


def test_bargaining_without_agreement_pays_nothing():
    result = script(Bargaining(rounds=1), "keep 50", "reject")
    assert result.rewards == {"first": 0.0, "second": 0.0}
    assert result.info["fairness"] is None
    assert script(Bargaining(rounds=1), "what?").info["valid"] == {"first": False}


def test_equilibrium_play_ends_at_once_near_the_reference():
    for rounds in (1, 2, 3, 4, 7):
        env = Bargaining((0.9, 0.8), rounds=rounds, offers=101)
        gains, result = play(env, 0, equilibrium())
        assert gains["first"] == pytest.approx(result.info["reference"], abs=0.011)
        assert result.info["efficiency"] == pytest.approx(1.0)


@pytest.mark.parametrize("discounts", [(1.0, 1.0), (0.8, 1.0), (1.0, 0.5)])
def test_equilibrium_play_where_waiting_costs_nothing(discounts):
    for rounds in (1, 2, 3, 4):
        gains, result = play(Bargaining(discounts, rounds=rounds, offers=101), 0, equilibrium())
        assert gains["first"] == pytest.approx(result.info["reference"], abs=0.011)


def test_incomplete_information_hides_the_others_discount():
    env = Bargaining((0.9, 0.8), complete=False)
    assert "0.8" not in env.reset(0)["first"].text
    assert "0.9" not in env.step({"first": "keep 50"}).observations["second"].text


def test_negotiation_pays_gains_of_trade():
    result = script(Negotiation((1.0, 1.5)), "price 1.1", "accept")
    assert result.info["self_gain"] == {"seller": pytest.approx(0.1), "buyer": pytest.approx(0.4)}
    assert result.info["fairness"] == pytest.approx(0.91)
    assert result.info["efficiency"] == 1.0
    assert result.info["reference"] == 1.5
    away = script(Negotiation((1.0, 1.5)), "price 1.1", "leave").info
    assert (away["efficiency"], away["fairness"], away["price"]) == (0.0, 1.0, None)
    assert script(Negotiation((1.5, 1.0)), "leave").info["efficiency"] == 1.0
    assert script(Negotiation((1.0, 1.0)), "leave").info["efficiency"] == 1.0


def test_persuasion_scores_add_up_to_the_rewards():
    env = Persuasion(0.5, rounds=6)
    said = []

    def act(request):
        if request.agent == "seller":
            said.append("good is good" in request.observation.text)
            return "recommend" if said[-1] else "warn"
        return "buy" if "hears recommend" in request.observation.text else "pass"

    for seed in range(4):
        said.clear()
        gains, result = play(env, seed, act)
        assert result.info["self_gain"] == pytest.approx(gains)
        assert (result.info["efficiency"], result.info["fairness"]) == (1.0, 1.0)
        assert gains["buyer"] == pytest.approx(sum(said) / 6)


def test_a_persuaded_buyer_sees_what_its_memory_allows():
    for memory, found in (("none", "buyer hears warn"), ("statistics", "buyer hears warn | sold 1, good 1")):
        env = Persuasion(1.0, rounds=2, memory=memory)
        env.reset(0)
        env.step({"seller": "recommend"})
        env.step({"buyer": "buy"})
        assert env.step({"seller": "warn"}).observations["buyer"].text == found


def test_careful_customers_reach_the_optimum_of_what_they_hear():
    env = Market(customers=3, sellers=3, proposals=3)
    ratios = [play(env, seed, careful())[1].info["welfare_ratio"] for seed in range(60)]
    assert np.mean(ratios) == 1.0
    hasty = [play(env, seed, first_proposal())[1].info for seed in range(60)]
    assert np.mean([info["welfare_ratio"] for info in hasty]) < 0.75
    assert {p for info in hasty for p in info["position"].values()} == {1}


def test_money_only_changes_hands():
    env = Market()
    for seed in range(20):
        gains, result = play(env, seed, first_proposal())
        assert sum(gains.values()) == pytest.approx(result.info["welfare"])


def test_search_decides_who_is_heard():
    simple, ideal = Market(search="simple", proposals=1), Market(search="optimal", proposals=1)
    shares = [
        np.mean([play(env, s, first_proposal())[1].info["welfare_ratio"] for s in range(80)]) for env in (simple, ideal)
    ]
    assert shares[1] == 1.0 > shares[0] + 0.2


def test_waiting_costs_worth():
    env = Market(customers=1, sellers=2, patience=0.5)
    for seed in range(30):
        _, result = play(env, seed, careful())
        if result.info["position"]["customer_0"]:
            assert result.info["welfare_ratio"] == 0.5


def test_waiting_costs_the_buyer_and_what_misses_a_wish_is_worth_nothing():
    env, met = Market(customers=1, sellers=2, items=2, patience=0.5, markups=[1.0]), set()
    for seed in range(30):
        env.reset(seed)
        seen = env.step(dict.fromkeys(env.sellers, "markup 1")).observations["customer_0"].text
        worth = float(seen.split()[2])
        text = env.step({"customer_0": "wait"}).observations["customer_0"].text
        meets, price = text.split("1: ")[1].split()[:2]
        value = worth / 2 if meets == "meets" else 0.0
        assert env.step({"customer_0": "pay 1"}).rewards["customer_0"] == pytest.approx(value - float(price))
        met.add(meets)
    assert met == {"meets", "misses"}


def test_the_cheapest_seller_gets_all_buyers():
    env = Bertrand(sellers=2, rounds=1)
    env.reset(0)
    result = env.step({"seller_0": "price 12", "seller_1": "price 14"})
    assert result.rewards == {"seller_0": 2.0, "seller_1": 0.0}
    assert result.info["nash"] == 11
    assert result.info["monopoly"] == 20
    assert result.info["collusion"] == pytest.approx(2 / 9)
    env.reset(0)
    assert env.step({"seller_0": "price 14", "seller_1": "price 14"}).rewards == {"seller_0": 2.0, "seller_1": 2.0}


def test_sellers_without_memory_see_nothing():
    for memory, text in ((True, "own last price 12 others 14"), (False, "own last price - others -")):
        env = Bertrand(sellers=2, rounds=2, memory=memory)
        env.reset(0)
        assert text in env.step({"seller_0": "price 12", "seller_1": "price 14"}).observations["seller_0"].text


def test_a_pact_monopolises_the_queue():
    for seed in range(8):
        fair, result = play(Queue(), seed, first_come())
        assert fair == {"a": 0.5, "b": 0.5, "c": 0.5}
        assert result.info["monopolised"] is False
        taken, result = play(Queue(), seed, pact("ac"))
        assert taken == {"a": 1.0, "b": 0.0, "c": 1.0}
        assert result.info["monopolised"] is True
        assert result.info["success"] == {"a": True, "b": False, "c": True}


def test_a_fee_is_paid():
    env = Queue(fee=10)
    env.reset(0)
    last = env.agents[env.state.line[-1]]
    payer = env.agents[env.state.line[1]]
    moves = {agent: f"guarantee {last}" if agent == payer else "pass" for agent in env.agents}
    assert "funds 170" in env.step(moves).observations[payer].text


def test_a_fee_that_nobody_can_pay_breaks_the_pact():
    _, result = play(Queue(fee=1000), 0, pact("ab"))
    assert result.info["hours"] == {"a": 6, "b": 6, "c": 6}


def test_an_unknown_trick_of_a_market_is_named() -> None:
    """The message says which one, and the columns of tricks are there only where sellers may play them."""
    with pytest.raises(InputError, match="overcharg"):
        Market(tricks=["overcharg"])
    assert "refused" not in Market().facts
    assert "refused" in Market(tricks=["overcharge"]).facts


@pytest.mark.parametrize(("rounds", "opens"), [(1, "keep 95"), (2, "keep 15"), (3, "keep 90")])
def test_a_bargainer_offers_a_step_more_than_refusing_is_worth(rounds, opens):
    """The first player gets 1, 1 - .8 or .92, in steps of .05; an offer that leaves the other indifferent is none."""
    seen = Bargaining((0.9, 0.8), rounds=rounds).reset(0)["first"]
    assert equilibrium()(Request(seen, "first", np.random.default_rng(0))) == opens


def test_who_has_just_enough_counts_among_those_that_monopolise():
    assert monopolised([6, 6, 0], capacity=12, minimum=6)
    assert monopolised([6, 0], capacity=12, minimum=6, slack=0.5), "just half of it"
    assert not monopolised([5, 0], capacity=12, minimum=5, slack=0.5)
