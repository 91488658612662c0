"""Farmable cycles: the loop through observed states that pays most per step, and what walking it again earns.

Nodes are the states that an agent saw, edges its steps from one to the next, weights the mean reward of that step. The
cycle of the largest mean weight is found by policy iteration (Howard's, in the max-plus form of Cochet-Terrasson et al.
1998), vectorised; Karp's algorithm gives the same and needs states × edges time. A bonus that pays once has a cycle of
positive mean and still cannot be farmed: so the cycle is walked, as a table, and the reward is asked again; if it does
not go on paying, the search does, without what is paid the first time only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.codes import code_array
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.finding import Finding, evidence_rows, per_turn, require
from palaestra.evaluation.audits.growth import CHECKS, beyond_chance, endless

LAPS = (8, 16)
VARIANTS = 8
"""How often a loop is walked with other examples of its steps, where it was seen more than once."""
TOLERANCE = 1e-9


def max_mean_cycle(
    source: np.ndarray, target: np.ndarray, weight: np.ndarray, nodes: int, *, rounds: int = 400
) -> tuple[float, np.ndarray, bool]:
    """(mean, edge indices, proved): cycle of largest mean weight of a graph of `nodes`: arrays source, target, weight.

    source, target: int64[edges]; weight: float64[edges]. Without a cycle: (-inf, no edges, True). λ is the best mean so
    far; a node's value is the most that a walk from it earns above λ per step, stopping when it likes. A policy that
    improves on these values and never stops has found a better cycle; when none improves, λ is the largest.

    >>> value, cycle, proved = max_mean_cycle(np.array([0, 1, 1]), np.array([1, 0, 1]), np.array([1.0, 2.0, 1.2]), 2)
    >>> value, cycle.tolist(), proved
    (1.5, [0, 1], True)
    """
    graph = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), shape=(nodes, nodes))
    component = scipy.sparse.csgraph.connected_components(graph, connection="strong")[1] if len(source) else np.empty(0)
    inside = np.flatnonzero(component[source] == component[target]) if len(source) else source
    if not len(inside):
        return -np.inf, np.empty(0, np.int64), True
    used, ends = np.unique(np.concatenate([source[inside], target[inside]]), return_inverse=True)
    start, stop, n = ends[: len(inside)], ends[len(inside) :], len(used)
    order = np.argsort(start * n + stop, kind="stable")
    start, stop, inside = start[order], stop[order], inside[order]
    paid = _levelled(start, stop, weight[inside], n)
    first = np.searchsorted(start, np.arange(n))
    tolerance = TOLERANCE * max(float(np.abs(paid).max()), 1e-300)
    choice = _best_edge(paid, start, first, np.ones(n, bool), np.full(n, -1))
    best, cycle = _best_cycle(choice, stop, paid)  # the policy that takes each node's best edge has one
    choice = np.full(n, -1)  # -1: stop here
    for _ in range(rounds):
        value, endless = _values(choice, stop, paid - best)
        if endless:
            found, cycle = _best_cycle(choice, stop, paid)
            best, choice = found, np.full(n, -1)
            continue
        through = paid - best + value[stop]
        better = np.maximum.reduceat(through, first) > value + tolerance * n**0.5
        if not better.any():
            break
        choice = _best_edge(through, start, first, better, choice)
    edges = inside[cycle]
    return float(weight[edges].mean()), edges, not better.any()


def _levelled(start: np.ndarray, stop: np.ndarray, paid: np.ndarray, n: int) -> np.ndarray:
    """Weights minus the differences of a potential: the same on every cycle; zero if the reward is shaping."""
    graph = scipy.sparse.coo_matrix((np.ones(len(start)), (start, stop)), shape=(n, n)).tocsr()
    parent = np.arange(n)
    part = scipy.sparse.csgraph.connected_components(graph, connection="strong")[1]
    for root in np.unique(part, return_index=True)[1]:
        reached, before = scipy.sparse.csgraph.breadth_first_order(graph, root)
        parent[reached[1:]] = before[reached[1:]]
    edge = np.searchsorted(start * n + stop, parent * n + np.arange(n))
    step = np.where(parent == np.arange(n), 0.0, paid[np.minimum(edge, len(paid) - 1)])
    potential = step
    for _ in range(n.bit_length() + 1):  # along the tree, by doubling
        potential, parent = potential + potential[parent], parent[parent]
    along_tree = paid - (potential[stop] - potential[start])
    if np.abs(along_tree).max() <= TOLERANCE * np.abs(potential).max():
        return np.zeros_like(paid)
    rows = np.arange(len(start))
    places = (np.tile(rows, 2), np.concatenate([start, stop]))
    design = scipy.sparse.coo_matrix((np.repeat([-1.0, 1.0], len(rows)), places), shape=(len(rows), n)).tocsr()
    return np.asarray(paid - design @ scipy.sparse.linalg.lsqr(design, paid, iter_lim=200)[0])


def _best_edge(
    score: np.ndarray, start: np.ndarray, first: np.ndarray, nodes: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """The first edge of the highest score out of each of these nodes."""
    winners = np.flatnonzero(score >= np.maximum.reduceat(score, first)[start])
    edge = np.full(len(first), len(start))
    np.minimum.at(edge, start[winners], winners)
    return np.where(nodes, edge, otherwise)


def _values(choice: np.ndarray, stop: np.ndarray, paid: np.ndarray) -> tuple[np.ndarray, bool]:
    """Earnings of each node's walk until it stops, by doubling; and whether some walk never stops."""
    n = len(choice)
    jump = np.append(np.where(choice >= 0, stop[choice], n), n)
    value = np.append(np.where(choice >= 0, paid[choice], 0.0), 0.0)
    for _ in range(n.bit_length() + 1):
        if (jump == n).all():
            return value[:n], False
        value, jump = value + value[jump], jump[jump]
    return value[:n], bool((jump < n).any())


