"""[109] What people's messages give away: misalignment, stagnation, disengagement, satisfaction (arXiv 2604.00356).

Rules and thresholds are those of the released code; the phrases are our own, in English. Another language is another
table: `interaction(turns, phrases=…)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage.detection import Found, found
from palaestra.evaluation.triage.talk import jaccard, messages, phrase_match, trigrams, words

PHRASES: dict[str, tuple[str, ...]] = {
    "misalignment.correction": (
        "no that's wrong", "that's not what i asked", "that's not what i meant", "i said", "i meant",
        "not what i wanted", "you misunderstood", "that is incorrect", "you got it wrong", "please correct that",
    ),
    "misalignment.clarification": (
        "what do you mean", "i don't understand", "can you clarify", "could you explain that", "that's unclear",
        "i'm confused", "please be more specific",
    ),
    "disengagement.escalation": (
        "talk to a human", "speak to a person", "real person", "speak to your manager", "human agent", "call support",
        "file a complaint",
    ),
    "disengagement.quit": (
        "never mind", "forget it", "i give up", "i'm done", "i'll do it myself", "let's stop here", "cancel everything",
    ),
    "disengagement.negative_stance": (
        "this is useless", "this is ridiculous", "waste of time", "you're not helping", "this is frustrating",
        "terrible", "worst", "so annoying",
    ),
    "satisfaction.gratitude": ("thank you", "thanks", "much appreciated", "i appreciate it", "cheers"),
    "satisfaction.confirmation": (
        "that's right", "that's correct", "exactly what i needed", "looks good", "yes that's it", "perfect",
    ),
    "satisfaction.success": ("it works", "that worked", "problem solved", "it's fixed", "all set", "that did it"),
}  # fmt: skip
MISALIGNED = ("misalignment.correction", "misalignment.rephrase", "misalignment.clarification")
_FILLER = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "could", "do", "for", "from", "have", "i",
    "in", "is", "it", "me", "my", "of", "on", "or", "please", "so", "that", "the", "this", "to", "was", "we",
    "what", "will", "with", "would", "you", "your",
})  # fmt: skip


def interaction(turns: Turns, phrases: Mapping[str, Sequence[str]] = PHRASES) -> pl.DataFrame:
    """Detections of the interaction layer, types `interaction.…`; see `detect`."""
    rows: list[Found] = []
    for _, talk in messages(turns).group_by("episode", maintain_order=True):
        said = list(talk.select("row", "role", "text").iter_rows())
        human = [(row, text) for row, role, text in said if role == "human"]
        for i, (row, text) in enumerate(human):
            rows += _misaligned(row, text, [t for _, t in human[max(0, i - 3) : i]], phrases)
            rows += _spoken(row, text, phrases)
        rows += _stagnation(human, said)
    return found(rows, "interaction")


def _misaligned(row: int, text: str, before: list[str], phrases: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """The first of correction, rephrase and clarification that hits."""
    for kind in MISALIGNED:
        sure = _rephrased(text, before) if kind.endswith("rephrase") else phrase_match(text, phrases[kind])
        if sure:
            yield Found(row, kind, sure, text)
            return


def _rephrased(text: str, before: list[str]) -> float:
    """Overlap of content words with one of the last three messages, if it is at least .75 and half is not new."""
    own = {w for w in words(text) if w not in _FILLER}
    best = 0.0
    for earlier in before:
        other = {w for w in words(earlier) if w not in _FILLER}
        if min(len(own), len(other)) < 4 or words(text) == words(earlier):
            continue
        overlap = len(own & other)
        if overlap / min(len(own), len(other)) >= 0.75 and len(own - other) / len(own) <= 0.5:
            best = max(best, overlap / min(len(own), len(other)))
    return best


def _spoken(row: int, text: str, phrases: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    for kind, known in phrases.items():
        if not kind.startswith("misalignment") and (sure := phrase_match(text, known)):
            yield Found(row, kind, sure, text)
    letters = [c for c in text if c.isalpha()]
    if len(letters) >= 10 and sum(c.isupper() for c in letters) >= 0.8 * len(letters):
        yield Found(row, "disengagement.negative_stance", 0.8, text)  # shouting


def efficiency(user_turns: int) -> float:
    """1 / (1 + .25 · max(0, user turns - 5)): below .5 the conversation drags (from the tenth user turn on).

    >>> efficiency(9), round(efficiency(10), 3)
    (0.5, 0.444)
    """
    return 1 / (1 + 0.25 * max(0, user_turns - 5))


def _stagnation(human: list[tuple[int, str]], said: list[tuple[int, str, str]]) -> Iterator[Found]:
    if efficiency(len(human)) < 0.5:
        yield Found(human[-1][0], "stagnation.dragging", 1 - efficiency(len(human)), f"{len(human)} user turns")
    last: dict[str, str] = {}
    for row, role, text in said:
        earlier, last[role] = last.get(role), text
        if role == "observation" or earlier is None or min(len(words(text)), len(words(earlier))) < 5:
            continue
        alike = jaccard(trigrams(text), trigrams(earlier))
        if alike >= 0.85:
            yield Found(row, "stagnation.repetition", 0.95 if alike >= 0.95 else alike, text)
