"""Trust of an observer in its peers, from what they did: the peer score of GossipSub v1.1, for agents of any kind.

Score = min(cap, Σ_t w_t (w1·P1 + w2·P2 + w3·P3 + w3b·P3b + w4·P4)) + w5·P5 + w6·P6 + w7·P7. Credit for time and for
first deliveries is capped; missing deliveries count squared; what was lost at a prune stays for a while. The
specification lets P3b grow at a prune only; a formal model (code github.com/gossipsubfm/gossipsubfm) also counts the
deficit of now. Left out: theorem proving; `counterexample` searches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestra.errors import InputError

COUNTERS = ("mesh", "first", "delivered", "failures", "invalid")
"""Per peer and topic: intervals in the mesh, first and all deliveries, squared deficits at prunes, invalid messages."""
Reading = Literal["specification", "model"]


@dataclass(frozen=True)
class Topic:
    """Data of the weights of one topic in gossipsub's peer score; names as in the specification.

    All counters decay by factors per interval.

    Attributes:
        weight: w_t. w1, mesh_cap: credit per interval in the mesh, and up to how many. w2, first_cap: credit per first
            delivery, and up to how many are counted. w3, threshold, activation: for the squared deficit of deliveries,
            once a peer has been in the mesh for so many intervals. delivered_cap: up to how many deliveries are
            counted. w3b: for deficits at prunes. w4: for the squared number of invalid messages.
        decay: factors of first, delivered, failures and invalid per interval.
    """

    weight: float = 1.0
    w1: float = 0.0324
    mesh_cap: float = 300.0
    w2: float = 1.0
    first_cap: float = 23.0
    w3: float = -0.717
    threshold: float = 5.0
    activation: float = 1.0
    w3b: float = -0.717
    w4: float = -140.4475
    decay: tuple[float, float, float, float] = (0.99, 0.97, 0.99, 0.99)
    delivered_cap: float = np.inf

    def score(self, counters: Mapping[str, Any], reading: Reading = "specification") -> np.ndarray:
        """A peer's weighted score in this topic, float64[peers], from its counters by name (`COUNTERS`)."""
        mesh, first, delivered, failures, invalid = (np.asarray(counters[name], float) for name in COUNTERS)
        deficit = np.where(mesh >= self.activation, np.maximum(self.threshold - delivered, 0.0) ** 2, 0.0)
        sticky = failures + (deficit if reading == "model" else 0.0)
        credit = self.w1 * np.minimum(mesh, self.mesh_cap) + self.w2 * np.minimum(first, self.first_cap)
        return np.asarray(self.weight * (credit + self.w3 * deficit + self.w3b * sticky + self.w4 * np.square(invalid)))