def _best_cycle(choice: np.ndarray, stop: np.ndarray, paid: np.ndarray) -> tuple[float, np.ndarray]:
    """The best cycle of a policy that has one, as edges in order from its smallest node."""
    n = len(choice)
    after = np.append(np.where(choice >= 0, stop[choice], n), n)
    end, low = after, np.minimum(np.arange(n + 1), after)
    for _ in range(n.bit_length() + 1):
        low, end = np.minimum(low, low[end]), end[end]
    on = np.unique(end[end < n])
    root = low[on]  # walking long enough from a node of a cycle meets the cycle's smallest
    mean = np.bincount(root, paid[choice[on]], minlength=n) / np.maximum(np.bincount(root, minlength=n), 1)
    node = int(root[np.argmax(mean[root])])
    walk = [node]
    while (following := int(after[walk[-1]])) != node:
        walk.append(following)
    return float(mean[node]), choice[walk]


def turn_positions(turns: Turns) -> np.ndarray:
    """int64[rows]: position, from 0, of each of `Turns` among those of its agent in its episode."""
    segments = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    found = np.empty(len(turns), np.int64)
    found[order] = np.arange(len(turns)) - np.repeat(segments.starts, segments.lengths)
    return found


def steps(turns: Turns) -> tuple[np.ndarray, np.ndarray]:
    """(rows, next rows), int64[steps]: all `Turns` but an agent's last in an episode, and that agent's next turn."""
    segments = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    inner = np.ones(len(order), bool)
    inner[(segments.starts + segments.lengths - 1)[segments.lengths > 0]] = False
    position = np.flatnonzero(inner)
    return order[position], order[position + 1]


