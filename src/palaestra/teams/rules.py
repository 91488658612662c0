"""Rules of a graph of roles: what travels (gates), who acts (routes), what counts (aggregates), when it ends (stops).

A rule is a function of what was said; the texts of recipes name one of a registry, with options: `gate: top(2)`. Rules
draw from the episode's own stream, so that an episode is the same wherever it is played. Left out: rules that learn;
a choice that is learned is a seat of its own (`palaestra.teams.orchestrator`).
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from palaestra.envs.replies import bare_name
from palaestra.envs.task_keys import normalise
from palaestra.errors import InputError
from palaestra.foundation.registry import Registry
from palaestra.teams.bids import marks_in, number_in

_HOME = ("palaestra.teams.rules",)


class Message(NamedTuple):
    """Data of a role's last message: its answer, that answer's score (None: unreadable), when, and if it accepted.

    held: why nobody hears it, and it does not count, unless nothing else does. reply: all that chat models read of it,
    where `text` is the answer alone. form: where the answer stood in it, one of `palaestra.envs.replies.FORMS`. says:
    what its task takes the answer for; "": its text, normalised.
    """

    role: str
    text: str
    score: float | None
    turn: int
    round: int
    accepts: bool = False
    held: str | None = None
    reply: str = ""
    form: str = "whole"
    says: str = ""

    @property
    def vote(self) -> str:
        """What the answer says: equal for answers that are the same, however they are written."""
        return self.says or normalise(self.text)


Draw = Callable[[], np.random.Generator]
"""The episode's stream, made when a rule first draws."""
Verdict = tuple[float, str | None]
"""How much a message weighs, and why it was held back (None: it was not)."""
Gate = Callable[[str, Message | None, Sequence[Message], Draw], list[Verdict]]
"""(receiver, what it said last, what is on its way to it, stream) -> a verdict for each message."""
Route = Callable[[Sequence[str], Sequence[Message], Draw], Sequence[str]]
"""(roles whose turn it would be, what everybody said last, stream) -> those that act."""
Aggregate = Callable[[Sequence[Message], Draw], Message]
"""(what everybody said last, the latest last; stream) -> whose answer is the team's."""
Stop = Callable[[Sequence[Message]], bool]
"""What was said last by everybody -> whether nothing more needs to be said; asked after each turn."""
Verifier = Callable[[float | None, Draw], float | None]
"""The task's own score of an answer -> the score that rules see; what the team is paid for is the task's own."""

GATES: Registry[Gate] = Registry("gate", home=_HOME, example="top(2)")
ROUTES: Registry[Route] = Registry("route", home=_HOME, example="sampled(2)")
AGGREGATES: Registry[Aggregate] = Registry("aggregate", home=_HOME, example="vote()")
VERIFIERS: Registry[Verifier] = Registry("verifier", home=_HOME, example="noisy(0.1)")
STOPS: Registry[Stop] = Registry("stop", home=_HOME, example="agree(share=0.67)")


# -- gates ------------------------------------------------------------------------------------------------------------


@GATES.register("all")
def all_() -> Gate:
    """Makes a gate (which messages reach a role), no arguments: every message arrives."""
    return lambda receiver, own, said, draw: [(1.0, None)] * len(said)


@GATES.register("kept")
def kept(share: float) -> Gate:
    """Makes a gate (which messages reach a role): each arrives with probability `share`, drawn independently."""
    _share("kept", share)

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        return [(1.0, None if luck < share else "not drawn") for luck in draw().random(len(said))]

    return gate


@GATES.register("top")
def top(most: int) -> Gate:
    """Makes a gate (which messages reach a role): the `most` whose answers are commonest; ties by speaking order."""
    _whole("top", most)
    held = f"not among the {most}"

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        votes = Counter(each.vote for each in said)
        weights = [votes[each.vote] / len(said) for each in said]
        chosen = sorted(range(len(said)), key=weights.__getitem__, reverse=True)[:most]
        return [(weight, None if at in chosen else held) for at, weight in enumerate(weights)]

    return gate