@dataclass
class PeerScore:
    """GossipSub peer scores: counts events of all peers, lets counters decay per interval, and gives their scores.

    Attributes:
        topics: by name. cap: of the sum over topics. application, colocation, behaviour: w5, w6 and w7; colocation
            counts the squared surplus of peers at one address over `allowed`, behaviour the squared penalties.
        snap: a counter below this is 0. thresholds: gossip, publish and graylist, each at most the one before.
        reading: of P3b.
    """

    topics: Mapping[str, Topic]
    cap: float = 32.72
    application: float = 1.0
    colocation: float = -35.11
    behaviour: float = -15.92
    allowed: int = 10
    behaviour_decay: float = 0.99
    snap: float = 0.01
    thresholds: tuple[float, float, float] = (-4000.0, -8000.0, -16000.0)
    reading: Reading = "specification"
    counters: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    penalties: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> PeerScore:
        """A `PeerScore` from plain data: `topics` with a mapping of weights each, and the other attributes.

        Raises:
            InputError: a name or a value is not one of them.
        """
        try:
            rest = {name: value for name, value in options.items() if name != "topics"}
            topics = {name: Topic(**weights) for name, weights in options["topics"].items()}
            return cls(topics=topics, **rest)
        except (KeyError, TypeError, AttributeError) as error:
            known = ", ".join(each.name for each in dataclasses.fields(Topic))
            raise InputError(f"weights of peer scores: `topics` by name, each with some of {known}; {error}") from error

    def event(self, peer: str, topic: str, kind: str) -> None:
        """Count an event of a peer: `join`, `first`, `delivered`, `invalid`, `prune` or `behaviour`.

        `first` is also a delivery. Deliveries are those of members of the mesh. Counters of deliveries stop at their
        caps, so that a burst is forgotten as fast as what is due.

        Raises:
            InputError: there is no such topic or kind.
        """
        if kind == "behaviour":
            self.penalties[peer] = self.penalties.get(peer, 0.0) + 1
            return
        if topic not in self.topics or kind not in ("join", "first", "delivered", "invalid", "prune"):
            raise InputError(f"event {kind!r} of topic {topic!r}: topics are {', '.join(self.topics)}")
        weights = self.topics[topic]
        found = self.counters.setdefault(peer, {}).setdefault(topic, dict.fromkeys((*COUNTERS, "member"), 0.0))
        if kind == "join":
            found["member"] = 1.0
        elif kind == "prune":
            if found["mesh"] >= weights.activation:
                found["failures"] += max(weights.threshold - found["delivered"], 0.0) ** 2
            found["member"] = found["mesh"] = 0.0
        elif kind == "invalid":
            found["invalid"] += 1
        else:
            if kind == "first":
                found["first"] = min(found["first"] + 1, weights.first_cap)
            found["delivered"] = min(found["delivered"] + found["member"], weights.delivered_cap)

    def interval(self) -> None:
        """Advance by one interval: mesh time of members grows by one, all other counters decay."""
        for topics in self.counters.values():
            for name, found in topics.items():
                found["mesh"] += found["member"]
                for counter, factor in zip(COUNTERS[1:], self.topics[name].decay, strict=True):
                    found[counter] = decayed(found[counter], factor, self.snap)
        for peer, value in self.penalties.items():
            self.penalties[peer] = decayed(value, self.behaviour_decay, self.snap)

    def score(self, peer: str, *, application: float = 0.0, at_address: int = 1) -> float:
        """The score of a peer. application: P5. at_address: how many peers have its address."""
        found = self.counters.get(peer, {})
        of_topics = {name: self.topics[name].score(found[name], self.reading) for name in found}
        return self.total(of_topics.values(), self.penalties.get(peer, 0.0), application, at_address)

    def total(self, of_topics: Any, penalty: float = 0.0, application: float = 0.0, at_address: float = 1) -> float:
        """Total score: the capped sum of the topics' scores, plus application, address and behaviour terms."""
        surplus = max(at_address - self.allowed, 0.0)
        whole = min(self.cap, float(sum(of_topics)))
        return whole + self.application * application + self.colocation * surplus**2 + self.behaviour * penalty**2

    def standing(self, score: float) -> str:
        """Treatment of a peer by its score: "mesh", "pruned" (below 0), "no gossip", "no publish" or "graylisted"."""
        names = ("no gossip", "no publish", "graylisted")
        below = [name for name, least in zip(names, self.thresholds, strict=True) if score < least]
        return below[-1] if below else "mesh" if score >= 0 else "pruned"


def decayed(value: float, factor: float, snap: float) -> float:
    """Counter `value` after one interval's decay by `factor`; below `snap` it becomes 0.

    >>> decayed(10.0, 0.5, 0.1), decayed(0.15, 0.5, 0.1)
    (5.0, 0.0)
    """
    later = value * factor
    return later if later >= snap else 0.0


def behaviour_bounds(score: PeerScore, silent: str) -> dict[tuple[str, str], float]:
    """Dict (topic, counter) -> upper bound for a `PeerScore` in `counterexample`; 0 first deliveries in `silent`."""
    found: dict[tuple[str, str], float] = {}
    for name, topic in score.topics.items():
        found[name, "mesh"] = 2 * topic.mesh_cap
        found[name, "first"] = 0.0 if name == silent else 2 * topic.first_cap
        found[name, "failures"] = topic.threshold**2
        found[name, "invalid"] = 20.0
    found["", "penalty"] = 20.0
    found["", "at_address"] = 4.0 * score.allowed
    return found