def cycle_gain(
    turns: Turns, reward: Signal, *, gamma: float = 1.0, tolerance: float = 1e-6, loops: int = 64
) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether a cycle of states earns reward without end.

    numbers: `states`, `steps`, `mean` (largest mean reward per step of a cycle), `length`, `gain_per_lap` (what a lap
    more earns when the cycle is walked 8 and then 16 times, played from a start that leads to it), `loops` (walked).
    Fails if a lap more earns more than `tolerance` times the largest reward, for ever. A loop that pays once, or less
    and less to a limit, or perhaps by chance (its steps, taken at other times, paid otherwise) is put down to what a
    late lap paid, everything to what it pays when its episode is played a second time, and the search goes on until no
    loop is left that seems to pay, or `loops` were walked. gamma: discount of the return from the ninth lap on; shaping
    by a negative potential earns (γ - 1)Φ > 0 a step, which is nothing under its own discount and can be farmed under a
    plain sum. Loops are the best ones without discount.

    Raises:
        MissingColumnError: `episode`, `agent` or `state` is missing.
    """
    require(turns, "episode", "agent", "state")
    values = per_turn(turns, reward)
    row, following = steps(turns)
    codes = code_array(turns["state"].to_arrow())
    agent = turns.codes("agent")
    node = codes.ids * max(agent.size, 1) + agent.ids
    known = turns["state"].is_not_null().to_numpy()
    kept = known[row] & known[following]
    row, following = row[kept], following[kept]
    pairs = code_array(node[row] * (int(node.max()) + 1) + node[following])
    times = np.bincount(pairs.ids, minlength=pairs.size)
    taken = row[np.argsort(pairs.ids, kind="stable")]  # rows by edge, in the order of the table
    first = np.cumsum(times) - times
    after = np.full(pairs.size, -1)
    after[pairs.ids[::-1]] = following[::-1]
    size = float(np.abs(values).max())
    unit = size or 1.0  # squares of large rewards overflow, those of small ones vanish
    weight = np.bincount(pairs.ids, values[row] / unit, minlength=pairs.size) / np.maximum(times, 1)
    spread = np.bincount(pairs.ids, np.square(values[row] / unit - weight[pairs.ids]), minlength=pairs.size)
    typical = (
        float(np.median((spread / np.maximum(times - 1, 1))[times > 1])) ** 0.5 * unit if (times > 1).any() else 0.0
    )
    source, target = node[taken[first]], node[after]
    best: dict[str, float] = {}
    doubt, proved, said = "", True, ""
    for walked in range(1, loops + 1):
        mean, cycle, proved = max_mean_cycle(source, target, weight, int(node.max()) + 1)
        if not len(cycle):
            sentence = f"no state is visited twice in {len(row)} steps: the table cannot show a loop"
            return Finding("cycles", "cannot tell", sentence, {"states": float(codes.size), "steps": float(len(row))})
        if best and mean <= tolerance:
            break
        variants = min(int(times[cycle].max()), VARIANTS)
        tries = [taken[first[cycle] + v % times[cycle]] for v in range(variants)]
        found = [_lap(turns, reward, rows, gamma) for rows in tries]
        gains = np.array([each.gain for each in found])
        gains = np.where(np.abs(gains) > tolerance * size, gains, 0.0)  # rounding
        average, sure = beyond_chance(gains, np.zeros(variants, int), 1, typical * len(cycle) ** 0.5)
        gain = float(average[0])
        numbers = {
            "states": float(codes.size),
            "steps": float(len(row)),
            "mean": mean * unit,
            "length": float(len(cycle)),
        }
        numbers |= {"gain_per_lap": gain, "loops": float(walked)}
        loop = f"the best loop has {len(cycle)} step{'s' if len(cycle) > 1 else ''}"
        goes_on = bool(endless(np.mean([each.sums for each in found], axis=0)[None])[0])
        if gain > 0 and goes_on and sure[0]:
            rows = tries[int(np.argmax(gains >= gains.max() - tolerance * size))]
            sentence = f"{loop} and earns {gain:.4g} a lap, for as many laps as one likes"
            return Finding("cycles", "fail", sentence, numbers, evidence_rows(turns, rows, values))
        if gain > 0 and goes_on:
            doubt = (
                doubt
                or f"a loop of {len(cycle)} step{'s' * (len(cycle) > 1)} earns {gain:.4g} a lap, perhaps by chance"
            )
        if not best:
            best, said = numbers, f"{loop} and earns {gain:.4g} a lap more" + (", less and less" if gain > 0 else "")
            again = _second_time(turns, reward)[row] / unit
            weight = np.minimum(weight, np.bincount(pairs.ids, again, minlength=pairs.size) / np.maximum(times, 1))
        last = np.mean([each.last for each in found], axis=0) / unit
        if gamma < 1 or gain > 0:  # under its own discount, or in the end, it pays nothing
            last = np.minimum(last, 0.0)
        weight[cycle] = np.minimum(weight[cycle], -1.0 if gain > 0 and goes_on else last)
        weight[cycle] -= max(float(weight[cycle].mean()), 0.0)  # it was walked: on the whole it pays nothing
    best["loops"] = float(walked)
    if doubt:
        return Finding("cycles", "cannot tell", f"{doubt}: the same steps also paid less; give it more play", best)
    if not proved or (walked == loops and mean > tolerance):
        sentence = f"{said}, but the search was cut short: a better one may exist"
        return Finding("cycles", "cannot tell", sentence, best)
    return Finding("cycles", "pass", f"{said}: nothing to farm", best)


class _Laps(NamedTuple):
    """gain: of one lap more, from 8 laps to 16. sums: after `CHECKS` laps. last: what the steps of a late lap paid."""

    gain: float
    sums: np.ndarray
    last: np.ndarray


def _lap(turns: Turns, reward: Signal, rows: np.ndarray, gamma: float) -> _Laps:
    """The way to the loop, then so many laps, each number of them an episode in a table of its own."""
    columns = list(turns.key_columns(["episode", "agent"]))
    first = turns.frame[int(rows[0])].select(columns)
    segment = np.flatnonzero(
        turns.frame.select(pl.all_horizontal(pl.col(c).eq_missing(first[c][0]) for c in columns)).to_series().to_numpy()
    )
    if "turn" in turns.columns:
        segment = segment[np.argsort(turns["turn"].to_numpy()[segment], kind="stable")]
    way = segment[: int(np.flatnonzero(segment == rows[0])[0])]
    walks = [np.concatenate([way, np.tile(rows, laps)]) for laps in (*LAPS, *CHECKS)]
    frame = turns.frame[np.concatenate(walks).tolist()]
    lengths = [len(walk) for walk in walks]
    number = np.repeat(np.arange(len(walks)), lengths)
    position = np.concatenate([np.arange(length) for length in lengths])
    constant = [pl.lit(first[c][0]).alias(c) for c in columns if c != "episode"]
    table = Turns(
        frame.with_columns(*constant, *not_truncated(turns), episode=pl.Series(number), turn=pl.Series(position))
    )
    paid = np.split(per_turn(table, reward), np.cumsum(lengths)[:-1])
    fewer, more = paid[0], paid[1].copy()
    more[: lengths[0]] -= fewer
    later = np.maximum(np.arange(lengths[1]) - lengths[0] + 1, 0)
    gain = float(gamma**later @ more / (LAPS[1] - LAPS[0]))
    inner = paid[-1][-2 * len(rows) : -len(rows)]  # the very last lap ends the episode
    return _Laps(gain, np.array([each.sum() for each in paid[2:]]), inner)


def _second_time(turns: Turns, reward: Signal) -> np.ndarray:
    """Reward of each row if its episode were played once more before it ends: float64[rows]."""
    episodes = turns.segments("episode")
    order = np.arange(len(turns)) if episodes.order is None else episodes.order
    number = np.repeat(np.arange(len(episodes.lengths)), 2 * episodes.lengths)
    position = np.arange(len(number)) - np.repeat(2 * episodes.starts, 2 * episodes.lengths)
    length = np.repeat(episodes.lengths, 2 * episodes.lengths)
    source = order[np.repeat(episodes.starts, 2 * episodes.lengths) + position % length]
    frame = turns.frame[source.tolist()].with_columns(
        *not_truncated(turns), episode=pl.Series(number), turn=pl.Series(position)
    )
    paid = per_turn(Turns(frame), reward)
    found = np.zeros(len(turns))
    second = position >= length
    found[source[second]] = paid[second]
    return found


def not_truncated(turns: Turns) -> list[pl.Expr]:
    """Makes, for `Turns`, a list of Polars expressions: `truncated` set to False, or nothing without that column."""
    return [pl.lit(False).alias("truncated")] if "truncated" in turns.columns else []
