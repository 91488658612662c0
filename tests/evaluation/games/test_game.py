"""Games: regrets and gaps by hand, solvers against each other, estimates from turns, and bad input."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.evaluation.games import (
    SOLVERS,
    Game,
    empirical_game,
    game_tree,
    psro,
    read_solver,
    risk_averse_response,
    solve,
    zero_sum,
)
from palaestra.evaluation.games.dynamics import shor, uniform_mixtures
from palaestra.evaluation.games.linear import nash_mixtures
from palaestra.evaluation.games.psro import payoffs_between
from palaestra.evaluation.games.risk import risk_averse_equilibrium

RPS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
UNEVEN = np.array([[0.0, -1, 2], [1, 0, -1], [-2, 1, 0]])
CHICKEN = Game((np.array([[6.0, 2], [7, 0]]), np.array([[6.0, 7], [2, 0]])))
STAG = np.array([[5.0, -10], [3, 2]])
MATRICES = arrays(float, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(-5, 5).map(float))


def pure(size: int, k: int) -> np.ndarray:
    return np.asarray(np.eye(size)[k])


def test_regret_of_a_pure_profile() -> None:
    game = zero_sum(RPS)
    assert game.regret([pure(3, 0), pure(3, 1)]).tolist() == [2.0, 0.0]
    assert game.exploitability([pure(3, 0), pure(3, 1)]) == 1.0
    assert game.value([pure(3, 0), pure(3, 1)]).tolist() == [-1.0, 1.0]


def test_a_mixture_of_whole_profiles_is_not_the_average_of_its_parts() -> None:
    profiles = [[pure(2, 0), pure(2, 1)], [pure(2, 1), pure(2, 0)]]
    assert CHICKEN.cce_gap(profiles) == pytest.approx(-0.5)
    average = [np.full(2, 0.5), np.full(2, 0.5)]
    assert CHICKEN.cce_gap([average]) == pytest.approx(0.25)
    assert zero_sum(RPS).cce_gap([[pure(3, k), pure(3, k)] for k in range(3)]) == pytest.approx(0.0)
    assert zero_sum(RPS).cce_gap([[pure(3, 0), pure(3, 0)]]) == 1.0, "one profile: the Nash gap"
    assert CHICKEN.cce_gap(profiles, [1.0, 0.0]) == CHICKEN.cce_gap(profiles[:1])


@given(MATRICES)
def test_nash_leaves_nothing_to_gain_and_its_value_is_the_duals(matrix: np.ndarray) -> None:
    game = zero_sum(matrix)
    profile = nash_mixtures(game)
    assert abs(game.exploitability(profile)) < 1e-8
    assert (matrix.T @ profile[0]).min() == pytest.approx((matrix @ profile[1]).max(), abs=1e-8)


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-6, 1e9, 1e15])
def test_the_unit_of_payoffs_does_not_matter(scale: float) -> None:
    """What a linear program neglects is absolute: 1e-9 was nothing, and 1e15 an error of its own."""
    game = zero_sum(UNEVEN * scale + 3 * scale)
    tree = solve(game_tree(game), "nash").profile
    for found in (*nash_mixtures(game), *solve(game, "cce").mixtures(), *tree.T):
        np.testing.assert_allclose(found, [0.25, 0.5, 0.25], atol=1e-9)
    both = Game((CHICKEN.payoffs[0] * scale, CHICKEN.payoffs[1] * scale))
    np.testing.assert_allclose(solve(both, "cce").profile, solve(CHICKEN, "cce").profile, atol=1e-9)


def test_a_program_that_is_not_solved_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scipy.optimize, "linprog", lambda *_, **__: SimpleNamespace(x=None, message="no luck"))
    with pytest.raises(InputError, match="nash: the linear program was not solved: no luck"):
        nash_mixtures(zero_sum(RPS))


@given(MATRICES, MATRICES)
def test_the_best_cce_has_no_gap_and_at_least_the_welfare_of_a_pure_equilibrium(a: np.ndarray, b: np.ndarray) -> None:
    rows, columns = min(a.shape[0], b.shape[0]), min(a.shape[1], b.shape[1])
    game = Game((a[:rows, :columns], b[:rows, :columns]))
    found = solve(game, "cce")
    assert found.correlated
    assert found.gap < 1e-8
    total = game.payoffs[0] + game.payoffs[1]
    for r, c in np.ndindex(game.shape):
        if game.exploitability([pure(rows, r), pure(columns, c)]) <= 0:
            assert found.value.sum() >= total[r, c] - 1e-8


@given(MATRICES, st.floats(0, 3))
def test_a_quantal_response_is_a_softmax_of_its_own_payoffs(matrix: np.ndarray, rationality: float) -> None:
    game = zero_sum(matrix)
    x, y = solve(game, f"qre({rationality})").profile
    expected = np.exp(rationality * (matrix @ y - (matrix @ y).max()))
    np.testing.assert_allclose(x, expected / expected.sum(), atol=1e-7)


@pytest.mark.parametrize("rationality", [5.0, 20.0, 100.0, 1000.0])
def test_the_branch_from_uniform_ends_where_risk_is_least(rationality: float) -> None:
    """In a stag hunt the branch goes to the hare, and to the better of two ways to meet however slightly it is so."""
    for own in (np.array([[4.0, 0], [3, 3]]), np.diag([1.0, 1 + 1e-4])):
        x, y = solve(Game((own, own.T)), f"qre({rationality})").profile
        assert min(x[1], y[1]) > 0.98
    apart = solve(Game((np.eye(2), np.eye(2))), f"qre({rationality})").profile
    np.testing.assert_allclose(apart, 0.5, atol=1e-9)  # where neither is, it stays between them


def test_the_branch_jumps_only_where_it_turns_back() -> None:
    rng = np.random.default_rng(0)
    for _ in range(4):
        own = rng.normal(size=(2, 3, 3)) + 2 * np.eye(3)
        path = [np.concatenate(solve(Game(tuple(own)), f"qre({x})").profile) for x in np.arange(0.2, 4, 0.2)]
        assert (np.abs(np.diff(path, axis=0)).max(axis=1) > 0.5).sum() <= 1


@pytest.mark.parametrize(
    ("by", "most"),
    [("nash", 1e-9), ("nash_averaging", 1e-6), ("replicator", 0.05), ("fictitious_play", 0.05), ("cfr(plus)", 0.01),
     ("qre(50.)", 0.05)],
)  # fmt: skip
def test_solvers_come_close_to_the_equilibrium_of_a_zero_sum_game(by: str, most: float) -> None:
    assert zero_sum(UNEVEN).exploitability(solve(zero_sum(UNEVEN), by).profile) <= most


def test_the_caution_about_shor() -> None:
    """Centred on the mean payoff, it is no equilibrium solver; centred on the value, it is close to one."""
    assert solve(zero_sum(UNEVEN), "shor").gap == pytest.approx(0.739, abs=1e-3)
    assert solve(zero_sum(UNEVEN), "shor(centre=value)").gap < 0.02


def test_in_training_shor_is_cautious_from_75_strategies_on() -> None:
    """There the schedules of blend, temperature, momentum and diversity of the paper have reached their ends."""
    game = zero_sum(np.random.default_rng(0).normal(size=(76, 76)))
    ends = {"blend": 0.05, "temperature": 0.01, "momentum": 0.5, "diversity": 0.001}
    for found, wanted in zip(
        read_solver("shor(training, 20)")(game), shor(game, 20, **ends, average=True), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_every_solver_is_listed_with_one_line() -> None:
    assert {"nash", "cce", "cfr", "replicator", "risk_averse", "qre", "alpha_rank", "shor"} <= set(SOLVERS)
    with pytest.raises(ExpressionError, match="nash"):
        read_solver("nahs")


def test_alpha_rank_is_that_of_the_ranking() -> None:
    from palaestra.evaluation.ranking.alpha_rank import alpha_rank

    np.testing.assert_array_equal(solve(CHICKEN, "alpha_rank").profile, alpha_rank(list(CHICKEN.payoffs)))


# -- risk -------------------------------------------------------------------------------------------------------------


def test_risk_averse_responses_of_the_stag_hunt() -> None:
    mean, cov = np.array([4.25, 2.95]), np.array([[10.6875, 0.7125], [0.7125, 0.0475]])
    found = [risk_averse_response(mean, cov, lam)[0] for lam in (0.0, 0.05, 0.1, 0.2)]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.6267, 0.2777], atol=1e-4)


@pytest.mark.parametrize(("lam", "risky"), [(0.0, 1.0), (0.05, 1.0), (0.07, 0.0), (0.1, 0.0)])
def test_fictitious_play_moves_from_payoff_to_risk_dominance(lam: float, risky: float) -> None:
    start = (np.array([0.99, 0.01]),) * 2
    x, _ = risk_averse_equilibrium(Game((STAG, STAG.T)), lam, 0.05, start=start)
    assert x[0] == pytest.approx(risky, abs=0.01)


@given(arrays(float, 4, elements=st.floats(-3, 3)), arrays(float, (4, 3), elements=st.floats(-2, 2)), st.floats(0, 2))
def test_no_other_mixture_is_a_better_risk_averse_response(mean: np.ndarray, root: np.ndarray, lam: float) -> None:
    cov = root @ root.T

    def worth(x: np.ndarray) -> float:
        return float(x @ mean - lam * x @ cov @ x)

    x = risk_averse_response(mean, cov, lam)
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1)
    others = np.random.default_rng(0).dirichlet(np.full(4, 0.5), 200)
    assert worth(x) >= max(map(worth, [*others, *np.eye(4)])) - 1e-6


def test_risk_is_the_variance_of_a_return() -> None:
    game = Game((STAG, STAG.T), variance=(np.full((2, 2), 4.0), np.zeros((2, 2))))
    np.testing.assert_allclose(game.risk([pure(2, 0), np.full(2, 0.5)]), [7.5**2 + 4.0, 1.0])


# -- from turns -------------------------------------------------------------------------------------------------------


def played(rng: np.random.Generator, matrix: np.ndarray, episodes: int, noise: float = 1.0) -> Turns:
    """Episodes of two agents with a strategy each; what the first gets, the second loses."""
    cells: np.ndarray = np.array(list(np.ndindex(matrix.shape)) * episodes)
    x = matrix[cells[:, 0], cells[:, 1]] + noise * rng.normal(size=len(cells))
    rows: dict[str, list[Any]] = {name: [] for name in ("group", "episode", "turn", "agent", "policy", "reward")}
    for e, ((r, c), gain) in enumerate(zip(cells, x, strict=True)):
        for agent, strategy, reward in (("a", f"r{r}", gain), ("b", f"c{c}", -gain)):
            for turn, part in enumerate((0.25, 0.75)):
                for name, value in zip(rows, (e, 0, turn, agent, strategy, reward * part), strict=True):
                    rows[name].append(value)
    return Turns(rows)


def test_payoffs_and_errors_are_means_of_returns() -> None:
    turns = played(np.random.default_rng(0), UNEVEN, 50)
    game = empirical_game(turns)
    assert game.players == ("a", "b")
    assert game.strategies[0] == ("r0", "r1", "r2")
    frame = turns.frame.filter(pl.col("agent") == "a").group_by("group").agg(pl.col("reward").sum())
    pair = turns.frame.group_by("group").agg(pl.col("policy").unique().sort())
    own = frame.join(pair, on="group").filter(pl.col("policy") == ["c2", "r0"])["reward"]
    assert game.payoffs[0][0, 2] == pytest.approx(own.mean())
    assert game.error is not None
    assert game.error[0][0, 2] == pytest.approx(own.std() / np.sqrt(50))  # type: ignore[operator]
    assert game.constant_sum() == pytest.approx(0.0)


def test_the_interval_of_the_gap_covers_what_a_deviator_gains_in_truth() -> None:
    truth, covered, wide = zero_sum(UNEVEN), 0, []
    for seed in range(20):
        found = solve(empirical_game(played(np.random.default_rng(seed), UNEVEN, 12)), "nash", draws=40, seed=seed)
        low, high = found.gap_interval or (np.nan, np.nan)
        covered += low <= truth.exploitability(found.profile) <= high
        wide.append(high - low)
    assert covered >= 17
    assert 0.1 < float(np.mean(wide)) < 1.5


@pytest.mark.parametrize("by", ["uniform", "nash", "cce"])
def test_the_interval_covers_that_nobody_gains_where_strategies_are_alike(by: str) -> None:
    """The best of several equal strategies seems to gain: 95 % of the intervals must not believe it."""
    covered = 0
    for seed in range(20):
        mean = np.random.default_rng(seed).normal(size=(4, 4))
        errors = np.ones((4, 4, 1, 1)) * np.array([[1.0, -1], [-1, 1]])
        game = Game((mean, -mean), covariance=errors, count=np.full((4, 4), 50))
        low, high = solve(game, by, draws=30).gap_interval or (np.nan, np.nan)
        covered += low <= 0 <= high
    assert covered >= 18


def test_the_interval_of_a_clear_gap_lies_above_0() -> None:
    errors = np.full((3, 3, 1, 1), 0.01) * np.array([[1.0, -1], [-1, 1]])
    found = solve(Game((UNEVEN, -UNEVEN), covariance=errors, count=np.full((3, 3), 50)), "uniform")
    assert found.gap_interval is not None
    assert 0.1 < found.gap_interval[0] < found.gap < found.gap_interval[1] < 0.6


def test_cells_that_mirror_each_other_are_drawn_once() -> None:
    errors = np.ones((2, 3, 1, 1)) * np.array([[1.0, 0.5], [0.5, 2.0]])
    names = (("b", "c"), ("a", "b", "c"))
    game = Game((np.zeros((2, 3)),) * 2, strategies=names, covariance=errors, count=np.full((2, 3), 9), mirrored=True)
    own, other = game.draw(np.random.default_rng(0)).payoffs
    assert (own[1, 1], other[1, 1]) == (other[0, 2], own[0, 2])
    assert len(np.unique(np.abs([own, other]))) == 10
    with pytest.raises(InputError, match="mirrored is of two players"):
        Game((np.zeros((2, 3)),) * 2, mirrored=True, strategies=(("d", "c"), names[1]))


def test_episodes_of_one_group_are_one_draw() -> None:
    rng = np.random.default_rng(1)
    x = np.repeat(rng.normal(size=40), 5)
    rows = {"group": np.repeat(np.arange(40), 5), "episode": np.tile(np.arange(5), 40), "turn": np.zeros(200, int)}
    game = empirical_game(Turns({**rows, "agent": ["a"] * 200, "policy": ["p"] * 200, "reward": x}))
    assert game.error is not None
    assert game.error[0][0] == pytest.approx(x.std() / np.sqrt(39), rel=1e-6)


def test_a_cell_of_one_group_among_others_has_no_error() -> None:
    """It said nothing about the spread between groups, and took what the other cells say about it, too."""
    rng = np.random.default_rng(0)
    cell = np.repeat([0, 0, 0, 1], 10)
    x = np.repeat(rng.normal(size=4), 10)
    rows = {"group": np.repeat(np.arange(4), 10), "episode": np.tile(np.arange(10), 4), "agent": ["a"] * 40}
    turns = Turns({**rows, "policy": cell.astype(str), "reward": x})
    game = empirical_game(turns)
    assert game.error is not None
    np.testing.assert_allclose(game.error[0], [x[:30:10].std(ddof=1) / np.sqrt(3), np.nan])
    with pytest.raises(InputError, match=r"cell \(1\) has .* of one group"):
        solve(game, "uniform")
    alone = empirical_game(turns.filter(pl.col("group").is_in([0, 3]))).count
    assert alone is not None
    assert alone.tolist() == [10, 10]


@pytest.mark.parametrize("column", ["run", "system", "trial", "seed"])
def test_episodes_of_one_number_are_apart_where_a_column_tells(column: str) -> None:
    turns = played(np.random.default_rng(0), UNEVEN, 3)
    twice = pl.concat([turns.frame.with_columns(pl.lit(str(k)).alias(column)) for k in range(2)])
    one, two = empirical_game(turns), empirical_game(Turns(twice))
    assert one.count is not None
    assert two.variance is not None
    np.testing.assert_allclose(two.payoffs, one.payoffs)
    np.testing.assert_allclose(np.array(two.variance) * 5, np.array(one.variance) * 4)


def test_episodes_that_failed_and_names_of_columns_do_not_matter() -> None:
    turns = played(np.random.default_rng(0), UNEVEN, 4).with_column(error=pl.lit(None, pl.String))
    broken = turns.with_column(error=pl.when(pl.col("group") == 0).then(pl.lit("env: broken")))
    expected = empirical_game(turns.filter(pl.col("group") != 0)).payoffs
    for name in ("policy", "x", "e", "g", "n"):
        np.testing.assert_allclose(
            empirical_game(broken.with_column(**{name: pl.col("policy")}), name).payoffs, expected
        )
    assert empirical_game(turns, "agent").shape == (1, 1)


# -- populations ------------------------------------------------------------------------------------------------------


def test_the_double_oracle_finds_the_equilibrium_of_a_matrix() -> None:
    found = psro(zero_sum(UNEVEN), start=[pure(3, 0), pure(3, 0)])
    assert found[-1].gap < 1e-9
    np.testing.assert_allclose(found[-1].blend()[0], [0.25, 0.5, 0.25], atol=1e-9)
    with pytest.raises(InputError, match="iterations=-1"):
        psro(zero_sum(UNEVEN), iterations=-1)


@pytest.mark.parametrize("by", ["cce", "alpha_rank"])
def test_populations_take_the_marginals_of_a_joint_distribution(by: str) -> None:
    game = zero_sum(np.array([[0.0, -1, -1], [1, 0, -1], [1, 1, 0]]))  # the last strategy dominates
    for slots in (f"{by}, nash", f"nash, {by}", by):
        profile = solve(game, f"psro({slots})").profile
        np.testing.assert_allclose([x.sum() for x in profile], 1.0)
    np.testing.assert_allclose(profile, [pure(3, 2)] * 2, atol=1e-6)


def test_payoffs_between_populations_are_products() -> None:
    rng = np.random.default_rng(0)
    game = Game(tuple(rng.normal(size=(3, 2, 3, 2))))
    strategies = [list(rng.dirichlet(np.ones(size), 4)) for size in game.shape]
    found = payoffs_between(game, strategies)
    profile = [own[k] for own, k in zip(strategies, (1, 3, 2), strict=True)]
    np.testing.assert_allclose([table[1, 3, 2] for table in found.payoffs], game.value(profile))


def test_two_solver_slots_on_kuhn_poker() -> None:
    """The gap after 8 iterations, with the evaluation cut to 1,500 inner steps."""
    pytest.importorskip("pyspiel")
    from palaestra.evaluation.games import openspiel_tree

    tree = openspiel_tree("kuhn_poker")
    train, evaluate = read_solver("shor(training)"), read_solver("shor(evaluation, 1500)")
    found = psro(tree, train=train, evaluate=evaluate, iterations=8)
    assert found[8].gap == pytest.approx(0.0096, abs=1e-4)
    assert psro(tree, train=train, iterations=8)[-1].gap < 1e-9, "a linear program in the evaluation's slot"
    assert psro(tree, iterations=8)[-1].gap < 1e-9
    assert psro(tree, train=uniform_mixtures, evaluate=uniform_mixtures, iterations=12)[-1].gap > 0.05


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Game((np.array([[1.0, np.nan]]), np.zeros((1, 2)))), r"player_0 at \(player_0=0, player_1=1\) is nan"),
        (lambda: Game((np.zeros((2, 2)), np.zeros((2, 3)))), "one of the same shape"),
        (lambda: Game((np.zeros(3), np.zeros(3))), "one axis per player"),
        (lambda: Game((np.zeros((2, 2)),) * 2, strategies=(("a",), ("b", "c"))), "strategy names"),
        (lambda: Game((np.zeros((2, 2)),) * 2, covariance=np.zeros((2, 2))), "covariance has shape"),
        (lambda: zero_sum(RPS).value([np.ones(3), pure(3, 0)]), "mixture of player_0 is no distribution"),
        (lambda: zero_sum(RPS).value([pure(2, 0), pure(3, 0)]), "mixtures of shapes"),
        (lambda: solve(CHICKEN, "nash"), r"not zero- or constant-sum: payoffs add up to 0 at 1 × 1 and 12 at 0 × 0"),
        (lambda: solve(CHICKEN, "nash_averaging"), "not zero- or constant-sum"),
        (lambda: solve(Game((np.zeros((2, 2, 2)),) * 3), "nash"), "two players are needed, not 3"),
        (lambda: solve(CHICKEN, "qre(-1.)"), "rationality"),
        (lambda: solve(CHICKEN, "risk_averse(.1, .6)"), "tremble"),
        (lambda: CHICKEN.cce_gap([]), "at least one profile"),
        (lambda: solve(CHICKEN, "risk_averse(start=[[1., 0.], [1.]])"), "mixtures of shapes"),
        (lambda: solve(CHICKEN, "risk_averse(start=[[1., 0.], [1., 1.]])"), "is no distribution"),
        (lambda: solve(CHICKEN, "shor(steps=0)"), "shor: steps=0 must be at least 1"),
        (lambda: solve(CHICKEN, "replicator(steps=0)"), "replicator: steps=0 must be at least 1"),
    ],
)
def test_bad_input_is_named_before_any_work(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_cells_that_nobody_played_are_named() -> None:
    turns = played(np.random.default_rng(0), UNEVEN, 2)
    some = turns.filter(~((pl.col("group") % 9) == 5))
    with pytest.raises(InputError, match=r"nobody played \(a=r1, b=c2\); 1 of 9 cells"):
        empirical_game(some)
    with pytest.raises(InputError, match="no episode, or all have failed"):
        empirical_game(turns.with_column(error=pl.lit("env: broken")))
    with pytest.raises(InputError, match="2 values of 'reward' in one episode"):
        empirical_game(turns, by="reward")
    with pytest.raises(InputError, match=r"\(r0, c0\) has one episode, or .* of one group"):
        solve(empirical_game(played(np.random.default_rng(0), UNEVEN, 1)))
