"""Policies that search when they act: what they choose, what it costs, and that nobody sees ahead."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest

import palaestra as pa
from palaestra.agents import ScriptedPolicy
from palaestra.agents.policy import Decision, Request
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Dilemma, Lock
from palaestra.envs.worlds.native import NativeEnv
from palaestra.errors import EnvError, InputError
from palaestra.judges.metering import Meter
from palaestra.judges.planning import SEARCHES, BestOf, Searching, _shared, beam, best_of, foresight, tree
from palaestra.play.executors import Local, Plan

LOCK = functools.partial(Lock, steps=4, numbers=3, shown=True)
RIGHT = [f"turn to {number}" for number in Lock(steps=4, numbers=3).right[0]]


class Paid:
    """Any legal action, for three tokens read and one written; counts how often it was asked."""

    name = "opener"

    def __init__(self, error: str | None = None) -> None:
        self.error, self.asked = error, 0

    def act(self, requests: Any) -> list[Decision]:
        self.asked += len(requests)
        legal = [each.observation.legal[int(each.rng.integers(len(each.observation.legal)))] for each in requests]
        return [Decision(each, tokens_in=3, tokens_out=1, cost=0.5, error=self.error) for each in legal]


class Named:
    """A scorer of a function of what was shown and done; each row takes five tokens."""

    name = "named"

    def __init__(self, worth: Any, meter: Meter | None = None) -> None:
        self.worth, self.meter = worth, meter or Meter()

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        self.meter.add([Decision("", tokens_in=5)] * len(rows))
        return pl.Series([self.worth(*row) for row in rows.select("prompt", "response").rows()], dtype=pl.Float64)


def opens(prompt: str, response: str) -> float:
    return float(response == RIGHT[int(prompt.split(",")[1].split()[-1])])


@dataclass
class _Coin:
    step: int = 0
    shown: int | None = None
    drawn: int = 0


class Coin(NativeEnv):
    """A coin is thrown after the first step. blind: it is to be guessed in that step, else called in the second."""

    agents = ("opener",)
    choices = ("heads", "tails")

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    def begin(self) -> tuple[str, Any]:
        return "coin", _Coin()

    def look(self) -> dict[str, Observation]:
        over = self.state.step == (1 if self.blind else 2)
        return {} if over else {"opener": Observation(f"shows {self.state.shown}", choices=self.choices)}

    def play(self, chosen: Any) -> tuple[dict[str, float], dict[str, Any]]:
        state, thrown = self.state, int(self.rng.integers(2))
        said = chosen["opener"]
        right = said == (thrown if self.blind else state.shown)
        state.step, state.shown = state.step + 1, thrown
        over = state.step == (1 if self.blind else 2)
        return {"opener": float(right and over)}, {"success": bool(right)} if over else {}


def play(env: Any, search: Any, episodes: int = 6, policy: Any = None) -> pl.DataFrame:
    whole = Searching(pa.Team(opener=Paid() if policy is None else policy), {"opener": search})
    made = functools.partial(foresight, env) if search.tries else env
    return Local().play(made, whole, Plan(groups=episodes)).frame


def test_the_best_of_n_is_the_best_and_costs_n_and_what_its_judge_took() -> None:
    policy, meter = Paid(), Meter()
    best = BestOf(policy, Named(opens, meter), n=12, meter=meter)
    turns = Local().play(LOCK, pa.Team(opener=best), Plan(groups=5)).frame
    assert turns["error"].null_count() == len(turns), turns["error"][0]
    assert turns["success"].mean() > 0.9  # type: ignore[operator]
    assert policy.asked == 12 * len(turns)
    assert turns["tokens_in"].to_list() == [12 * (3 + 5)] * len(turns)
    assert turns["tokens_out"].to_list() == [12] * len(turns)
    assert turns["cost"].to_numpy() == pytest.approx(6.0)
    with pytest.raises(InputError, match="n=0"):
        BestOf(policy, Named(opens), n=0)
    with pytest.raises(InputError, match="n=1 must be at least 2"):
        best_of(Named(opens), n=1)  # type: ignore[arg-type]


def test_of_what_has_no_score_the_first_is_done() -> None:
    class Nothing(Named):
        def score(self, rows: pl.DataFrame, **rest: Any) -> pl.Series:
            return pl.Series([None] * len(rows), dtype=pl.Float64)

    alone = Local().play(LOCK, pa.Team(opener=Paid()), Plan(groups=3)).frame
    turns = play(LOCK, best_of(Nothing(opens), n=4), 3)  # type: ignore[arg-type]
    assert turns["action"][0] == alone["action"][0]  # later ones draw from a stream that was drawn from more often


def test_a_beam_is_searched_once_where_nothing_is_left_to_chance() -> None:
    policy = Paid()
    turns = play(LOCK, beam(Named(opens), width=2, candidates=8), 4, policy)  # type: ignore[arg-type]
    assert turns["success"].all()
    assert turns["action"].to_list() == RIGHT * 4
    assert policy.asked == 4 * (8 + 3 * 16)  # one partial episode at first, then two
    first = turns.filter(pl.col("turn") == 0)
    assert first["tokens_out"].to_list() == [8 + 3 * 16] * 4
    assert turns["tokens_out"].sum() == policy.asked


def test_what_a_beam_found_is_followed_only_while_it_fits() -> None:
    search = beam(Named(lambda shown, said: float(shown == f"shows {Coin.choices.index(said)}")), width=1)  # type: ignore[arg-type]
    assert play(Coin, search, 30)["success"].all()


def test_a_tree_opens_what_chance_would_not_and_leaves_the_env_where_it_stood() -> None:
    env = functools.partial(Lock, steps=3, numbers=3, shown=True)  # chance: 1 in 27
    policy = Paid()
    turns = play(env, tree(rollouts=120), 3, policy)
    assert turns["success"].all()
    assert turns["error"].null_count() == len(turns)
    assert turns["tokens_out"].sum() == policy.asked
    assert (turns.filter(pl.col("turn") < 2)["tokens_out"] > 0).all()  # nothing is left to play on after the last
    liked = tree(Named(opens), rollouts=9, horizon=1)  # type: ignore[arg-type]
    assert play(env, liked, 3)["success"].all()


def test_nobody_sees_ahead() -> None:
    """A tree that went on with the same chance would guess every coin that has not been thrown yet."""
    guessed = play(functools.partial(Coin, blind=True), tree(rollouts=8), 60)["success"].mean()
    assert 0.3 < guessed < 0.7  # type: ignore[operator]


def test_a_policy_that_fails_while_it_searches_ends_that_episode() -> None:
    for search in (beam(Named(opens)), tree(rollouts=4), best_of(Named(opens))):  # type: ignore[arg-type]
        turns = play(LOCK, search, 2, Paid(error="no answer"))
        assert turns["error"].str.contains("no answer").all()
        assert len(turns) == 2


def test_trying_needs_an_env_that_can_be_gone_back_to_and_one_agent() -> None:
    class Forward:
        agents, task = ("a",), "t"

    with pytest.raises(EnvError, match="Forward cannot be gone back to"):
        foresight(Forward)  # type: ignore[arg-type]
    with pytest.raises(EnvError, match="2 agents act in Dilemma"):
        foresight(Dilemma)
    with pytest.raises(InputError, match="width=0"):
        beam(Named(opens), width=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rollouts=0"):
        tree(rollouts=0)
    team = Searching(pa.Team(opener=Paid()), {"opener": tree(rollouts=4)})
    turns = Local().play(LOCK, team, Plan(groups=1, retries=0)).frame
    assert "was not made by `foresight`" in str(turns["error"][0])


def test_weights_are_those_of_the_team_that_searches() -> None:
    learns = pa.agents.TabularPolicy(3, name="opener")
    team = pa.Team(opener=learns)
    searching = Searching(team, {"opener": best_of(Named(opens))})  # type: ignore[arg-type]
    assert searching.learnable == {"opener": learns}
    assert searching.trainable[0] is learns


def test_a_critic_rewrites_what_the_policy_thought() -> None:
    """Three answers of growing thoughts; without a scorer the last counts, and the cost is that of all."""

    def answers(request: Any) -> str:
        thought = request.observation.text.partition("\n")[2] or "0"
        return f"{thought}</think>said {thought}"

    search = SEARCHES.build(f"refined('{__name__}:deeper', rounds=3)")
    policy = search.around(ScriptedPolicy(answers, name="thinker"), Meter())
    request = Request(Observation("how many?"), "thinker", np.random.default_rng(0))
    assert [each.action for each in policy.act([request, request])] == ["2</think>said 2"] * 2
    with pytest.raises(InputError, match="rounds"):
        SEARCHES.build(f"refined('{__name__}:deeper', rounds=0)")


def deeper(question: str, thought: str, said: str) -> str:
    return str(int(thought) + 1)


@pytest.mark.parametrize(("tokens", "parts"), [(7, [3, 2, 2]), (6, [2, 2, 2]), (1, [1, 0, 0])])
def test_a_scorers_tokens_are_shared_whole(tokens, parts):
    before, after = {"tokens": 10, "cost": 1.0}, {"tokens": 10 + tokens, "cost": 2.5}
    assert _shared(before, after, 3) == [(part, 0.5) for part in parts]
