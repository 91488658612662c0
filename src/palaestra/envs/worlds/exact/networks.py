"""Problems on networks: connected random graphs, the five tasks of AgentsNet with their scores, and exact solutions.

Agents are numbers 0 … n - 1, a graph is a symmetric bool[n, n]. arXiv 2507.08616; scores as its released code has them.
Left out: malicious agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from palaestra.errors import InputError, missing_extra, nearest

FAMILIES = ("small_world", "preferential", "delaunay", "ring")
PROBLEMS = ("consensus", "leader", "colouring", "matching", "cover")

Answer = int | None
"""Consensus 0 or 1; leader and cover 1 for yes; colouring the colour; matching the partner, -1 for nobody. None: no
valid answer."""


def network(family: str, n: int, seed: int) -> np.ndarray:
    """Adjacency matrix bool[n, n] of a random connected graph, by `seed`: small_world, preferential, delaunay or ring.

    AgentsNet's small world (k=4, p=0.4), preferential attachment (m=2), Delaunay triangulation of uniform points, or a
    ring. Numbers follow the construction: in a small world near numbers are often neighbours, and under preferential
    attachment the first have most of them.

    Raises:
        InputError: an unknown family, or too few agents for it.
    """
    if family not in FAMILIES:
        raise InputError(f"network: no family {family!r}{nearest(family, FAMILIES)}")
    if n < 4:
        raise InputError(f"network: n={n}, these graphs need at least 4 agents")
    adjacent = np.zeros((n, n), bool)
    rng = np.random.default_rng(seed)
    if family == "ring":
        edges = np.column_stack([np.arange(n), (np.arange(n) + 1) % n])
    elif family == "delaunay":
        from scipy.spatial import Delaunay

        corners = Delaunay(rng.random((n, 2))).simplices
        edges = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]])
    else:
        edges = np.array(_drawn(family, n, int(rng.integers(2**31))))
    adjacent[edges[:, 0], edges[:, 1]] = adjacent[edges[:, 1], edges[:, 0]] = True
    return adjacent


def _drawn(family: str, n: int, seed: int) -> list[tuple[int, int]]:
    try:
        import networkx as nx  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise missing_extra("networkx", "networks") from None
    if family == "preferential":
        return list(nx.barabasi_albert_graph(n, 2, seed=seed).edges)
    return list(nx.connected_watts_strogatz_graph(n, min(4, n - 1), 0.4, seed=seed).edges)


def diameter(adjacent: np.ndarray) -> int:
    """Diameter of a graph, given as matrix `adjacent`: the longest of its shortest paths.

    >>> diameter(network("ring", 6, seed=0))
    3
    """
    reached, steps = np.eye(len(adjacent), dtype=bool) | adjacent, 1
    while not reached.all():
        reached, steps = reached | (reached.astype(int) @ adjacent > 0), steps + 1
        if steps > len(adjacent):
            raise InputError("diameter: the graph is not connected")
    return steps


def score(problem: str, adjacent: np.ndarray, answers: Sequence[Answer]) -> float:
    """Score in [0, 1] of the list of agents' answers to a graph problem on matrix `adjacent`, bool[n, n].

    consensus: all valid and equal. leader: exactly one yes. colouring: share of proper edges, 0 if an answer is not one
    of the (largest degree + 1) colours. matching: 1 - inconsistent / n, where an agent is inconsistent if its partner
    is no neighbour or names somebody else, or if it is alone beside a neighbour who is alone. cover: covered edges ×
    (members without whom the cover is not whole / members), 0 without members (the released code divides by 0).

    >>> ring = network("ring", 4, seed=0)
    >>> score("colouring", ring, [0, 1, 0, 1]), score("matching", ring, [1, 0, -1, -1])
    (1.0, 0.5)

    Raises:
        InputError: an unknown problem, or not one answer per agent.
    """
    _check(problem)
    if len(answers) != len(adjacent):
        raise InputError(f"score: {len(answers)} answers of {len(adjacent)} agents")
    return _SCORES[problem](adjacent, answers)


def _check(problem: str) -> None:
    if problem not in PROBLEMS:
        raise InputError(f"there is no problem {problem!r} on networks{nearest(problem, PROBLEMS)}")


def _consensus(adjacent: np.ndarray, answers: Sequence[Answer]) -> float:
    return float(len(set(answers)) == 1 and answers[0] in (0, 1))


def _leader(adjacent: np.ndarray, answers: Sequence[Answer]) -> float:
    return float(set(answers) <= {0, 1} and answers.count(1) == 1)


def _colouring(adjacent: np.ndarray, answers: Sequence[Answer]) -> float:
    colours = range(int(adjacent.sum(1).max()) + 1)
    if not all(answer in colours for answer in answers):
        return 0.0
    colour = np.array(answers)
    return float((colour[:, None] != colour)[adjacent].mean())


def _matching(adjacent: np.ndarray, answers: Sequence[Answer]) -> float:
    def inconsistent(agent: int) -> bool:
        partner = answers[agent]
        if partner == -1:
            return any(answers[int(other)] == -1 for other in np.flatnonzero(adjacent[agent]))
        if partner is None or not 0 <= partner < len(adjacent):
            return True
        return not adjacent[agent, partner] or answers[partner] != agent

    return 1 - sum(map(inconsistent, range(len(adjacent)))) / len(adjacent)


def _cover(adjacent: np.ndarray, answers: Sequence[Answer]) -> float:
    member = np.array([answer == 1 for answer in answers])
    if not member.any():
        return 0.0
    covered = (member[:, None] | member)[adjacent].mean()
    alone = (adjacent & ~member).any(axis=1)  # an edge that nobody else covers
    needed = member.sum() if covered < 1 else (member & alone).sum()
    return float(covered * needed / member.sum())


_SCORES: dict[str, Callable[[np.ndarray, Sequence[Answer]], float]] = {
    "consensus": _consensus,
    "leader": _leader,
    "colouring": _colouring,
    "matching": _matching,
    "cover": _cover,
}


def valid_answers(problem: str, adjacent: np.ndarray, agent: int) -> list[int]:
    """List of an agent's legal answers (int) to a named graph problem on matrix `adjacent`; matching: neighbours, -1.

    A colouring: colours up to the largest degree; any other problem: 0 and 1.
    """
    if problem == "colouring":
        return list(range(int(adjacent.sum(1).max()) + 1))
    return [*np.flatnonzero(adjacent[agent]).tolist(), -1] if problem == "matching" else [0, 1]


def solve(problem: str, adjacent: np.ndarray) -> list[int]:
    """A valid answer of each agent to a graph problem on matrix `adjacent`, list[int], found greedily, all known.

    >>> solve("matching", network("ring", 5, seed=0))
    [1, 0, 3, 2, -1]
    """
    _check(problem)
    n = len(adjacent)
    if problem == "consensus":
        return [0] * n
    if problem == "leader":
        return [int(agent == n - 1) for agent in range(n)]
    answers = [-1] * n
    for agent in range(n):
        before = {answers[other] for other in np.flatnonzero(adjacent[agent, :agent])}
        if problem == "colouring":
            answers[agent] = next(colour for colour in range(n) if colour not in before)
        elif problem == "cover":  # everybody outside a maximal independent set
            answers[agent] = int(0 in before)
        elif answers[agent] == -1:
            free = [int(other) for other in np.flatnonzero(adjacent[agent]) if answers[other] == -1]
            if free:
                answers[agent], answers[free[0]] = free[0], agent
    return answers


def random_score(problem: str, n: int) -> float:
    """Expected score of uniformly random answers, for problems "consensus" 2^(1-n) and "leader" n 2^-n only.

    >>> random_score("consensus", 4), random_score("leader", 4)
    (0.125, 0.25)
    """
    if problem not in ("consensus", "leader"):
        raise InputError(f"random_score: {problem!r} has no closed form that holds on every graph")
    return 2.0 ** (1 - n) if problem == "consensus" else n * 2.0**-n
