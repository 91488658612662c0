"""What of credit and rewards is no signal gives what it gave: budgets, matches, designs; see `tests.frozen`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, write

from palaestra import credit as c
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.credit.anchors import similar
from palaestra.credit.budget import ValueAtStart, rare_success, route
from palaestra.credit.critics import Fresh, PrefixCritic, Replay, TurnCritic, refine
from palaestra.credit.decomposition import ReturnDecomposition, pairwise_logistic
from palaestra.credit.preferences import minimax_winner, pairwise, preference_exploitability, win_rates
from palaestra.credit.probes import probe_scores
from palaestra.credit.repair import hint_prefix, inject, reflections, remember
from palaestra.credit.segments import tree_values
from palaestra.credit.teams import coalition_values, shapley_values
from palaestra.credit.tournaments import Topology, tournament
from palaestra.envs.worlds import Maze
from palaestra.errors import PalaestraError
from palaestra.rewards.combine.mix import dual_ascent
from palaestra.rewards.judged.pairs import bradley_terry, lexicographic_preference, pairs
from palaestra.rewards.match.calls import match_calls
from palaestra.rewards.match.graded import block_share, tier
from palaestra.rewards.match.pairing import call_similarity, matched
from palaestra.rewards.novelty import RunningScale, VisitCounts
from palaestra.rewards.shaping.bilevel import BilevelReward
from palaestra.rewards.shaping.demonstrations import hop_pairs, segment, step_rewards
from palaestra.rewards.shaping.design import ExploRS, design_reward, explicable
from palaestra.rewards.shaping.goals import goal_match, projected_similarity, word_cosine
from palaestra.rewards.shaping.mdp import occupancy, optimal_q, policy_q
from palaestra.testing.signal import sample_turns

FROZEN = Path(__file__).with_name("frozen.json")
CYCLE = np.array([[0.5, 0.9, 0.2], [0.1, 0.5, 0.8], [0.8, 0.2, 0.5]])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def played(iteration: int = 1, missing: float = 0.1) -> Turns:
    turns = sample_turns(rng(iteration), groups=(3, 4, 2), missing=missing, iteration=iteration)
    return turns.filter(pl.col("error").is_null())


def prior(size: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Transitions float64[s, a, s] and rewards in quarters, the last state absorbing."""
    T = rng(1).dirichlet(np.ones(size), (size, 2))
    T[:, 0], T[-1] = np.roll(np.eye(size), 1, axis=1), np.eye(size)[-1]
    return T, np.round(rng(2).normal(size=(size, 2)) * 4) / 4 * (np.arange(size) < size - 1)[:, None]