@GATES.register("best")
def best(most: int = 1) -> Gate:
    """Makes a gate (which messages reach a role): the `most` messages with the best scores, as the verifier gives them.

    By default the task's own.
    """
    _whole("best", most)
    held = f"not among the {most} best"

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        scores = [-np.inf if each.score is None else each.score for each in said]
        chosen = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:most]
        return [(1.0, None if at in chosen else held) for at in range(len(scores))]

    return gate


@GATES.register("readable")
def readable() -> Gate:
    """Makes a gate (which messages reach a role), no arguments: those with a score, which the task could read.

    The verifier `accepts` scores all of them.
    """

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        return [(1.0, None if each.score is not None else "cannot be read") for each in said]

    return gate


@GATES.register("named")
def named(by: str) -> Gate:
    """Makes a gate (which messages reach a role): those of roles that role `by` names, OPTAGENT [24] (2510.18032).

    `b c` by all, `a: b c; b: a` by each.

    Its own word is no message. Before it has spoken, and where it is not heard, everybody arrives.
    """

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        word = next((each.text for each in said if each.role == by), None)
        if word is None:
            return [(1.0, None)] * len(said)
        if ":" in word:
            parts = (part.partition(":") for part in word.split(";"))
            word = " ".join(names for head, _, names in parts if head.strip() == receiver)
        chosen = set(map(bare_name, re.split(r"[\s,]+", word))) - {by}
        return [(1.0, None if each.role in chosen else f"not named by {by}") for each in said]

    return gate


@GATES.register("contribution")
def contribution(least: float = 0.5) -> Gate:
    """Makes a gate (which messages reach a role): those at least `least` like its own that contributed more.

    SelfOrg's rule [40] (arXiv 2510.00685). A role that has said nothing gets all.

    The contribution of a message is its mean likeness to all; likeness is the share of trigrams of characters that two
    texts have in common, in place of the cosine of embeddings.
    """
    _share("contribution", least)

    def gate(receiver: str, own: Message | None, said: Sequence[Message], draw: Draw) -> list[Verdict]:
        if own is None:
            return [(1.0, None)] * len(said)
        every = [own, *said]
        likeness = [[alike(one.text, other.text) for other in every] for one in every]
        means = [sum(row) / len(row) for row in likeness]
        found: list[Verdict] = []
        for at in range(1, len(every)):
            reason = "unlike" if likeness[0][at] < least else "contributed no more" if means[at] <= means[0] else None
            found.append((means[at], reason))
        return found

    return gate


# -- routes -----------------------------------------------------------------------------------------------------------


@ROUTES.register("everyone")
def everyone() -> Route:
    """Makes a route (which roles of a step act), no arguments: all of them."""
    return lambda roles, said, draw: roles


