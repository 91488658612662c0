"""Telescoping: is this reward potential-based shaping, Σ γ^t r_t a function of the first state alone?

If r_t = γ·Φ(s') - Φ(s) on every step, with Φ = 0 after a terminal one, no policy's rank changes (Ng, Harada and Russell
1999). Here Φ is fitted by sparse least squares to all observed steps; what the fit leaves over says whether there is
such a Φ. A Φ that is kept at a terminal state fits every inner step and fails at the boundary: that is the leak which
most released shaping code has.
"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.algebra.codes import code_array
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.cycles import steps
from palaestra.evaluation.audits.finding import Finding, evidence_rows, per_turn, require


def _fit(
    start: np.ndarray, stop: np.ndarray, paid: np.ndarray, nodes: int, gamma: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """The best potential (0 where stop = -1), what it leaves over, and how many loops could contradict one."""
    rows = np.arange(len(start))
    inner = stop >= 0
    entries = np.concatenate([-np.ones(len(start)), np.full(int(inner.sum()), gamma)])
    places = (np.concatenate([rows, rows[inner]]), np.concatenate([start, stop[inner]]))
    design = scipy.sparse.coo_matrix((entries, places), shape=(len(start), nodes)).tocsr()
    potential = scipy.sparse.linalg.lsqr(design, paid, atol=1e-12, btol=1e-12, iter_lim=4 * nodes + 100)[0]
    ground = np.where(inner, stop, nodes)
    graph = scipy.sparse.coo_matrix((np.ones(len(start)), (start, ground)), shape=(nodes + 1, nodes + 1))
    _, label = scipy.sparse.csgraph.connected_components(graph, directed=False)
    touched = len(np.unique(np.concatenate([start, ground])))
    used = len(np.unique(label[np.concatenate([start, ground])]))
    return potential, paid - design @ potential, len(start) - touched + used


def transitions(turns: Turns) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """(rows, nodes, next nodes, number of nodes): steps between states in `Turns`, int arrays; next -1 after the last.

    A node is a state as one agent saw it; -1 follows an agent's last turn. What follows a truncated one is unknown.
    """
    row, following = steps(turns)
    agents = turns.codes("agent")
    node = code_array(code_array(turns["state"].to_arrow()).ids * max(agents.size, 1) + agents.ids)
    last = np.setdiff1d(np.arange(len(turns)), row)
    known = turns["state"].is_not_null().to_numpy()
    last, kept = last[known[last]], known[row] & known[following]
    row, following = row[kept], following[kept]
    if "truncated" in turns.columns:
        last = last[~turns["truncated"].fill_null(False).to_numpy()[last]]
    rows = np.concatenate([row, last])
    return rows, node.ids[rows], np.concatenate([node.ids[following], np.full(len(last), -1)]), node.size


def _largest(misses: np.ndarray) -> np.ndarray:
    """Where the three largest are, the first of equal ones; equal but for the rounding of a CPU."""
    return np.argsort(-np.abs(misses).round(9), kind="stable")[:3]


def _kept(extra: np.ndarray, potential: np.ndarray, gamma: float) -> bool:
    """Whether what is left at the end is the potential itself, γ·Φ or Φ plus a constant, and not an outcome."""
    if np.ptp(potential) <= 1e-6 * max(1.0, float(np.abs(potential).max(initial=0.0))):
        return False  # an outcome or a constant potential: nobody can tell, and a constant is no leak
    slope, offset = np.polyfit(potential, extra, 1)
    missed = extra - slope * potential - offset
    return bool(0.5 * gamma <= slope <= 1.5 and missed.std() <= 0.05 * extra.std())


def telescopes(turns: Turns, reward: Signal, *, gamma: float = 1.0, tolerance: float = 1e-4) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether it is potential-based shaping by the state.

    Terminal steps included.
    numbers: `inside` and `with_boundary` (what the best potential leaves over, as a share of the reward's size),
    `at_end` (largest miss on a terminal step), `leak` (the same if it is one), `loops` (independent loops in the data:
    without one, anything telescopes). Passes if nothing is left over but on terminal steps, unless that is the
    potential itself: then it is a leak, and warned of. What goes beyond the end is the task's own outcome. A reward
    that is no shaping warns too: it can change what is optimal, as a task's own reward should.

    Raises:
        MissingColumnError: `episode`, `agent` or `state` is missing.
    """
    require(turns, "episode", "agent", "state")
    values = per_turn(turns, reward)
    rows, start, stop, nodes = transitions(turns)
    inner = stop >= 0
    last = rows[~inner]
    unit = float(np.abs(values).max())
    if unit == 0:
        return Finding("telescoping", "pass", "the reward is zero everywhere", {"inside": 0.0, "with_boundary": 0.0})
    values = values / unit  # squares of large rewards overflow, those of small ones vanish
    size = float(np.sqrt(np.mean(values**2)))
    potential, inside, free = _fit(start[inner], stop[inner], values[rows[inner]], nodes, gamma)
    _, whole, loops = _fit(start, stop, values[rows], nodes, gamma)
    left, left_all = (float(np.sqrt(np.mean(r**2))) / size if len(r) else 0.0 for r in (inside, whole))
    numbers = {"inside": left, "with_boundary": left_all, "loops": float(loops), "loops_inside": float(free)}
    if loops == 0:
        return Finding("telescoping", "cannot tell", "no two ways lead to one state: any reward would pass", numbers)
    if left_all <= tolerance:
        sentence = f"potential-based shaping with γ = {gamma:g}, boundary included: no policy's rank changes"
        return Finding("telescoping", "pass", sentence, numbers)
    if left <= tolerance and free > 0:
        here = potential[start[~inner]]
        extra = values[last] + here
        extra -= np.median(extra) if gamma == 1 else 0.0  # without discount Φ is known up to a constant
        worst = last[_largest(extra)]
        numbers["at_end"] = unit * float(np.abs(extra).max())
        if _kept(extra, here, gamma):
            numbers["leak"] = numbers["at_end"]
            sentence = (
                f"shaping that leaks at the end: terminal steps miss by up to {numbers['leak']:.4g}; "
                "let the potential be 0 after a terminal step"
            )
            return Finding("telescoping", "warn", sentence, numbers, evidence_rows(turns, worst, unit * values))
        sentence = (
            f"potential-based shaping with γ = {gamma:g} but for up to {numbers['at_end']:.4g} at the end: no rank "
            "changes but by that (right for the task's own outcome, wrong for a shaping term)"
        )
        return Finding("telescoping", "pass", sentence, numbers, evidence_rows(turns, worst, unit * values))
    worst = rows[_largest(whole)]
    sentence = (
        f"no potential explains {left_all:.0%} of this reward: it can change what is optimal (right for the task's own "
        "reward, wrong for a shaping term)"
    )
    return Finding("telescoping", "warn", sentence, numbers, evidence_rows(turns, worst, unit * values))