def of_credit() -> Iterator[tuple[str, Case]]:
    p = np.array([0.0, 0.1, 0.5, 0.5, 0.9, 1.0])
    yield (
        "mixed groups",
        lambda: [c.mixed_group_probability(p, n) for n in (1, 2, 5)] + [rare_success(x, n) for x in p for n in (1, 4)],
    )
    for total in (11, 12, 13, 24, 60):
        for minimum in (1, 2):
            yield f"budget of {total}, {minimum}", lambda t=total, m=minimum: c.allocate_budget(p, t, minimum=m)
    yield (
        "route",
        lambda: [
            route(np.array([[0.5, 0.6, 0.5], [0.2, 0.2, 0.9]]), np.array([0.0, 0.2, 0.5]), beta=b)
            for b in (0.0, 0.5, 2.0)
        ],
    )
    x, solved = np.round(rng().normal(size=(12, 2)) * 2) / 2, (rng(3).random(12) < 0.5).astype(float)
    for kernel in ("linear", "rbf"):
        for pairwise_ in (0.0, 0.25):
            yield (
                f"value at start, {kernel}, {pairwise_}~",
                lambda k=kernel, w=pairwise_: ValueAtStart(kernel=k, pairwise=w).fit(x, solved).predict(x),
            )
    replay = Replay(
        np.array([0, 1, 2, 0, 1]),
        np.array([0, 1, 0, 1, 1]),
        np.array([1.0, 0, 0.5, -1, 2]),
        np.array([1, 2, 2, 0, 1]),
        np.array([False, False, True, False, True]),
    )
    fresh = Fresh(np.array([0, 1, 2, 1]), np.array([1, 0, 0, 1]))
    for gamma, tau, rate in ((0.9, 0.1, 0.5), (0.5, 1.0, 0.25)):
        yield (
            f"turn critic, {gamma}",
            lambda g=gamma, t=tau, a=rate: (
                TurnCritic(3, 2, gamma=g, tau=t, rate=a).fit(replay, fresh, rng(), batches=3, size=4).values(*fresh)
            ),
        )
    for rate in (0.0, 0.5):
        yield (
            f"prefix critic, {rate}",
            lambda a=rate: vars(
                PrefixCritic(rate=a).fit(["s", "s", "t"], [["x", "y"], ["x", "z"], ["x"]], [1.0, 0.0, 0.5])
            ),
        )
    for method in ("rd", "rrd"):
        for average in (False, True):
            yield (
                f"decomposition, {method}, {average}~",
                lambda m=method, a=average: (
                    ReturnDecomposition(2, method=m, average=a, steps=2, ridge=0.1)
                    .add(x, np.repeat(np.arange(4), 3), np.arange(4.0), rng=rng())
                    .predict(x)
                ),
            )
    yield (
        "pairwise logistic",
        lambda: pairwise_logistic(np.arange(6.0) / 2, np.array([1, 0, 1, 1, 0, 0.0]), np.array([0, 0, 0, 1, 1, 2])),
    )
    yield (
        "preferences",
        lambda: [
            win_rates(CYCLE),
            win_rates(CYCLE, exclude_self=False),
            preference_exploitability(np.full(3, 1 / 3), CYCLE),
            pairwise([1, 3, 2], lambda a, b: float(a > b)),
            pairwise([1, 3], lambda a, b: float(a > b) / 2, [2, 4]),
        ],
    )
    yield "minimax~", lambda: [minimax_winner(CYCLE), minimax_winner(np.array([[0.5, 0.75], [0.25, 0.5]]))]
    yield "probe", lambda: probe_scores(np.log([[0.5, 0.25], [0.75, 1.0]]), np.array([[0.5, 1.0], [0.0, 2.0]]))
    yield (
        "tree",
        lambda: [
            tree_values(np.array([-1, 0, 0, 1, 1, 2]), np.array([np.nan, np.nan, np.nan, 1.0, 0.0, 0.5]), best_of=k)
            for k in (None, 1, 2)
        ],
    )
    coalition = lambda team: len(team) ** 2 + 0.25 * ("a" in team)  # noqa: E731
    yield (
        "shapley",
        lambda: [
            coalition_values(coalition, "abc"),
            shapley_values(coalition, "abc"),
            shapley_values(lambda t: float("a" in t and "b" in t) + 0.5 * len(t) ** 2, "abcd", rng=rng(), orders=5),
        ],
    )
    for topology in get_args(Topology):
        for n in (2, 3, 5, 7):
            yield (
                f"tournament, {topology}, {n}",
                lambda t=topology, n=n: tournament(
                    [*map(float, [3, 1, 4, 1, 5, 3, 2][:n])], lambda a, b: (a, b), topology=t, rng=rng()
                ),
            )
    buffer = lambda: remember(remember(None, played(1), last=2, solved=0.25), played(2), last=2, solved=0.25)  # noqa: E731
    for solved_at in (-1.0, 0.0, 0.25, 0.5, 2.0):
        yield (
            f"remembered, {solved_at}",
            lambda s=solved_at: remember(remember(None, played(1), solved=s), played(2), last=2, solved=s).frame.select(
                "episode", "turn", "reward"
            ),
        )
    for k in (1, 2, 3):
        for solved_at in (0.0, 0.5, 9.0):
            yield (
                f"injected, {k}, {solved_at}",
                lambda k=k, s=solved_at: inject(played(3), buffer(), rng(), k=k, solved=s).frame.select(
                    "episode", "turn", "reward"
                ),
            )
    yield "reflections", lambda: [reflections(buffer(), rng(), below=b) for b in (0.1, 0.5, 0.9)]
    yield "hints", lambda: [hint_prefix([1, 2, 3, 4], x) for x in (0, 0.125, 0.25, 0.3, 0.5, 1.0)]
    seen = Turns(
        {
            "episode": [0, 0, 1, 1],
            "group": 0,
            "turn": [0, 1, 0, 1],
            "observation": ["a b c d", "a b c e", "a b c d", "x"],
        }
    )
    for threshold in (0.5, 0.75, 1.0):
        yield f"similar, {threshold}", lambda t=threshold: similar(seen, threshold=t)