@ROUTES.register("sampled")
def sampled(most: int) -> Route:
    """Makes a route (which roles of a step act): `most` of them, drawn at random."""
    _whole("sampled", most)

    def route(roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        chosen = set(draw().permutation(len(roles))[:most].tolist())
        return [role for at, role in enumerate(roles) if at in chosen]

    return route


@ROUTES.register("agreeing")
def agreeing(most: int, start: int = 2, above: int = 0) -> Route:
    """Makes a route (which roles of a step act): from round `start` on the `most` that others agree with most.

    DyLAN's pruning [135] (arXiv 2310.02170).

    Equally shared ones are drawn. start: the first round, from 1, in which only they act; not the first. above: while
    no more than so many are left, all of them go on. Who was left out once stays out. The paper (start=3, above=3) asks
    a language model to rank the answers; this is its rule for answers that can be compared.
    """
    _whole("agreeing", most)
    if start < 2 or above < 0:
        raise InputError(f"agreeing: start={start}, expected at least 2, and above={above} at least 0")

    def route(roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        last = {each.role: each for each in said}
        if any(role not in last for role in roles):
            return roles
        newest = max(last[role].round for role in roles)
        left = [role for role in roles if last[role].round == newest]
        if newest + 2 < start or len(left) <= above:
            return left
        votes = Counter(each.vote for each in ballots([last[role] for role in left]))
        drawn = [left[at] for at in draw().permutation(len(left))]
        chosen = sorted(drawn, key=lambda role: -votes[last[role].vote])[:most]
        return [role for role in left if role in chosen]

    return route


@ROUTES.register("winner")
def winner() -> Route:
    """Makes a route (which roles act), no arguments: all until each has bid a number, then the highest bidder alone.

    An auction.

    Of equal bids the first counts.
    """

    def route(roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        bids = {each.role: number_in(each.text) for each in said if each.round == 0}
        if any(role not in bids for role in roles):
            return roles
        return [max(roles, key=lambda role: bids[role])]

    return route


@ROUTES.register("refused")
def refused(checker: str = "check-") -> Route:
    """Makes a route (which roles of a step act): again only roles whose checker did not accept their last message.

    The checker's name is the prefix `checker` and the role's name.

    A step in which nobody acts is passed over.
    """

    def route(roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        last = {each.role: each for each in said}
        return [
            role for role in roles if role not in last or checker + role not in last or not last[checker + role].accepts
        ]

    return route


@ROUTES.register("awarded")
def awarded(prices: Sequence[float], weight: float = 1.0, best: float = 5.0) -> Route:
    """Makes a route (which roles act): once plans are marked, the best for its price; `prices`, one per bidder.

    SALE's auction [85].

    arXiv 2602.02751.

    The bidder with the least weight · price · words of its plan - Σ marks acts, of equal ones the first. prices: of the
    step's roles, in their order. A juror says a mark from 0 to `best` for each bidder, see `marks_in`; others count 0.
    """
    if not prices or min(prices) < 0 or weight < 0:
        raise InputError(f"awarded: prices={list(prices)} and weight={weight}: at least 0, one for each bidder")

    def route(roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        last = {each.role: each for each in said}
        if any(role not in last for role in roles):
            return roles
        if len(prices) != len(roles):
            raise InputError(f"awarded: {len(prices)} prices for the bidders {list(roles)}")
        scores = [weight * price * len(last[role].text.split()) for role, price in zip(roles, prices, strict=True)]
        for juror in (each for each in said if each.role not in roles):
            for at, mark in enumerate(marks_in(juror.text, roles)):
                scores[at] -= mark if 0 <= mark <= best else 0.0
        return [roles[int(np.argmin(scores))]]

    return route


# -- aggregates -------------------------------------------------------------------------------------------------------


@AGGREGATES.register("vote")
def vote(without: str = "") -> Aggregate:
    """Makes an aggregate (messages -> the team's): the commonest answer, ties drawn; role `without` has no vote."""

    def aggregate(said: Sequence[Message], draw: Draw) -> Message:
        return elected([each for each in said if each.role != without] or said, lambda each: 1.0, draw)

    return aggregate


@AGGREGATES.register("last")
def last() -> Aggregate:
    """Makes an aggregate (messages -> the team's answer), no arguments: the message of the last speaker."""
    return lambda said, draw: said[-1]


@AGGREGATES.register("of")
def of(role: str) -> Aggregate:
    """Makes an aggregate (messages -> the team's answer): the last message of `role`, else of the last speaker."""
    return lambda said, draw: next((each for each in said if each.role == role), said[-1])


@AGGREGATES.register("best_scored")
def best_scored() -> Aggregate:
    """Makes an aggregate (messages -> the team's answer), no arguments: the one of best score, the first of equals.

    The score is the verifier's; by default the task's own.
    """
    return lambda said, draw: max(said, key=lambda each: -np.inf if each.score is None else each.score)


@AGGREGATES.register("central")
def central() -> Aggregate:
    """Makes an aggregate (messages -> the team's answer), no arguments: the one most similar to all, by trigrams.

    Trigrams of characters.

    Of equal ones the first; see `contribution`.
    """
    return lambda said, draw: max(said, key=lambda one: sum(alike(one.text, other.text) for other in said))


# -- stops ------------------------------------------------------------------------------------------------------------


@STOPS.register("never")
def never() -> Stop:
    """Makes a stop rule (messages -> bool), no arguments: never true, so that only the last round ends the talk."""
    return lambda said: False


@STOPS.register("agree")
def agree(share: float = 1.0, least: int = 2) -> Stop:
    """Makes a stop rule (messages -> bool): of at least `least` last answers more than `share` agree (1: all)."""
    _share("agree", share)
    if least < 1:
        raise InputError(f"agree: least={least}, expected at least 1")

    def stop(said: Sequence[Message]) -> bool:
        most = max(Counter(each.vote for each in ballots(said)).values())
        return len(said) >= least and (most == len(said) or most > share * len(said))

    return stop


@STOPS.register("verified")
def verified(least: float = 1.0) -> Stop:
    """Makes a stop rule (messages -> bool): anybody's last answer has a score, by the verifier, of at least `least`."""
    return lambda said: any(each.score is not None and each.score >= least for each in said)


@STOPS.register("accepted")
def accepted(by: str) -> Stop:
    """Makes a stop rule (messages -> bool): the role `by` accepts what it read."""
    return lambda said: any(each.role == by and each.accepts for each in said)


# -- verifiers --------------------------------------------------------------------------------------------------------


@VERIFIERS.register("exact")
def exact() -> Verifier:
    """Makes a verifier (true task score -> reported score), no arguments: reports the score itself."""
    return lambda score, draw: score


@VERIFIERS.register("noisy")
def noisy(deviation: float) -> Verifier:
    """Makes a verifier (true task score -> reported score): adds normal noise of sd `deviation`; None stays None."""
    if not deviation >= 0:
        raise InputError(f"noisy: deviation={deviation} must be at least 0")
    return lambda score, draw: None if score is None else score + deviation * float(draw().normal())


@VERIFIERS.register("accepts")
def accepts(tpr: float = 1.0, fpr: float = 0.0, *, least: float = 1.0) -> Verifier:
    """Makes a verifier (true score -> 1.0 or 0.0): a score >= `least` passes with chance `tpr`, others with `fpr`."""
    if not 0 <= tpr <= 1 or not 0 <= fpr <= 1:
        raise InputError(f"accepts: tpr={tpr} and fpr={fpr} must be from 0 to 1")
    return lambda score, draw: float(draw().random() < (tpr if score is not None and score >= least else fpr))


# -- what rules share -------------------------------------------------------------------------------------------------


def ballots(said: Sequence[Message]) -> list[Message]:
    """Messages that have a vote: those that the task could read, or all if it could read none."""
    return [each for each in said if each.score is not None] or list(said)


def elected(said: Sequence[Message], weight: Callable[[Message], float], draw: Draw) -> Message:
    """The message whose answer has the most weight of votes, in its commonest spelling; of equals one is drawn."""
    same: dict[str, list[Message]] = {}
    for each in ballots(said):
        same.setdefault(each.vote, []).append(each)
    totals = [sum(map(weight, group)) for group in same.values()]
    tied = [group for group, total in zip(same.values(), totals) if math.isclose(total, max(totals))]
    group = tied[0] if len(tied) == 1 else tied[int(draw().integers(len(tied)))]
    spelled = Counter(each.text for each in group)
    return max(group, key=lambda each: spelled[each.text])


@functools.lru_cache(4096)
def _trigrams(text: str) -> frozenset[str]:
    padded = f"  {text}  "
    return frozenset(padded[at : at + 3] for at in range(len(padded) - 2))


def alike(one: str, other: str) -> float:
    """Similarity of two texts from 0 to 1: Jaccard index of their character trigrams."""
    if one == other:
        return 1.0
    first, second = _trigrams(one), _trigrams(other)
    return len(first & second) / len(first | second)


def _share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        nothing = ", which lets nothing through" if share <= 0 else ""
        raise InputError(f"{name}: {share} is no share: expected more than 0 and at most 1{nothing}")


def _whole(name: str, most: int) -> None:
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"{name}: {most!r}, expected a whole number of at least 1: else nothing gets through")
