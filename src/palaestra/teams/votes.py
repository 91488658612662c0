"""Further rules of a graph: votes with weights, votes that need a quorum, and several gates one after the other.

aggregate: weighted({'expert': 3})
aggregate: quorum(3, otherwise="of('judge')")
gate: in_turn("readable()", "top(2)")
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from palaestra.errors import InputError
from palaestra.teams.instructions import family
from palaestra.teams.rules import AGGREGATES, GATES, Aggregate, Draw, Gate, Message, Verdict, ballots, elected


@AGGREGATES.register("weighted")
def weighted(weights: Mapping[str, float], default: float = 1.0) -> Aggregate:
    """Makes an aggregate (messages -> the team's): the answer of most total weight by {role: weight}, ties drawn.

    Args:
        weights: Role, or role without its number, -> how much its vote counts, at least 0.
        default: Weight of everybody else.

    Raises:
        InputError: a weight is negative or not finite.
    """
    for role, weight in (*weights.items(), ("default", default)):
        if not (isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0):
            raise InputError(f"weighted: the weight of {role!r} is {weight!r}, expected a number of at least 0")

    def aggregate(said: Sequence[Message], draw: Draw) -> Message:
        return elected(said, lambda each: weights.get(each.role, weights.get(family(each.role), default)), draw)

    return aggregate


@AGGREGATES.register("quorum")
def quorum(least: int, otherwise: str = "last()") -> Aggregate:
    """Makes an aggregate (messages -> the team's): the commonest answer if `least` roles give it, else `otherwise`'s.

    Raises:
        InputError: `least` is below 1, or there is no such aggregate.
    """
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise InputError(f"quorum: least={least!r}, expected a whole number of at least 1")
    vote, fallback = AGGREGATES.build("vote()"), AGGREGATES.build(otherwise)

    def aggregate(said: Sequence[Message], draw: Draw) -> Message:
        most = max(Counter(each.vote for each in ballots(said)).values())
        return (vote if most >= least else fallback)(said, draw)

    return aggregate


@GATES.register("in_turn")
def in_turn(*gates: str) -> Gate:
    """Makes a gate of several gates (by text): each judges only messages that earlier ones let pass; weights multiply.

    Raises:
        InputError: there are none, or one is unknown.
    """
    if not gates:
        raise InputError('in_turn: name at least one gate: in_turn("readable()", "top(2)")')
    made = [GATES.build(gate) for gate in gates]

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        verdicts: list[Verdict] = [(1.0, None)] * len(said)
        for each in made:
            passed = [at for at, (_, held) in enumerate(verdicts) if held is None]
            if not passed:
                break
            judged = each(receiver, own, [said[at] for at in passed], draw)
            for at, (weight, held) in zip(passed, judged, strict=True):
                verdicts[at] = (verdicts[at][0] * weight, held)
        return verdicts

    return gate