def refused(call: Callable[..., Any], *given: Any) -> list[str]:
    """What is said of each of these arguments, which is nothing if they are taken."""
    found = []
    for each in given:
        try:
            call(*each) if isinstance(each, tuple) else call(each)
        except PalaestraError as error:
            found.append(type(error).__name__)
        else:
            found.append("")
    return found


def limits() -> Iterator[tuple[str, Case]]:
    """What is just allowed, and what is just not."""
    unit, half, film = (0.0, 1.0, -0.1, 1.1), np.full((2, 2), 0.5), np.arange(12.0).reshape(6, 2)
    yield "limit of chances", lambda: refused(lambda p: c.allocate_budget(np.array([p, 0.5]), 4), *unit)
    yield "limit of budgets", lambda: refused(lambda *a: c.allocate_budget(half[0], a[0], minimum=a[1]), *MINIMA)
    yield "limit of routed chances", lambda: refused(lambda p: route(half * 0 + p, half[0]), *unit)
    yield "limit of routed costs", lambda: refused(lambda cost: route(half, half[0] * 0 + cost), *unit)
    yield "limit of the value's loss", lambda: refused(lambda w: ValueAtStart(pairwise=w), *unit)
    yield "limit of the value's ridge", lambda: refused(lambda x: ValueAtStart(ridge=x), 0.0, 0.1)
    yield "limit of the value's width", lambda: refused(lambda x: ValueAtStart(width=x), 0.0, 0.1)
    outcomes = ([0.5, 1.0], [0.5, 0.0], [1.0, 1.0])
    yield "limit of solved~", lambda: refused(lambda y: ValueAtStart().fit(half, np.array(y)), *outcomes)
    tables = ((2, 2), (1, 2), (2, 1), (3, 3))
    replay = Replay(np.array([0]), np.array([1]), np.ones(1), np.array([1]), np.array([False]))
    fresh = Fresh(np.array([0]), np.array([1]))
    yield "limit of tables", lambda: refused(lambda *n: TurnCritic(*n).fit(replay, fresh, rng(), batches=1), *tables)
    yield "limit of steps", lambda: refused(lambda n: ReturnDecomposition(2, steps=n), 1, 2)
    yield "limit of ridges", lambda: refused(lambda x: ReturnDecomposition(2, ridge=x), -0.1, 0.0)
    numbers = (np.array([0, 1]), np.array([0, 2]))
    yield (
        "limit of episodes",
        lambda: refused(lambda each: ReturnDecomposition(2).add(half, each, np.ones(2)), *numbers),
    )
    yield "limit of injected", lambda: refused(lambda k: inject(played(3), played(1), rng(), k=k), -1, 0, 1)
    yield (
        "limit of slots",
        lambda: refused(lambda n: next(c.successive_batching(dict, lambda _: ({}, True), slots=n)), 0, 1),
    )
    parents = ([-1, 0], [-1, 1], [0, 0])
    yield "limit of parents", lambda: refused(lambda each: tree_values(np.array(each), np.ones(2)), *parents)
    cuts = ((1, 1), (0, 1), (1, 0), (3, 2), (2, 3), (2, 4), (7, 1))
    yield "limit of cuts", lambda: refused(lambda *n: segment(film, n[0], shortest=n[1]), *cuts)
    films = ([0.0, 1.0], [0.5], [-0.1, 1.0], [0.0, 1.1])
    yield "limit of films", lambda: refused(lambda each: hop_pairs(np.array(each), 2, rng()), *films)
    against = tuple((x, given) for x in (*unit, 0.5) for given in (None, np.array([1.0, 0.0])))
    yield "limit of α", lambda: refused(lambda x, b: projected_similarity(film, np.array([0.0, 1.0]), b, x), *against)
    chances = ((0.0, 1.0), (0.0, -0.1), (0.0, 1.1), (1.0, 1.0), (-0.1, 1.0), (1.1, 1.0), (0.5, 0.9), (0.5, 0.0))
    yield (
        "limit of transitions",
        lambda: refused(
            lambda gamma, p: occupancy(np.array([[[0.0, p], [0.0, 0.0]]] * 2), half, half[0], gamma), *chances
        ),
    )
    yield "limit of queries", lambda: refused(lambda n: refine(lambda *_: 0, lambda *_: 1.0, max_queries=n), 0, 1)
    levels = ((0.5, 1.0), (0.5, 1.1), (0.5, 0.0), (0.5, -0.1))
    yield "limit of levels", lambda: refused(lambda edge, level: tier("cost", edges=(edge,), levels=(level,)), *levels)


