"""Every audit on small walks, loops and processes gives what it gave; see `tests.frozen`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, texts, write

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation import audits as a
from palaestra.evaluation.audits import cycles, distance, growth, telescoping
from palaestra.evaluation.audits.components import episode_sums
from palaestra.evaluation.audits.repeats import candidates

FROZEN = Path(__file__).with_name("frozen.json")
REWARDS = texts("""
    reward | score | r_one + r_two | 10 * r_one | shape(score, gamma=0.9) | shape(score) | delta(score) | 0 * score |
    count_bonus(state) | col('state') * 0.25 - 0.5 | once(r_two, key=state) | cumulative(r_one) | score - 1 |
    0.9 * where(is_last(), 0, shift(score, n=-1)) - score
""")


@cache
def walks(kind: str) -> Turns:
    """Two agents on a ring of five states, back and forth; rewards in quarters, components, three iterations."""
    rng = np.random.default_rng(len(kind))
    rows = []
    for iteration in range(3):
        for episode in range(4):
            state = int(rng.integers(5))
            for turn in range(int(rng.integers(3, 9))):
                for agent in ("x", "y") if "two" in kind else ("x",):
                    step = int(rng.integers(-1, 2))
                    rows.append(
                        {
                            "iteration": iteration,
                            "group": 0,
                            "episode": episode,
                            "turn": turn,
                            "agent": agent,
                            "state": state,
                            "action": f"{step:+}",
                            "reward": 0.0,
                            "score": state / 4,
                            "r_one": step * 0.25,
                            "r_two": float(state == 3) * (1 + iteration),
                            "success": bool(rng.random() < 0.3 + 0.2 * iteration * ("worse" not in kind)),
                            "truncated": "cut" in kind and episode == 1,
                        }
                    )
                    state = (state + step) % 5
    frame = pl.DataFrame(rows).with_columns(reward=pl.col("r_one") + pl.col("r_two"))
    if "holes" in kind:
        gone = pl.Series(rng.random(len(frame)) < 0.15)
        frame = frame.with_columns(
            state=pl.when(~gone).then("state"), score=pl.when(pl.Series(rng.random(len(frame)) < 0.9)).then("score")
        )
    if "bare" in kind:
        frame = frame.drop("action", "success", "truncated")
    if "shuffled" in kind:
        frame = frame[rng.permutation(len(frame))]
    return Turns(frame)


def signal(text: str) -> Signal:
    return parse(text, columns={"score", "r_one", "r_two", "r_a", "r_b"})


KINDS = ("one", "two", "two, cut, worse", "holes, cut", "bare", "two, shuffled")
LOOP = {"episode": [0] * 5, "turn": range(5), "agent": ["x"] * 5, "state": [0, 1, 0, 1, 2]}


def of_play() -> Iterator[tuple[str, Case]]:
    for kind in KINDS:
        for text in REWARDS:
            if kind in ("one", "two, cut, worse", "holes, cut"):
                yield (
                    f"all, {kind}, {text}~",
                    lambda k=kind, t=text: [
                        a.audit(walks(k), signal(t), only=o, gamma=g)
                        for o, g in ((("telescoping",), 0.9), (("telescoping", "cycles", "scale", "order"), 1.0))
                    ],
                )
            else:
                yield f"telescoping, {kind}, {text}~", lambda k=kind, t=text: a.telescopes(walks(k), signal(t))
            if kind in ("one", "two, cut, worse"):
                yield (
                    f"distance, {kind}, {text}~",
                    lambda k=kind, t=text: [
                        a.compare_rewards(walks(k), signal(t), signal("reward"), gamma=g) for g in (0.5, 0.9)
                    ],
                )
        yield (
            f"repeats, {kind}",
            lambda k=kind: [
                a.repeat_insertion(walks(k), signal(t), gamma=g)
                for t, g in (
                    ("reward", 1.0),
                    ("reward", 0.9),
                    ("count_bonus(state)", 1.0),
                    ("delta(score)", 0.9),
                    ("cumulative(r_one)", 1.0),
                )
            ],
        )
        yield (
            f"candidates, {kind}",
            lambda k=kind: [
                candidates(walks(k), np.arange(float(len(walks(k)))) % 7, limit=n, each=m)
                for n, m in ((99, 16), (8, 2), (3, 1))
            ],
        )
        yield f"copies, {kind}", lambda k=kind: a.insert_copies(walks(k), np.array([3, 1, 10]), 2).frame
        yield (
            f"steps, {kind}",
            lambda k=kind: [cycles.steps(walks(k)), cycles.turn_positions(walks(k)), telescoping.transitions(walks(k))],
        )
        yield (
            f"farming, {kind}",
            lambda k=kind: [
                a.component_farming(walks(k), signal(t), rise=rise)
                for t in ("reward", "r_one + r_two", "r_two")
                for rise in (0.0, 0.05, 0.2)
            ],
        )
        yield (
            f"order, {kind}",
            lambda k=kind: [a.order_audit(walks(k), signal(t)) for t in ("score", "turn", "-col('turn')")],
        )
        yield (
            f"components, {kind}",
            lambda k=kind: [
                a.component_columns(walks(k)),
                str(a.component_sum(walks(k))),
                a.reward_shares(walks(k), ["r_one", "r_two"]),
                episode_sums(walks(k), np.ones(len(walks(k)))),
            ],
        )
    loop = Turns(LOOP | {"score": [0.5, 1.0, 0.5, 1.0, 0.0]})
    yield (
        "a loop",
        lambda: [
            a.cycle_gain(loop, signal(t), gamma=g)
            for t in ("score", "score - 0.75", "-1 * score", "once(score, key=state)")
            for g in (0.9, 1.0)
        ],
    )
    yield "one loop at most", lambda: a.cycle_gain(walks("two"), signal("score"), loops=1)
    yield "no loop", lambda: a.cycle_gain(Turns(LOOP | {"state": range(5), "score": 1.0}), signal("score"))
    yield "telescopes by a tolerance", lambda: [a.telescopes(loop, signal("score"), tolerance=t) for t in (1e-4, 10.0)]
    constant = Turns(LOOP | {"score": 1.0, "r_one": [1.0, 0, 0, 0, 0], "r_two": 0.0})
    yield (
        "constants",
        lambda: [
            a.telescopes(constant, signal("score")),
            a.scale_sensitivity(constant, signal("r_one")),
            a.compare_rewards(constant, signal("0 * score"), signal("0 * score")),
        ],
    )
    yield "cheap", lambda: [a.cheap(walks(k), signal("score")) for k in ("one", "holes, cut")]
    thirds = pl.DataFrame(
        {
            "iteration": np.repeat(np.arange(5), 2),
            "episode": [0, 1] * 5,
            "r_a": [3.0, 1] * 5,
            "r_b": [0.0] * 4 + [2.0] * 2 + [4.0] * 4,
            "success": [True, False] * 5,
        }
    )
    for rise in (0.4, 0.5, 0.6, 2 / 3):
        yield (
            f"farmed by a rise of {rise}",
            lambda r=rise: [
                a.component_farming(Turns(thirds), signal("r_a + r_b"), rise=r),
                a.component_farming(Turns(thirds.drop("success")), signal("r_a"), rise=r),
            ],
        )
    yield (
        "scale at its least",
        lambda: [a.scale_sensitivity(Turns(thirds), signal("r_a + r_b"), least=x) for x in (-1.0, 0.5, 1.0)],
    )
    few = Turns(
        {
            "episode": np.repeat(np.arange(3), 3),
            "turn": np.tile(np.arange(3), 3),
            "agent": "x",
            "score": [0, 1, 2, 2, 1, 0, 0, 1, 2],
        }
    )
    for least in (-1.0, 1 / 3, 0.34, 1.0):
        yield f"order of at least {least}", lambda m=least: a.order_audit(few, signal("score"), least=m)
    yield "order of two", lambda: [a.order_audit(few.filter(pl.col("episode") < n), signal("score")) for n in (1, 2)]


def played(*episodes: list[tuple[object, float]], **columns: object) -> Turns:
    """Episodes of one agent: (state, reward) of each turn."""
    return Turns(
        {
            "episode": [number for number, each in enumerate(episodes) for _ in each],
            "turn": [turn for each in episodes for turn in range(len(each))],
            "agent": "x",
            "state": [state for each in episodes for state, _ in each],
            "score": [paid for each in episodes for _, paid in each],
            **columns,
        }
    )


def of_ties() -> Iterator[tuple[str, Case]]:
    loops = {
        "of nearly equal laps": played([(i % 2, 1000 + 5e-4 * (i % 4 == 2)) for i in range(9)]),
        "of nearly equal small laps": played([(i % 2, 1e-3 * (1 + 5e-4 * (i % 4 == 2))) for i in range(9)]),
        "seen once": played([(0, 1), (1, 1), (0, 0)]),
        "seen once beside noise": played([(0, 1), (1, 1), (0, 0)], [(5, 0), (6, 0)], [(5, 4), (6, 0)]),
        "of one step seen once beside noise": played([(0, 1), (0, 0)], [(5, 0), (6, 0)], [(5, 4), (6, 0)]),
        "of one step": played([(0, 1.0), (0, 1.0), (0, 0)]),
        "of one step that pays now and then": played(*([(0, x), (0, 0)] for x in (1.0, -1.0, 1.0, -0.5))),
        "that costs": played([(0, -2), (1, -2), (0, -2), (1, 0)]),
        "beside a loop": played([(0, 2), (1, 1), (0, 2), (1, 0), (2, 3), (1, -4), (2, 0)], [(3, 5), (0, 5), (3, 0)]),
    }
    for name, turns in loops.items():
        yield (
            f"loop {name}",
            lambda t=turns: [
                a.cycle_gain(t, signal("score"), gamma=g, tolerance=x, loops=n)
                for g, x, n in ((1.0, 1e-6, 64), (0.5, 1e-6, 64), (1.0, 0.5, 2), (1.0, 0.0, 1))
            ],
        )
        yield f"repeated {name}", lambda t=turns: [a.repeat_insertion(t, signal("score"), limit=n) for n in (1, 2, 99)]
    least = played([(0, 1.0), (1, -1e6), (2, 0.0)])
    yield "repeated for a millionth", lambda: a.repeat_insertion(least, signal("score"))
    for scale in (0.1, 1.0, 10.0):
        at = scale * np.arange(4.0)
        miss = np.array([1.0, -1, -1, 1])
        yield (
            f"kept, {scale}",
            lambda p=at, miss=miss: [
                telescoping._kept(slope * p + x * miss + 3, p, g)
                for slope in (-1.0, 0.4, 0.6, 0.9, 1.4, 1.6)
                for x in (0.002, 0.01, 0.1)
                for g in (0.5, 0.9)
            ],
        )
    flat = (np.array([0, 1e-6]), np.array([1000, 1000.0001]), np.array([0, 2e-6]), np.array([0.0, 0.0]))
    yield "kept, flat", lambda: [telescoping._kept(p - p.mean(), p, 1.0) for p in flat]
    yield "largest", lambda: [telescoping._largest(np.array(x)) for x in ([1, -2, 2, 0.5, 2], [0.0], [3, 3 + 1e-12])]
    walk = [[0, 1, 2, 1, 0], [2, 0, 1, 2], [1, 0, 2, 0, 1, 2, 2]]
    for gamma in (1.0, 0.9):
        for kind, ends in (("outcome", (6.0, 0.0, 2.0)), ("leak", (5.0, 20.0, 20.0)), ("nothing", (0.0, 0.0, 0.0))):
            value = np.array([-10.0, 5.0, 20.0])
            shaped = []
            for path, end in zip(walk, ends, strict=True):
                after = [*value[path[1:]], 0.0]
                own = [gamma * then - value[state] for state, then in zip(path, after, strict=True)]
                own[-1] += end * (gamma if kind == "leak" else 1.0)
                shaped.append([(state, float(paid)) for state, paid in zip(path, own, strict=True)])
            yield (
                f"shaped, {kind}, {gamma}~",
                lambda s=shaped, g=gamma: [
                    told(a.telescopes(played(*s, **more), signal("score"), gamma=g))
                    for more in ({}, {"truncated": [False] * 15 + [True]})
                ],
            )
    alone = played([(5, 1.0)], [(5, 3.0)])
    yield "one state that ends", lambda: a.canonical_on_table(alone, np.array([[1.0, 3.0]]), gamma=0.5)
    for states in ([0, 1, 0, 1], [0, 1, 2, 0], [0, 0, 1, 1]):
        own = played([(x, float(i)) for i, x in enumerate(states)], [(1, -1.0), (0, 2.0)])
        yield (
            f"walk of {states}",
            lambda t=own: [
                a.canonical_on_table(t, np.stack([t["score"].to_numpy(), np.arange(6.0) % 2]), gamma=0.5),
                a.compare_rewards(t, signal("score"), signal("turn"), gamma=0.5),
                a.compare_rewards(t, signal("score"), signal("score - 1"), gamma=0.5),
                a.compare_rewards(t, signal("score"), signal("-1 * score"), gamma=0.5),
            ],
        )


def told(found: a.Finding) -> object:
    """What it says and shows, without what least squares leave of zero."""
    return [found.verdict, {k: round(v, 6) for k, v in found.numbers.items()}, [*map(dict, found.rows)]]


def of_processes() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(6)
    T = rng.dirichlet(np.ones(4), (4, 2))
    R, other = np.round(rng.normal(size=T.shape) * 4) / 4, rng.normal(size=(4, 2))
    for method in distance.METHODS:
        yield (
            f"canonical, {method}",
            lambda m=method: [
                a.canonicalise(R, T, 0.9, m),
                a.starc(R, other, T, 0.5, method=m),
                a.starc(R, other, T, 0.9, method=m, norm=1),
            ],
        )
    yield "epic and dard", lambda: [f(R, x, T, 0.9) for f in (a.epic, a.dard) for x in (other, -R, 0 * R, R + 1)]
    yield (
        "regret",
        lambda: (
            [a.regret(R, x, T, 0.9) for x in (other, -R, R)] + [a.optimal_policy(x, T, 0.8) for x in (R, other, 0 * R)]
        ),
    )
    yield "nothing to lose", lambda: a.regret(0 * R, R, T, 0.9)
    for gamma in (1.0, -0.1, 0.0):
        yield f"gamma {gamma}", lambda g=gamma: a.canonicalise(R, T, g)
    yield "no process", lambda: a.canonicalise(R, T * 1.1, 0.9)
    table = np.stack([walks("two")["score"].to_numpy(), walks("two")["r_one"].to_numpy()])
    for kind in ("two", "two, cut, worse", "bare"):
        yield (
            f"on a table, {kind}~",
            lambda k=kind: (
                [a.canonical_on_table(walks(k), table[:, : len(walks(k))], gamma=0.9)]
                if len(walks(k)) <= table.shape[1]
                else 0
            ),
        )
    for seed in range(6):
        yield f"best cycle, {seed}", lambda s=seed: best(s)
    yield (
        "cycle of the docs",
        lambda: a.max_mean_cycle(np.array([0, 1, 1]), np.array([1, 0, 1]), np.array([1.0, 2.0, 1.2]), 2),
    )
    yield (
        "no cycle",
        lambda: [
            a.max_mean_cycle(np.array([0, 1]), np.array([1, 2]), np.ones(2), 3),
            a.max_mean_cycle(*(np.empty(0, int),) * 2, np.empty(0), 1),
        ],
    )
    yield "few rounds", lambda: [best(1, rounds) for rounds in (1, 2)]
    sums = np.array(
        [
            [0, 1, 1, 2],
            [0, 1, 1, 1 + growth.FADES],
            [0, 1, 1, 1 + 0.9 * growth.FADES],
            [0, 0, 0, 0],
            [0, -1, 0, 1],
            [0, 1, 2, 1],
            [0, 8, 8, 9.0],
        ]
    )
    yield "endless", lambda: growth.endless(sums)
    gains = np.array([1.0, 1.1, 0.9, -0.5, 0.5, 0.2, 0.0])
    yield (
        "beyond chance",
        lambda: [
            growth.beyond_chance(gains, np.array([0, 0, 0, 1, 1, 2, 3]), n, x) for n in (4, 6) for x in (0.0, 0.5)
        ],
    )
    yield (
        "beyond chance, one each",
        lambda: [
            growth.beyond_chance(g, np.arange(len(g)), len(g), x)
            for g in (gains, gains[:1], 0 * gains)
            for x in (0.0, 0.1, 0.5)
        ],
    )


def best(seed: int, rounds: int = 400) -> object:
    rng = np.random.default_rng(seed)
    edges, nodes = 20 + 10 * seed, 6 + seed
    return a.max_mean_cycle(
        rng.integers(0, nodes, edges),
        rng.integers(0, nodes, edges),
        np.round(rng.normal(size=edges) * 4) / 4,
        nodes,
        rounds=rounds,
    )


CASES = dict((*of_play(), *of_ties(), *of_processes()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_an_audit_gives_what_it_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