def counterexample(
    score: PeerScore, silent: str, *, tries: int = 400, climb: bool = True, seed: int = 0
) -> tuple[float, dict[str, float]]:
    """(score, behaviour dict): largest that random search finds by `PeerScore` for a peer that never forwards `silent`.

    Buying off is possible if that score is >= 0.

    Args:
        score: whose weights are tried.
        silent: the topic that the peer never forwards although it has long been in its mesh.
        tries: behaviours to look at.
        climb: change one counter of the best behaviour so far at a time; otherwise all are drawn anew for each try.
        seed: of the draws.

    Returns:
        the largest score found, and its behaviour: counters by `topic.counter`.
    """
    rng, bounds = np.random.default_rng(seed), behaviour_bounds(score, silent)
    names, most = list(bounds), np.array(list(bounds.values()))
    best = rng.random(len(names)) * most
    value = _valued(score, dict(zip(names, best, strict=True)), silent)
    for step in range(tries - 1):
        if climb:
            tried = best.copy()
            at = step % len(names)
            tried[at] = most[at] * rng.choice([0.0, 1.0, rng.random()])
        else:
            tried = rng.random(len(names)) * most
        found = _valued(score, dict(zip(names, tried, strict=True)), silent)
        if found >= value:
            best, value = tried, found
    return value, {".".join(filter(None, name)): float(x) for name, x in zip(names, best, strict=True)}


def _valued(score: PeerScore, behaviour: Mapping[tuple[str, str], float], silent: str) -> float:
    """The score of a behaviour; in every topic the peer has been in the mesh for longer than its activation."""
    of_topics = []
    for name, topic in score.topics.items():
        found = {each: behaviour.get((name, each), 0.0) for each in COUNTERS}
        found["mesh"] = max(found["mesh"], topic.activation)
        found["delivered"] = 0.0 if name == silent else found["first"]
        of_topics.append(topic.score(found, score.reading))
    return score.total(of_topics, behaviour["", "penalty"], 0.0, behaviour["", "at_address"])


def simulate(
    score: PeerScore,
    adjacent: np.ndarray,
    misbehaves: Sequence[bool] | np.ndarray,
    silent: str,
    *,
    honest: int = 0,
    intervals: int = 60,
    messages: int = 6,
) -> tuple[np.ndarray, float]:
    """Simulates gossip by a `PeerScore`, neighbours scored < 0 pruned: (mesh bool[n, n], share of links that forward).

    Nodes marked in `misbehaves` do not forward topic `silent`.

    Args:
        score: the weights; each pair of nodes has counters of its own.
        adjacent: bool[n, n], symmetric; the meshes in the beginning.
        misbehaves: bool[n].
        silent: the topic.
        honest: intervals before they misbehave.
        intervals: how long.
        messages: how many every member forwards first, per interval, topic and neighbour.

    Returns:
        bool[n, n], the meshes in the end; and the share of their links through which `silent` arrives.
    """
    mesh, bad = np.array(adjacent, bool), np.asarray(misbehaves, bool)
    links = [dataclasses.replace(score, counters={}, penalties={}) for _ in range(len(mesh))]
    for node, peer in np.argwhere(mesh):
        for topic in score.topics:
            links[node].event(str(peer), topic, "join")
    for now in range(intervals):
        for node, peer in np.argwhere(mesh):
            for topic in score.topics:
                if not (topic == silent and bad[peer] and now >= honest):
                    for _ in range(messages):
                        links[node].event(str(peer), topic, "first")
        for node in range(len(mesh)):
            links[node].interval()
        for node, peer in np.argwhere(mesh):
            if links[node].standing(links[node].score(str(peer))) != "mesh":
                mesh[node, peer] = mesh[peer, node] = False
                for topic in score.topics:
                    links[node].event(str(peer), topic, "prune")
    reached = mesh & ~bad[None, :]
    return mesh, float(reached.sum() / max(mesh.sum(), 1))