MINIMA = ((4, 2), (3, 2), (0, 0), (4, -1), (5, 2))


def of_rewards() -> Iterator[tuple[str, Case]]:
    yield (
        "dual ascent",
        lambda: [
            dual_ascent([0.0, 0.5], np.array(cost), [0.5, 0.5], rate=x)
            for cost in ([0.75, 0.25], [0.5, 0.0])
            for x in (0.5, 4.0)
        ],
    )
    a, b = np.array([[1.0, 2.0, 2.0], [1, 2, 2]]), np.array([[1.0, 2.5, 1.0], [1, 2, 2]])
    yield (
        "lexicographic",
        lambda: [
            lexicographic_preference(x, y, signs=s, margins=m)
            for x, y in ((a, b), (b, a), (a, a))
            for s in (None, (1, -1, 1))
            for m in (None, (0, 0.5, 0), (0, 0.6, 2))
        ],
    )
    yield "pairs", lambda: pairs(played(), col("reward"), col("cost"))
    for ridge in (0.001, 0.5):
        yield (
            f"bradley-terry, {ridge}~",
            lambda x=ridge: bradley_terry(pairs(played(), col("reward"), col("cost")), ridge=x),
        )
    calls = [
        {"name": "f", "arguments": {"x": 1, "y": 2}},
        {"name": "F", "arguments": {"x": 1}},
        {"name": "g"},
        {"name": "f", "arguments": {"x": 2}},
    ]
    yield "calls", lambda: [call_similarity(x, y) for x in calls for y in calls]
    for method in ("optimal", "greedy"):
        yield (
            f"matched calls, {method}",
            lambda m=method: [match_calls(calls[:k], calls[j:], method=m) for k in (0, 2, 4) for j in (0, 1, 4)],
        )
    S = np.array([[0.9, 0.8, 0.0], [0.8, 0.1, 0.0]])
    for how in ("optimal", "greedy", "sinkhorn"):
        yield (
            f"matched, {how}",
            lambda h=how: [
                matched(x, method=h, unmatched=-0.5, temperature=0.2) for x in (S, S.T, S * 0, S[:0], S[:, :0])
            ],
        )
    grid = np.array([[1, 1, 0, 2], [1, 0, 2, 2]])
    yield (
        "blocks",
        lambda: [
            block_share(grid, x, block)
            for x in (grid, grid[::-1], np.where(grid == 2, 1, grid))
            for block in ((1, 1), (2, 2), (1, 2))
        ],
    )
    counts = VisitCounts("state")
    yield (
        "counts",
        lambda: (
            [VisitCounts(k).add(played()).frame[:, -1] for k in ("state", ["agent", "state"])]
            + [len(counts.add(played()))]
        ),
    )
    yield (
        "running scale",
        lambda: (lambda s: [s.add(np.array(v)) for v in ([1.0, 2, np.nan], [4.0], [np.nan], [1.0, 1.0])])(
            RunningScale()
        ),
    )
    T, R = prior()
    policy, start = np.array([[0.25, 0.75]] * 3), np.array([0.5, 0.25, 0.25])
    yield "process", lambda: [policy_q(T, R, policy, 0.9), optimal_q(T, R, 0.9), occupancy(T, policy, start, 0.9)]
    for horizons in ((1, 2), (1, 4)):
        for options in ({}, {"sparsity": 0.1}, {"limit": 0.5}, {"active": [0, 3, 6]}):
            yield f"design, {horizons}, {options}~", lambda h=horizons, o=options: designed(horizons=h, **o)
    yield "explicable~", lambda: [[states, design.reward] for states, design in explicable(*maze()[:2], 0.9, 2)]
    for options in ({}, {"hypergradient": "neumann"}, {"per_state": False}, {"gamma": 0.5}):
        yield f"bilevel, {options}~", lambda o=options: bilevel(**o)
    yield "explored", lambda: explored()
    film = np.cumsum(np.round(rng(5).normal(size=(9, 2)) * 4) / 4, axis=0)
    for steps in (1, 2, 3, 4):
        for by_length in (False, True):
            yield (
                f"segments, {steps}, {by_length}",
                lambda k=steps, w=by_length: [segment(film, k, by_length=w), segment(film, k, shortest=1, by_length=w)],
            )
    yield (
        "step rewards",
        lambda: [step_rewards([film, film[::-1]], k, most=m, alpha=2.0, by_length=True) for k, m in ((2, 32), (3, 3))],
    )
    yield "hops", lambda: hop_pairs(np.round(np.linspace(0, 1, 12) ** 2 * 4) / 4, 9, rng(), bins=4, gaps=2)
    yield (
        "words",
        lambda: [word_cosine(x, y) for x, y in (("a b", "a c"), ("", "a"), ("A b", "b a"), ("red red mug", "red mug"))],
    )
    yield "goals", lambda: goals()
    v = np.array([[1.0, 0.0], [0.5, 0.5], [-1.0, 0.25]])
    yield (
        "projected",
        lambda: [
            projected_similarity(v, np.array([0.0, 1.0]), base, alpha)
            for base, alpha in ((None, 0.0), *((np.array([1.0, 0.5]), x) for x in (0.0, 0.5, 1.0)))
        ],
    )


