"""Exact measures: the numbers of the theory, from policies that act in the env."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import LMPolicy, ScriptedPolicy, TabularPolicy, Team
from palaestra.envs import make
from palaestra.envs.worlds.exact.exploitability import average_policy, uniform_policy
from palaestra.errors import InputError, RecipeError
from palaestra.runs.measures import check, lower_is_better, measure, table_of
from palaestra.runs.scripts import make as make_script

KUHN = make("openspiel/kuhn_poker")


def untrained() -> Team:
    shared = TabularPolicy(2, name="player")
    return Team(player_0=shared, player_1=shared)


def test_an_untrained_table_is_the_uniform_policy() -> None:
    game, table = table_of(KUHN, untrained())
    assert game == "kuhn_poker"
    assert table == uniform_policy(game)
    assert measure("exploitability", game, [table]) == pytest.approx(0.4583, abs=1e-4)
    assert measure("nash_conv", game, [table]) == pytest.approx(2 * 0.4583, abs=1e-4)
    assert measure("expected_return", game, [table]) == pytest.approx(0.125)


def test_every_seat_is_asked_for_its_own_play() -> None:
    team = Team(player_0=TabularPolicy(2, name="a"), player_1=TabularPolicy(2, name="b"))
    env = KUHN()
    (observation,) = env.reset(0).values()
    team["player_0"].meet(pl.DataFrame({"state": [observation.key()]}, schema={"state": pl.UInt64}))  # type: ignore[attr-defined]
    with_bias = team["player_0"].module.get_parameter("logits")  # type: ignore[attr-defined]
    with_bias.data[0] += 2.0 * (with_bias.data[0] == 0) * (with_bias.new_tensor([0.0, 1.0]))
    _, table = table_of(KUHN, team)
    changed = {key: row for key, row in table.items() if row != {0: 0.5, 1: 0.5}}
    assert len(changed) == 1
    assert next(iter(changed.values()))[1] == pytest.approx(0.8808, abs=1e-4)


def test_a_language_model_leaves_illegal_answers_out() -> None:
    model = LMPolicy.tiny(["p0 Pass Bet p1"], name="player", hidden=16, layers=1, heads=2, max_new_tokens=6)
    _, table = table_of(KUHN, Team(player_0=model, player_1=model))
    assert all(sum(row.values()) == pytest.approx(1.0) for row in table.values())
    assert len(table) == 12


def test_average_weighs_later_policies_more() -> None:
    game, uniform = table_of(KUHN, untrained())
    always = {key: {0: 1.0, 1: 0.0} for key in uniform}
    expected = measure("exploitability", game, [average_policy(game, [uniform, uniform, always], [1.0, 2.0, 3.0])])
    assert measure("average_exploitability", game, [uniform, uniform, always]) == pytest.approx(expected)
    assert measure("average_exploitability", game, [uniform]) == measure("exploitability", game, [uniform])
    assert measure("exploitability", game, [uniform, always]) == measure("exploitability", game, [always])
    assert expected != pytest.approx(measure("exploitability", game, [uniform]))


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("exploitability", True),
        ("average_exploitability", True),
        ("nash_conv", True),
        ("expected_return", False),
        ("average_expected_return", False),
        ("success", False),
        ("score", False),
    ],
)
def test_which_way_is_better(name: str, lower: bool) -> None:
    assert lower_is_better(name) is lower


def test_what_cannot_be_measured_is_said_before() -> None:
    check(["exploitability", "average_nash_conv", "expected_return"], KUHN, untrained())
    check([], make("gymnasium/CartPole-v1"), Team(agent=ScriptedPolicy(make_script("random", {}))))
    with pytest.raises(RecipeError, match="unknown measure 'exploitabilty'; did you mean 'exploitability'"):
        check(["exploitabilty"], KUHN, untrained())
    with pytest.raises(RecipeError, match="unknown measure 'average_return'"):
        check(["average_return"], KUHN, untrained())
    scripted = ScriptedPolicy(make_script("random", {}), name="script")
    with pytest.raises(RecipeError, match="policy 'script' cannot tell its probabilities exactly"):
        check(["nash_conv"], KUHN, Team(player_0=scripted, player_1=scripted))
    with pytest.raises(RecipeError, match="exact measures need an env of OpenSpiel"):
        check(["nash_conv"], make("gymnasium/CartPole-v1"), Team(agent=TabularPolicy(2)))
    hanabi = Team(player_0=TabularPolicy(3, name="a"), player_1=TabularPolicy(3, name="b"))
    with pytest.raises(InputError, match="use nash_conv"):
        check(["exploitability"], make("openspiel/tiny_hanabi"), hanabi)
