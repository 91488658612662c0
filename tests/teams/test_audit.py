from __future__ import annotations

import itertools

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import audited
from palaestra.teams.audit import AUDITS
from palaestra.teams.rules import Message
from palaestra.testing.env import check_env


class Word(TaskEnv):
    """Say a number."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", "which?", lambda text: float(int(text) == 1), "1")


def play(say, groups=4, **options):
    env = audited(Word, **{"agents": 3, **options})
    return rollout(env, Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="s"))), groups=groups, seed=1)


def test_simulated_indicators_pass_as_often_as_the_card_says():
    audit, rng = AUDITS.build("indicators()"), np.random.default_rng(0)
    for score, expected in ((0.0, 0.75**5), (1.0, 0.97**5)):
        said = Message("a", "x", score, 0, 0)
        passed = np.mean([not any(audit(said, lambda: rng)) for _ in range(20_000)])
        assert passed == pytest.approx(expected, abs=0.01)


def test_what_fails_is_said_again_with_what_is_wrong():
    def say(request):
        return "1" if "audit: " in request.observation.text else "?"

    turns = play(say, agents=2, talk=False)
    assert len(turns) == 4 * 2 * 2
    assert turns["success"].all()
    again = turns.frame.filter(turns["attempt"] == 1)
    assert set(again["observation"]) == {"which? | ? | audit: give an answer that can be read"}
    assert again["audit_passed"].all()
    assert set(turns.frame.filter(turns["attempt"] == 0)["audit_failed"]) == {1.0}


def test_what_fails_to_the_end_is_heard_by_nobody_and_does_not_vote():
    def say(request):
        return "no number" if request.agent == "agent-1" else "1"

    turns = play(say, attempts=2)
    heard = messages(turns)
    lost = heard.filter(heard["sender"] == "agent-1")
    assert not lost["kept"].any()
    assert set(lost["reason"]) == {"failed the audit"}
    assert heard.filter(heard["sender"] == "agent-2")["kept"].all()
    assert turns["success"].all()
    first = turns.frame.filter(turns["agent"] == "agent-1")
    assert first["attempt"].to_list() == [0, 1] * 4
    assert set(lost["sender_turn"]) == {1}  # the second try


def test_who_passed_keeps_what_it_said_while_others_try_again():
    def say(request):
        if request.agent == "agent-1":
            return "1"
        tries.append(request.agent)
        return "1" if len(tries) % 3 == 0 else "?"

    tries: list[str] = []
    turns = play(say, groups=1, agents=2, talk=False, least=2)
    assert turns["success"].all()
    assert turns.frame.filter(turns["agent"] == "agent-1")["turn"].to_list() == [0]
    assert turns.frame.filter(turns["agent"] == "agent-2")["turn"].to_list() == [0, 1, 2]


def test_too_few_survivors_and_the_team_works_once_more_without_audits():
    turns = play(lambda request: "2", audit="indicators(wrong=1.0)", attempts=2, talk=False)
    assert len(turns) == 4 * 3 * 3  # two tries each, then again
    assert not turns["success"].any()
    last = turns.frame.filter(turns["audit_failed"].is_null())
    assert len(last) == 4 * 3
    assert last["audit_passed"].all()
    kept = play(lambda request: "2", audit="indicators(wrong=1.0)", attempts=2, talk=False, least=0)
    assert len(kept) == 4 * 3 * 2


def test_a_passing_audit_changes_nothing_and_prices_count_every_try():
    turns = play(lambda request: "1", audit="indicators(right=0.0)", price=0.1)
    assert len(turns) == 4 * 3
    assert set(turns.frame.drop_nulls("reward")["reward"].round(6)) <= {0.7, 0.0}
    paid = play(lambda request: "?", attempts=3, talk=False, least=0, price=0.1)
    assert paid["reward"].max() == pytest.approx(0.0)
    assert paid["reward"].min() == pytest.approx(-0.9)


def test_own_checks_are_functions_of_the_text():
    audit = AUDITS.build("checks('textwrap:wrap')")  # a function of a text that gives a list
    assert audit(Message("a", "", 0.0, 0, 0), lambda: np.random.default_rng(0)) == [None]
    assert audit(Message("a", "word", 0.0, 0, 0), lambda: np.random.default_rng(0)) == ["word"]


def test_the_protocol_is_kept_and_bad_options_are_named():
    check_env(audited(Word, 2, audit="indicators()"))
    check_env(audited(Word, 4, talk=False, audit="indicators(wrong=.5, right=.5)"))  # some fail while others pass
    for options in ({"attempts": 0}, {"pass_rate": 0.0}, {"least": 9}, {"agents": 0}):
        with pytest.raises(InputError):
            audited(Word, **options)
    with pytest.raises(InputError, match="indicators"):
        audited(Word, audit="indicators(wrong=2)")
    env = audited(Word)()
    env.reset(0)
    with pytest.raises(EnvError, match="the agents to act are"):
        env.step({"x": "1"})


def test_equal_rates_change_no_share_by_enumeration():
    """Rejecting with equal rates keeps the mean share of right messages, whatever their numbers."""
    for right, wrong in itertools.product(range(1, 4), range(1, 4)):
        shares, weights = [], []
        for kept in itertools.product((0, 1), repeat=right + wrong):
            if sum(kept):
                shares.append(sum(kept[:right]) / sum(kept))
                weights.append(0.6 ** sum(kept) * 0.4 ** (right + wrong - sum(kept)))
        assert np.average(shares, weights=weights) == pytest.approx(right / (right + wrong))