def goals() -> list[object]:
    one = [("red mug", {"location": "in the fridge", "full": "yes"}), ("blue cup", {})]
    two = [("red cup", {"location": "in the sink"}), ("red cup", {"place": "fridge"})]
    return [goal_match(a, b, decimals=d) for a, b in ((one, two), (two, one), (one, one), ([], one)) for d in (None, 2)]


def maze() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    model = Maze("S......G", bonus={"S": 0.3}).model()
    return model.transitions, model.rewards["reward"], model.start


def designed(**options: Any) -> object:
    """For nobody, and for who walks right three times in four."""
    T, R, start = maze()
    policy = np.tile([0.25, 0.75], (len(T), 1))
    return [
        design_reward(T, R, 0.9, learner=learner, **options).reward
        for learner in (None, (policy, occupancy(T, policy, start, 0.9)))
    ]


def bilevel(**options: Any) -> object:
    T, R = prior()
    made = BilevelReward(T, np.array([0.5, 0.25, 0.25]), R, np.round(rng(7).normal(size=(3, 2)), 1), **options)
    made.step()
    made.step()
    return made.reward


def explored() -> list[np.ndarray]:
    made = ExploRS(3, 2, scale=0.5, most=0.75, rate=0.25)
    state, action, after = np.array([0, 1, 2, 0]), np.array([0, 1, 0, 1]), np.array([1, 2, 2, 0])
    ended, policy, found = np.array([False, False, True, False]), np.array([[0.25, 0.75]] * 3), []
    for _ in range(2):
        found.append(made.reward(state, action, np.ones(4), after, ended))
        made.update(state, action, np.array([2.0, 1.5, 1.0, 0.0]), policy)
    return [*found, made.table, made.value, made.seen]


CASES = dict((*of_credit(), *of_rewards(), *limits()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_it_gives_what_it_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
