"""[109] What people's messages give away: misalignment, stagnation, disengagement, satisfaction (arXiv 2604.00356).

Rules and thresholds are those of the released code, but numbers are no words of a person, and in a team the turns of
each hearer count by themselves; the phrases are our own, in English. Another language is another
table: `interaction(turns, phrases=…)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage.detection import Detection, found
from palaestra.evaluation.triage.talk import FILLER, jaccard, messages, phrase_match, trigrams, words

PHRASES: dict[str, tuple[str, ...]] = {
    "misalignment.correction": (
        "no that's wrong", "that's not what i asked", "that's not what i meant", "^i said", "^i meant",
        "i already said", "i already told you", "not what i wanted", "you misunderstood", "^that is incorrect",
        "^that's incorrect", "^that's wrong", "you got it wrong", "you got that wrong", "please correct that",
        "^not that one", "^that's not right", "^that is not right", "^that isn't right", "^i never said",
        "^i never asked",
    ),
    "misalignment.clarification": (
        "^what do you mean", "^i don't understand", "can you clarify", "could you explain that", "that's unclear",
        "=i'm confused", "^i'm confused by your", "please be more specific",
    ),
    "disengagement.escalation": (
        "talk to a human", "speak to a human", "speak with a human", "speak to a person", "talk to a person",
        "talk to a real person", "speak to a real person", "speak to your manager", "talk to your manager",
        "talk to your supervisor", "get me a human", "i want a human", "transfer me to a human",
        "connect me to a human", "^i will file a complaint", "^i want to file a complaint", "^i'll file a complaint",
        "a human agent please", "i need a human", "i need a real person", "a real person please",
    ),
    "disengagement.quit": (
        "^never mind", "=forget it", "=forget about it", "=i give up", "^i give up on", "=i'm done",
        "^i'm done with you", "^i'm done with this", "^i'll do it myself", "^i'll just do it myself",
        "^let's stop here", "=cancel everything",
    ),
    "disengagement.negative_stance": (
        "^this is useless", "you're useless", "you are useless", "^this is ridiculous", "^what a waste of time",
        "waste of my time", "you're wasting my time", "you're not helping", "you are not helping",
        "^this is frustrating", "^this is terrible", "^that's terrible", "you're terrible", "=terrible",
        "^terrible service", "you're the worst", "you are the worst", "^worst", "^so annoying",
        "^this is so annoying", "=annoying", "^this isn't working", "^this is not working", "^still not fixed",
        "^still not working", "^it still doesn't work",
    ),
    "satisfaction.gratitude": (
        "thank you", "^thanks", "much appreciated", "^i appreciate it", "=cheers", "many thanks", "=thx",
        "a lot thanks",
    ),
    "satisfaction.confirmation": (
        "^that's right", "^that's correct", "exactly what i needed", "exactly what i wanted", "^looks good",
        "that looks good", "^yes that's it", "^that's it", "=perfect", "^perfect thank",
    ),
    "satisfaction.success": (
        "=it works", "^it works now", "it works perfectly", "=that worked", "=problem solved", "^it's fixed now",
        "=it's fixed", "=all set", "^that did it", "it works again",
    ),
}  # fmt: skip
_DIGITS = re.compile(r"\d+")
_CODE = re.compile(r"[_=;{}<>]|\bSELECT\b.*\bFROM\b")
MISALIGNED = ("misalignment.correction", "misalignment.rephrase", "misalignment.clarification")


def interaction(turns: Turns, phrases: Mapping[str, Sequence[str]] = PHRASES) -> pl.DataFrame:
    """DataFrame of detections from phrases of users in `Turns`: misalignment, disengagement, stagnation, satisfaction.

    Types are `interaction.…`.

    See `detect`.
    """
    rows: list[Detection] = []
    agents = turns["agent"].to_list() if "agent" in turns.columns else [None] * len(turns)
    for _, talk in messages(turns).group_by("episode", maintain_order=True):
        said = list(talk.select("row", "role", "text").iter_rows())
        human = [(row, text) for row, role, text in said if role == "human"]
        told: dict[Any, list[str]] = {}  # by who heard it: all members of a team are told the task
        for row, text in human:
            before = told.setdefault(agents[row], [])
            rows += _misaligned(row, text, before[-3:], phrases)
            rows += _spoken(row, text, phrases)
            before.append(text)
        rows += _stagnation(human, said, agents)
    return found(rows, "interaction")


def _misaligned(row: int, text: str, before: list[str], phrases: Mapping[str, Sequence[str]]) -> Iterator[Detection]:
    """The first of correction, rephrase and clarification that hits."""
    for kind in MISALIGNED:
        sure = _rephrased(text, before) if kind.endswith("rephrase") else phrase_match(text, phrases[kind])
        if sure:
            yield Detection(row, kind, sure, text)
            return


def _rephrased(text: str, before: list[str]) -> float:
    """Overlap of content words with one of the last three messages, if it is at least .75 and half is not new.

    A number is no word of content here, unlike in the released code: what a world shows differs in little else.
    """
    own = _content(text)
    best = 0.0
    for earlier in before:
        other = _content(earlier)
        if (
            min(len(own), len(other)) < 4
            or words(text) == words(earlier)
            or _asks_for_another(text, set(words(text)) - set(words(earlier)))
        ):
            continue
        overlap = len(own & other)
        if overlap / min(len(own), len(other)) >= 0.75 and len(own - other) / len(own) <= 0.5:
            best = max(best, overlap / min(len(own), len(other)))
    return best


def _content(text: str) -> set[str]:
    return {word for word in _spelled(text) if word not in FILLER}


def _spelled(text: str) -> list[str]:
    return [word for word in words(text) if any(sign.isalpha() for sign in word)]


def _asks_for_another(text: str, fresh: set[str]) -> bool:
    """Whether what is new in a message is a number or a name: then it is another wish in like words."""
    names = {word.lower() for word in re.findall(r"(?<=[a-z,;] )[A-Z][\w'-]+", text)}
    return any(word in names or any(sign.isdigit() for sign in word) for word in fresh)


def _spoken(row: int, text: str, phrases: Mapping[str, Sequence[str]]) -> Iterator[Detection]:
    for kind, known in phrases.items():
        if not kind.startswith("misalignment") and (sure := phrase_match(text, known)):
            yield Detection(row, kind, sure, text)
    letters = [c for c in text if c.isalpha()]
    plain = [
        w for w in words(text) if w in FILLER or w in ("not", "no", "why", "does", "now", "stop", "never", "still")
    ]
    loud = len(letters) >= 10 and sum(c.isupper() for c in letters) >= 0.8 * len(letters)
    if (
        loud and len(plain) >= 2 and not _CODE.search(text)
    ):  # two words of speech at least: codes and SQL are no shouting
        yield Detection(row, "disengagement.negative_stance", 0.8, text)


def efficiency(user_turns: int) -> float:
    """Efficiency of a conversation of `user_turns`: 1 / (1 + .25 · max(0, turns - 5)); below .5 it drags.

    That is from the tenth user turn on.

    >>> efficiency(9), round(efficiency(10), 3)
    (0.5, 0.444)
    """
    return 1 / (1 + 0.25 * max(0, user_turns - 5))


def _stagnation(
    human: list[tuple[int, str]], said: list[tuple[int, str, str]], agents: Sequence[Any]
) -> Iterator[Detection]:
    heard: dict[Any, list[int]] = {}
    for row, _ in human:
        heard.setdefault(agents[row], []).append(row)
    longest = max(heard.values(), key=len, default=[])  # who hears most of a team
    if efficiency(len(longest)) < 0.5:
        yield Detection(longest[-1], "stagnation.dragging", 1 - efficiency(len(longest)), f"{len(longest)} user turns")
    last: dict[tuple[str, Any], str] = {}
    for row, role, text in said:
        earlier, last[role, agents[row]] = last.get((role, agents[row])), text
        of = _spelled if role == "human" else words
        if role == "observation" or earlier is None or min(len(of(text)), len(of(earlier))) < 5:
            continue
        alike = jaccard(trigrams(text), trigrams(earlier))
        if alike >= 0.85 and _DIGITS.findall(text) == _DIGITS.findall(earlier):  # "3 of 5 done" goes on
            yield Detection(row, "stagnation.repetition", 0.95 if alike >= 0.95 else alike, text)
