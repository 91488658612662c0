"""Questions about an incident: alerts and the entities they name, as a graph, and what leads from one to another.

ExCyTIn-Bench (arXiv 2507.14201; its question generator). The reward of a partly right path is
`palaestra.rewards.paths.path_credit`. Left out: the wording of questions by a language model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.errors import InputError, missing_extra

VAGUE = ("host", "process")
"""Kinds of entities that are no answers if there is another."""


@dataclass(frozen=True)
class Question:
    """Data of a question about an incident graph: given alert and entities, asked entity, path and solution steps.

    start_alert and start: what is told. end_alert, answer: what is asked. path: alert, entity, alert … answer.

    solution: the steps that have to be found, the answer last; nothing in it is told by the question.
    """

    start_alert: str
    start: tuple[str, ...]
    end_alert: str
    answer: str
    path: tuple[str, ...]
    solution: tuple[str, ...]


def incident(alerts: int, entities: int, rng: np.random.Generator) -> dict[str, tuple[str, ...]]:
    """Random incident graph {alert: entities `kind:value`} of these numbers; alerts share one with an earlier alert."""
    kinds = ("account", "ip", "url", "file", "host", "process")
    names = [f"{kinds[int(k)]}:{n}" for n, k in enumerate(rng.integers(len(kinds), size=entities))]
    found: dict[str, list[str]] = {}
    for number in range(alerts):
        own = [names[int(e)] for e in rng.choice(entities, size=min(int(rng.integers(2, 5)), entities), replace=False)]
        if number:
            before = found[f"alert-{int(rng.integers(max(0, number - 2), number))}"]
            own.append(before[int(rng.integers(len(before)))])
        found[f"alert-{number}"] = list(dict.fromkeys(own))
    return {alert: tuple(own) for alert, own in found.items()}


def questions(graph: Mapping[str, Sequence[str]], m: int, rng: np.random.Generator) -> list[Question]:
    """List of up to m `Question`s about a graph {alert: entities}, each between two connected alerts.

    Told are up to ten entities of the first alert that are farthest from the second; asked is one of the second's
    farthest from the first (no host or process if it has others). The path is a random shortest one. Paths are chosen
    with a share per length in proportion to the square root of its frequency; what is left over goes to the longest.

    Raises:
        InputError: no two alerts are connected.
    """
    net, asked = _network(graph), []
    for first in graph:
        for second in graph:
            if first != second and (question := _question(net, graph, first, second, rng)) is not None:
                asked.append(question)
    if not asked:
        raise InputError("questions: no two alerts share a path")
    by_length: dict[int, list[Question]] = {}
    for question in asked:
        by_length.setdefault(len(question.path), []).append(question)
    chosen = []
    for length, number in shares({length: len(found) for length, found in by_length.items()}, m).items():
        picked = rng.choice(len(by_length[length]), size=number, replace=False)
        chosen += [by_length[length][int(n)] for n in picked]
    return chosen


def shares(frequency: Mapping[int, int], m: int) -> dict[int, int]:
    """Number of questions per path length, {length: number}, `m` in all: proportional to √frequency, at most frequency.

    What is left goes to the longest that still has some.

    >>> shares({3: 100, 5: 25, 7: 4}, 17)
    {3: 10, 5: 5, 7: 2}
    """
    total = sum(np.sqrt(f) for f in frequency.values())
    taken = {length: min(f, int(m * np.sqrt(f) / total + 1e-9)) for length, f in sorted(frequency.items())}
    for length in sorted(frequency, reverse=True):
        taken[length] += min(frequency[length] - taken[length], max(0, m - sum(taken.values())))
    return taken


def _network(graph: Mapping[str, Sequence[str]]) -> Any:
    try:
        import networkx as nx  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise missing_extra("networkx", "networks") from None
    net = nx.Graph()
    net.add_nodes_from(graph)
    net.add_edges_from((alert, entity) for alert, entities in graph.items() for entity in entities)
    return net


def _question(
    net: Any, graph: Mapping[str, Sequence[str]], first: str, second: str, rng: np.random.Generator
) -> Question | None:
    import networkx as nx

    if not nx.has_path(net, first, second):
        return None
    to_second, to_first = (nx.single_source_shortest_path_length(net, alert) for alert in (second, first))
    told = _farthest(graph[first], to_second)[:10]
    asked = [e for e in graph[second] if e not in told and e not in graph[first]]
    asked = [entity for entity in asked if entity.split(":")[0] not in VAGUE] or asked
    if not told or not asked:
        return None
    answer = _farthest(asked, to_first)[0]
    paths = list(nx.all_shortest_paths(net, first, second))
    path = (*paths[int(rng.integers(len(paths)))], answer)
    hidden = [entity for entity in path[1::2] if entity not in told]
    return Question(first, tuple(told), second, answer, path, tuple(dict.fromkeys(hidden)))


def _farthest(entities: Sequence[str], distance: Mapping[str, int]) -> list[str]:
    """Those at the greatest distance."""
    most = max((distance[entity] for entity in entities), default=0)
    return [entity for entity in entities if distance[entity] == most]


def right_answer(text: str, answer: str) -> bool:
    """Whether a list in text (comma-separated, fewer than ten items) has the answer as an item, ignoring case.

    >>> right_answer("url:3, ip:4", "ip:4"), right_answer(", ".join(f"ip:{n}" for n in range(16)), "ip:4")
    (True, False)
    """
    items = [item.strip().casefold() for item in text.replace("\\n", ",").split(",") if item.strip()]
    return len(items) < 10 and answer.casefold() in items


def lengths(asked: Sequence[Question]) -> Counter[int]:
    """Counter {length of the path: number of questions} of a list of `Question`s."""
    return Counter(len(question.path) for question in asked)
