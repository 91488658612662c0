"""Scripted play of `GraphGame` with JSON messages: what agents reach by rules alone.

`flood`: tell everything that one knows about the graph, then solve it in one's head; right whenever news can cross the
graph in the given rounds. `local`: the classical rules, in which little is said. Each is a script that recipes can name
(`palaestra.envs.worlds.protocols:flood`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palaestra.envs.worlds.exact.networks import solve

Play = Callable[[Any], str]
"""From a `palaestra.agents.Request` to an action."""


def _facts(request: Any) -> tuple[dict[str, Any], bool]:
    """Facts that the agent observes, and whether it has to answer."""
    facts: dict[str, Any] = json.loads(request.observation.text.rsplit("\n", 1)[1])
    return facts, facts["round"] > facts["rounds"]


def _say(problem: str, answer: int) -> str:
    if problem == "matching":
        return "nobody" if answer < 0 else f"n{answer}"
    return (
        f"group {answer + 1}"
        if problem == "colouring"
        else str(answer)
        if problem == "consensus"
        else ("yes" if answer else "no")
    )


def flood(problem: str) -> Play:
    """Makes a policy function (request -> text) of graph game `problem`: shares all known edges, then solves.

    Messages are JSON by neighbour; the last word is the answer.
    """

    def play(request: Any) -> str:
        facts, last = _facts(request)
        known = {facts["you"]: facts["neighbours"]}
        for message in {text for inbox in facts["received"] for text in inbox.values()}:
            known |= {name: others.split() for name, _, others in (part.partition(":") for part in message.split(";"))}
        if not last:
            news = ";".join(f"{name}:{' '.join(others)}" for name, others in known.items())
            return json.dumps(dict.fromkeys(facts["neighbours"], news))
        names = sorted({*known, *(other for others in known.values() for other in others)}, key=lambda n: int(n[1:]))
        adjacent = np.array([[b in known.get(a, ()) or a in known.get(b, ()) for b in names] for a in names])
        answer = solve(problem, adjacent)[names.index(facts["you"])]
        if problem == "matching" and answer >= 0:
            answer = int(names[answer][1:])
        return _say(problem, answer)

    return play


def local(problem: str) -> Play:
    """Makes a policy function (request -> text) of graph game `problem`: a classic local protocol (flood-max, …).

    Flood-max (consensus, leader), greedy by name (colouring, cover: neighbours of greater name decide first), or random
    handshakes (matching: two agents who ask each other in one round are a pair).
    """
    rules: Mapping[str, Callable[[str], Play]] = {"matching": _handshake}
    return rules.get(problem, _flood_max if problem in ("consensus", "leader") else _greedy)(problem)


def _flood_max(problem: str) -> Play:
    def play(request: Any) -> str:
        facts, last = _facts(request)
        own = int(facts["you"][1:])
        greatest = max([own, *(int(text) for inbox in facts["received"] for text in inbox.values())])
        if last:
            return _say(problem, greatest % 2 if problem == "consensus" else int(greatest == own))
        return json.dumps(dict.fromkeys(facts["neighbours"], str(greatest)))

    return play


def _greedy(problem: str) -> Play:
    def play(request: Any) -> str:
        facts, last = _facts(request)
        told = {name: int(text) for inbox in facts["received"] for name, text in inbox.items() if text}
        before = [name for name in facts["neighbours"] if int(name[1:]) > int(facts["you"][1:])]
        mine = next((text for sent in facts["sent"] for text in sent.values() if text), "")
        if not mine and (last or all(name in told for name in before)):
            taken = {told[name] for name in (facts["neighbours"] if last else before) if name in told}
            if problem == "colouring":
                mine = str(next(colour for colour in range(len(taken) + 1) if colour not in taken))
            else:
                mine = str(int(0 in taken))
        return _say(problem, int(mine)) if last else json.dumps(dict.fromkeys(facts["neighbours"], mine))

    return play


def _handshake(problem: str) -> Play:
    def play(request: Any) -> str:
        facts, last = _facts(request)
        pairs = zip(facts["sent"], facts["received"], strict=True)
        partner = next((n for sent, got in pairs for n in sent if sent[n] == got.get(n) == "you?"), None)
        latest = facts["received"][-1] if facts["received"] else {}
        free = [name for name in facts["neighbours"] if latest.get(name) != "taken"]
        if last:
            return partner or (free[0] if free else "nobody")
        asked = partner or (str(request.rng.choice(free)) if free else "")
        word = "taken" if partner else "free"
        return json.dumps({name: "you?" if name == asked and not partner else word for name in facts["neighbours"]})

    return play
