"""Leagues: who is met, what pay-offs say, and that opponents do not learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents import Team
from palaestra.agents.scripted import ScriptedPolicy, random_legal
from palaestra.errors import ExpressionError, InputError
from palaestra.evaluation.games import read_game, solve, zero_sum
from palaestra.evaluation.ranking import rank, read_matches
from palaestra.learning.league.payoffs import Payoffs, sides
from palaestra.learning.league.rules import Standing, meta_strategy, read_rule
from palaestra.learning.league.trainer import LeagueTrainer
from palaestra.play.executors import Local, Plan
from palaestra.runs import build
from palaestra.runs.recipe import validate
from palaestra.runs.trainers import trainer_of

CREDIT = 'centre(agent_return(), over=("group", "agent"), unit="episode")'
KUHN: dict[str, Any] = {
    "name": "kuhn",
    "env": {"make": "openspiel/kuhn_poker"},
    "policies": {"one": {"kind": "tabular"}, "dice": {"kind": "random"}},
    "team": {"*": "one"},
    "credit": CREDIT,
    "learn": {"lr": 0.3},
    "train": {"iterations": 4, "groups": 6, "group_size": 2},
}


def trainer(opponents: dict[str, Any] | str, seen: list[pl.DataFrame] | None = None, **changes: Any) -> LeagueTrainer:
    setup = build.resolve(validate(KUHN | {"opponents": opponents} | changes))
    team = setup.team(0, ())
    keep = None if seen is None else lambda _, turns: seen.append(turns.frame)
    made = trainer_of(setup, team, setup.learner(team), Local(), seed=0, corpus=(), on_turns=keep)
    assert isinstance(made, LeagueTrainer)
    return made


def cycle(names: str, wins: float, n: int = 10) -> Payoffs:
    """Rock, paper, scissors and so on: each takes `wins` of n games from the one before it, and draws all others."""
    found = Payoffs(mirrored=True)
    for name in names:
        found.grow(name)
    size = len(names)
    for i in range(size):
        for j in range(i + 1):
            own = np.zeros(n)
            if (i - j) % size == 1:
                own = np.where(np.arange(n) < wins * n, 1.0, -1.0)
            elif (j - i) % size == 1:
                own = np.where(np.arange(n) < wins * n, -1.0, 1.0)
            found.add(i, j, own, -own)
    return found


def standing(payoffs: Payoffs, won: Any = (), scripts: int = 0) -> Standing:
    past = np.arange(len(payoffs.names)) >= scripts
    return Standing(past, payoffs, np.array(won or [0.5] * len(past)))


# -- rules -------------------------------------------------------------------------------------------------------------


def test_rules_weigh_members_as_published() -> None:
    three = standing(cycle("012", 1.0), won=[0.0, 0.5, 0.9])
    assert read_rule("uniform").draw(three).tolist() == [1, 1, 1]
    assert read_rule("uniform(recent=.5)").draw(three).tolist() == [0, 1, 1]
    assert np.allclose(read_rule("pfsp(hard)").draw(three), [1.0, 0.25, 0.01])
    assert np.allclose(read_rule("pfsp(hard, power=1)").draw(three), [1.0, 0.5, 0.1])
    assert np.allclose(read_rule("pfsp(variance)").draw(three), [0.0, 0.25, 0.09])
    assert np.allclose(read_rule("psro(nash)").draw(three), 1 / 3)
    assert np.allclose(read_rule("psro(alpha_rank)").draw(three), 1 / 3)
    assert np.allclose(read_rule("psro('qre(2.)')").draw(three), 1 / 3, atol=1e-6)
    assert read_rule("psro(nash, evaluate=uniform)").answer(three) == pytest.approx([1 / 3] * 3)
    with_script = standing(cycle("s12", 1.0), scripts=1)
    assert read_rule("scripts").draw(with_script).tolist() == [1, 0, 0]
    assert read_rule("uniform(recent=.5)").draw(with_script).tolist() == [1, 0, 1]
    assert read_rule("partners(oldest=.1)").draw(with_script) == pytest.approx([0.3, 0.4, 0.3])
    assert read_rule("uniform").answer(with_script).tolist() == [0, 0.5, 0.5]
    assert read_rule("latest").answer(with_script).tolist() == [0, 0, 1]


def test_the_meta_strategy_leaves_out_who_is_dominated() -> None:
    payoffs = Payoffs(mirrored=True)
    for name in "0123":
        payoffs.grow(name)
    table = np.array([[0, -1, 1, 3], [1, 0, -1, 3], [-1, 1, 0, 3], [-3, -3, -3, 0]])
    for i, j in np.argwhere(np.tri(4)):
        payoffs.add(i, j, np.full(4, float(table[i, j])), np.full(4, -float(table[i, j])))
    met = read_rule("psro(nash)").draw(standing(payoffs))
    assert met == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-9)
    assert read_rule("psro(nash)").answer(standing(payoffs)) == pytest.approx(met)


@pytest.mark.parametrize("unplayed", [(2, 1), (1, 1)])
def test_the_answer_is_a_mixture_where_a_pair_has_not_played(unplayed: tuple[int, int]) -> None:
    """A past self who has not met all has no share; with one left, all had 1."""
    table, won = Payoffs(mirrored=True), np.array([1.0, -1.0])
    for name in ("0", "10", "20"):
        table.grow(name)
    for pair in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)):
        if pair != unplayed:
            table.add(*pair, won, -won)
    answer = read_rule("psro(nash)").answer(Standing(np.ones(3, bool), table, np.full(3, 0.5)))
    assert answer.sum() == pytest.approx(1.0)
    assert answer[list(unplayed)].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("psro(nsh)", "unknown solver 'nsh'; did you mean 'nash'"),
        ("unifrm", "unknown matchmaking 'unifrm'; did you mean 'uniform'"),
        ("uniform(recent=0)", r"recent=0"),
        ("partners(oldest=2)", r"oldest=2"),
        ("pfsp(hrd)", r"weighting='hrd'; did you mean 'hard'"),
        ("pfsp(power=-1)", r"power=-1"),
    ],
)
def test_what_is_wrong_in_a_rule_is_named(text: str, complaint: str) -> None:
    with pytest.raises((ExpressionError, InputError), match=complaint):
        read_rule(text)


# -- pay-offs ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.floats(-5, 5), min_size=2, max_size=9), min_size=3, max_size=3))
def test_pay_offs_are_means_with_students_interval(returns: list[list[float]]) -> None:
    payoffs = Payoffs(mirrored=True)
    payoffs.grow("0")
    payoffs.grow("1")
    for (row, column), own in zip([(0, 0), (1, 0), (1, 1)], map(np.array, returns), strict=True):
        payoffs.add(row, column, own, -own)
    own = np.array(returns[1])
    row = payoffs.table().filter(member="1", opponent="0").to_dicts()[0]
    assert (row["mean"], row["n"]) == (pytest.approx(own.mean()), len(own))
    if own.std() > 1e-3:  # sums of squares cancel below that
        low, high = scipy.stats.t.interval(0.95, len(own) - 1, own.mean(), scipy.stats.sem(own))
        assert (row["low"], row["high"]) == (pytest.approx(low, rel=1e-4), pytest.approx(high, rel=1e-4))
    assert payoffs.mean()[0, 1] == pytest.approx(-payoffs.mean()[1, 0])
    assert np.diag(payoffs.mean()).tolist() == [0, 0], "one policy in both seats wins nothing from itself"
    assert payoffs.game().constant_sum() == pytest.approx(0)


def test_the_files_are_read_by_rank_and_solve(tmp_path: Path) -> None:
    cycle("012", 0.8).write(tmp_path)
    found = solve(read_game(tmp_path / "payoffs.json"), "nash", draws=20)
    assert found.game.players == ("learner", "opponent")
    assert found.profile[0] == pytest.approx([1 / 3] * 3)
    assert found.gap_interval is not None
    drawn = found.game.draw(np.random.default_rng(0)).payoffs[0]
    assert drawn == pytest.approx(-drawn.T), "an episode is one of both cells that mirror each other"
    ranked = rank(read_matches(tmp_path / "matches.csv"), "bradley_terry", resamples=100)
    assert ranked.table["n"].to_list() == [20, 20, 20]
    assert ranked.table["score"].to_numpy() == pytest.approx(1000)
    table = pl.read_csv(tmp_path / "payoffs.csv")
    assert table.columns == ["member", "opponent", "mean", "low", "high", "n"]
    assert table["mean"].to_list() == pytest.approx([0, -0.6, 0.6, 0.6, 0, -0.6, -0.6, 0.6, 0])


def test_nothing_is_written_while_nobody_has_played(tmp_path: Path) -> None:
    Payoffs().write(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"set opponents[.]matches"):
        Payoffs().game()


def test_sides_leave_out_failed_episodes_and_count_seats_alike() -> None:
    rows = [
        (0, 0, "a", 1.0, None), (0, 0, "a", 2.0, None), (0, 0, "b", -1.0, None), (0, 0, "c", -3.0, None),
        (0, 1, "a", 9.0, "env: broken"), (0, 1, "b", 9.0, None), (1, 0, "b", 1.0, "skipped: policy: late"),
    ]  # fmt: skip
    turns = pl.DataFrame(rows, schema=["group", "episode", "agent", "reward", "error"], orient="row")
    own, other = sides(turns, ("b", "c"))
    assert (own.tolist(), other.tolist()) == ([3.0, 0.0], [-2.0, 1.0]), "who had no turn was lost with its episode"


def test_a_game_that_ends_at_its_first_move_counts() -> None:
    """Kuhn poker takes what is no move for a loss of 2; the other side has no turn then."""
    lost = ScriptedPolicy(lambda request: "hm", name="lost")
    made = trainer({"every": 1, "matches": 2})
    for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
        frame = Local().play(made.env, Team({seat: lost, other: random_legal()}), Plan(groups=4)).frame
        own, theirs = sides(frame, [other])
        assert (own.tolist(), theirs.tolist()) == ([-2.0] * 4, [2.0] * 4)


# -- play --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def league() -> LeagueTrainer:
    return trainer({"method": "uniform", "every": 1, "matches": 4, "scripts": ["dice"], "floor": 0.2})


def test_opponents_do_not_learn_and_are_told_apart(league: LeagueTrainer) -> None:
    seen: list[pl.DataFrame] = []
    league.on_turns = lambda _, turns: seen.append(turns.frame)
    before = {name: each.clone() for name, each in league.team.learnable["one"].state_dict().items()}
    lines = league.run()
    frame = pl.concat([each.select("iteration", "group", "agent", "policy", "opponent") for each in seen])
    frame = frame.with_columns(pl.col("agent", "policy").cast(pl.String)).unique()
    assert frame.group_by("iteration", "group").agg(pl.col("opponent").n_unique())["opponent"].max() == 1
    met = frame.filter(pl.col("policy") != "one")
    assert len(met) == 24, "one seat of every group is an opponent's"
    expected = pl.when(pl.col("opponent") == "dice").then(pl.lit("dice")).otherwise("one@" + pl.col("opponent"))
    assert met.select(same=pl.col("policy") == expected)["same"].all()
    seats = met.select("iteration", "group", "agent").sort("iteration", "group")
    assert [f"player_{1 - (i + g) % 2}" for i, g, _ in seats.iter_rows()] == seats["agent"].to_list()
    assert lines[0]["opponents"].keys() <= {"dice", "0"}
    assert sum(lines[-1]["opponents"].values()) == 6
    assert all(list(line["policies"]) == ["one"] for line in lines)
    start: Any = league.league.past["0"]["one"]
    assert torch.equal(start.state_dict()["logits"], before["logits"])
    assert league.league.members == ["dice", "0", "1", "2", "3", "4"]
    assert not torch.equal(league.team.learnable["one"].state_dict()["logits"], before["logits"])


def test_groups_keep_their_numbers_sizes_and_seeds(league: LeagueTrainer) -> None:
    league._enter(1)
    league.league.snapshot(1, league.env, league.executor)
    plan = Plan(groups=range(2, 9), group_size=[1, 2, 3, 1, 2, 3, 1], seed=3, iteration=5, env_seeds=[None, *range(6)])
    plain = Local().play(league.env, league.team, plan).frame
    played = league.league.play(league.env, plan, Local()).frame
    for frame in (plain, played):
        assert frame["group"].is_sorted()
    firsts = [
        frame.group_by("group", maintain_order=True).agg(pl.col("seed").first(), pl.col("episode").n_unique())
        for frame in (plain, played)
    ]
    assert firsts[0].equals(firsts[1])
    assert played["opponent"].n_unique() > 1


def test_draws_follow_the_rule_and_the_floor() -> None:
    made = trainer({"method": "latest", "every": 1, "matches": 0, "scripts": ["dice"], "floor": 0.4})
    assert made.league.probabilities().tolist() == pytest.approx([0.4, 0.6])
    made.run()
    assert made.league.probabilities().tolist() == pytest.approx([0.4 / 6] * 6 + [0.6])
    drawn = [member for at in range(400) for _, member in made.league._draw(Plan(5, iteration=at))]
    assert np.bincount(drawn) / len(drawn) == pytest.approx(made.league.probabilities(), abs=0.03)


def test_prioritised_play_counts_wins_since_the_last_snapshot() -> None:
    made = trainer({"method": "pfsp(hard)", "every": 9, "matches": 0})
    made._enter(1)
    assert made.league._standing().won.tolist() == [0.5]
    made.league.recent[:] = [[5.0], [6.0]]
    assert made.league._standing().won.tolist() == [6 / 8]
    made.league.recent[:] = 0.0
    made.run()
    assert made.league.recent[1].tolist() == [48.0], "4 iterations of 6 groups of 2"


def test_matches_are_played_in_both_seats() -> None:
    made = trainer({"method": "psro(nash)", "every": 1, "matches": 6, "scripts": ["dice"]})
    made.run()
    n = made.league.payoffs.sums["n"]
    assert n[1:].min() == n[1:].max() == 6
    assert n[0].tolist() == [0, 6, 6, 6, 6, 6], "a script has no need to meet itself"
    fixed = trainer({"method": "uniform", "every": 2, "matches": 6, "seats": ["player_1"]})
    fixed.run()
    assert fixed.league.payoffs.sums["n"].tolist() == [[6] * 3] * 3
    assert fixed.league.payoffs.mean()[0, 1] != -fixed.league.payoffs.mean()[1, 0]


def test_two_policies_have_a_past_each() -> None:
    seen: list[pl.DataFrame] = []
    policies = {"one": {"kind": "tabular"}, "two": {"kind": "tabular"}}
    made = trainer({"every": 1, "matches": 2}, seen, policies=policies, team={"player_0": "one", "player_1": "two"})
    made.run()
    names = pl.concat([each.select("agent", "policy").cast(pl.String) for each in seen]).unique().rows()
    assert {agent for agent, name in names if name.startswith("two")} == {"player_1"}
    assert {name for _, name in names} >= {"one", "two", "one@0", "two@0"}
    assert made.league.as_team("2")["player_1"].name == "two@2"


def test_workers_play_the_same() -> None:
    part = {"method": "uniform", "every": 1, "matches": 4, "scripts": ["dice"]}
    play = {"play": {"executor": "local()", "shards": 2}}
    teams = []
    for executor in ("local()", "processes(workers=1)"):
        setup = build.resolve(validate(KUHN | play | {"opponents": part, "play": {"executor": executor, "shards": 2}}))
        team, runner = setup.team(0, ()), setup.executor()
        made = trainer_of(setup, team, setup.learner(team), runner, seed=0, corpus=())
        made.run()
        runner.close()
        teams.append(team.state_dict()["one"]["logits"])
    assert torch.equal(*teams)


def test_a_standing_is_of_games_since_the_snapshot_and_of_the_newest_past_self() -> None:
    """(points + 1) / (games + 2): a win is a point, a draw half of one."""
    made = trainer({"method": "pfsp(hard)", "every": 1, "matches": 0, "scripts": ["dice"]}).league
    rewards = {"player_0": [1.0, 1.0, 0.0, -1.0], "player_1": [-1.0, -1.0, 0.0, 1.0]}
    played = pl.DataFrame(
        [
            {"group": game, "episode": 0, "turn": 0, "agent": seat, "reward": paid[game], "error": None}
            for seat, paid in rewards.items()
            for game in range(4)
        ],
        schema_overrides={"error": pl.String},
    )
    made._note(0, played, ("player_1",))
    assert made.recent.tolist() == [[2.5], [4.0]]
    assert made._standing().won.tolist() == [pytest.approx(3.5 / 6)]
    made.past["0"] = {}
    made.payoffs.grow("0")
    made.recent = np.zeros((2, 2))
    made._note(0, played, ("player_1",))
    made.payoffs.add(1, 0, np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]))  # won, drawn, lost
    assert made._standing().won.tolist() == [pytest.approx((2.5 + 1.5 + 1) / (4 + 3 + 2)), 0.5]


def test_of_a_joint_distribution_each_player_plays_its_marginal() -> None:
    game = zero_sum(np.array([[1.0, -1.0], [0.0, 2.0]]))
    joint = np.array([[0.4, 0.3], [0.2, 0.1]])
    first, second = meta_strategy(game, lambda game: joint, "joint")
    assert (first, second) == (pytest.approx([0.7, 0.3]), pytest.approx([0.6, 0.4]))
    first, second = meta_strategy(game, lambda game: ([2.0, 2.0], [-1.0, 3.0]), "apart")
    assert (first, second) == (pytest.approx([0.5, 0.5]), pytest.approx([0.0, 1.0]))
