"""One model that plays several people: transcripts of personas become turns ([137], SPP, arXiv 2307.05300).

    Participants: AI Assistant (you); Film Expert
    AI Assistant (you): Here is a first draft …
    Film Expert: The second line is wrong.
    Finish collaboration!
    Final answer: …

A line that begins with the name of a participant and a colon is theirs, with all lines up to the next one. Left out:
prompts, which belong to who asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, need_columns

LEADER = "AI Assistant (you)"
_FINAL = re.compile(r"final answer\s*:", re.IGNORECASE)
_LISTED = re.compile(r"participants?\s*:", re.IGNORECASE)
_END = re.compile(r"finish collaboration", re.IGNORECASE)


class Transcript(NamedTuple):
    """Data of a discussion between personas in one completion, parsed: turns, participants and final answer.

    said: (persona, text) in order. participants: as listed. answer: after "Final answer:", all without it.

    unparsed: that marker is missing.
    """

    said: tuple[tuple[str, str], ...]
    participants: tuple[str, ...]
    answer: str
    unparsed: bool


def transcript(text: str, *, leader: str = LEADER) -> Transcript:
    r"""Parses a completion of several personas to a `Transcript`: who said what; final answer, or all if unmarked.

    >>> found = transcript("Participants: AI Assistant (you); Chef\nChef: Salt.\nFinal answer: soup")
    >>> found.participants, found.said, found.answer, found.unparsed
    (('AI Assistant (you)', 'Chef'), (('Chef', 'Salt.'),), 'soup', False)
    """
    marks = list(_FINAL.finditer(text))
    answer = text[marks[-1].end() :].strip() if marks else text.strip()
    body = text[: marks[-1].start()] if marks else text
    names: list[str] = []
    for line in body.splitlines():
        if listed := _LISTED.search(line):
            names += [name.strip(" .*") for name in re.split(r"[;,]", line[listed.end() :])]
    participants = tuple(dict.fromkeys(name for name in names if name))
    known = {name.casefold(): name for name in (leader, *participants)}
    said: list[tuple[str, str]] = []
    for line in body.splitlines():
        if _END.search(line) or _LISTED.search(line):
            continue
        who, colon, rest = line.partition(":")
        name = known.get(re.sub(r"\s*\(.*?\)$", "", who.strip(" *-")).casefold()) or known.get(
            who.strip(" *-").casefold()
        )
        if colon and name:
            said.append((name, rest.strip()))
        elif said and line.strip():
            said[-1] = (said[-1][0], f"{said[-1][1]}\n{line.strip()}".strip())
    return Transcript(tuple(said), participants, answer, not marks)


def persona_turns(texts: Sequence[str], *, leader: str = LEADER) -> Turns:
    """Makes `Turns` of a list of completions, an episode each, a row per persona's speech, who hears all said before.

    Columns: group, episode, turn, agent, action, heard, heard_turn, answer (the final one, on every turn), unparsed. A
    completion in which nobody speaks is one turn of the leader.
    """
    rows = []
    for episode, text in enumerate(texts):
        found = transcript(text, leader=leader)
        said = found.said or ((leader, found.answer),)
        for turn, (agent, action) in enumerate(said):
            rows.append({
                "group": episode, "episode": episode, "turn": turn, "agent": agent, "action": action,
                "heard": [name for name, _ in said[:turn]], "heard_turn": list(range(turn)), "answer": found.answer,
                "unparsed": found.unparsed,
            })  # fmt: skip
    schema = {"heard": pl.List(pl.String), "heard_turn": pl.List(pl.Int64)}
    return Turns(pl.DataFrame(rows, schema_overrides=schema))


def contains_any(text: str, answers: Sequence[Sequence[str]]) -> float:
    """Share of questions for which `text` holds an alias in `answers` (a list of aliases each), ignoring case.

    >>> contains_any("It rained in NEW YORK.", [["New York", "NYC"], ["Paris"]])
    0.5
    """
    if not answers:
        raise InputError("contains_any: no question")
    folded = text.casefold()
    return sum(any(alias.casefold() in folded for alias in aliases) for aliases in answers) / len(answers)


def set_recall(text: str, targets: Sequence[str]) -> float:
    """Recall of the words `targets` in a text of guesses by commas, |guessed ∩ target| / |target|, ignoring case.

    As in Codenames.

    >>> set_recall("Moon, moon; star.", ["moon", "sun"])
    0.5
    """
    if not targets:
        raise InputError("set_recall: no target")
    wanted = {target.strip().casefold() for target in targets}
    guessed = {word.strip(" .!?\"'").casefold() for word in re.split(r"[,;\n]", text)}
    return len(wanted & guessed) / len(wanted)


def scored_personas(frame: pl.DataFrame) -> pl.DataFrame:
    """Table per `method` of persona completions (text, right): completions, failed, unparsed, personas, turns, score.

    right: the right answer; a list of words (`set_recall`); or a list of lists of aliases (`contains_any`). A row whose
    text is missing is a failed call: it is counted, and is in no mean. score: mean over the others.

    Raises:
        MissingColumnError: there is no such column.
    """
    need_columns("personas", frame.columns, ("text", "right"))
    rows = []
    for row in frame.iter_rows(named=True):
        base = {"method": str(row.get("method") or "all"), "failed": row["text"] is None}
        if row["text"] is not None:
            found = transcript(row["text"])
            base |= {
                "unparsed": found.unparsed,
                "personas": float(len({name for name, _ in found.said})),
                "turns": float(len(found.said)),
                "score": _score(found.answer, row["right"]),
            }
        rows.append(base)
    schema = {"method": pl.String, "failed": pl.Boolean, "unparsed": pl.Boolean, "personas": pl.Float64,
              "turns": pl.Float64, "score": pl.Float64}  # fmt: skip
    return (
        pl.DataFrame(rows, schema=schema)
        .group_by("method", maintain_order=True)
        .agg(
            pl.len().alias("completions"),
            pl.col("failed").sum(),
            pl.col("unparsed").sum(),
            pl.col("personas", "turns", "score").mean(),
        )
    )


def _score(answer: str, right: object) -> float:
    if isinstance(right, str):
        return float(answer.strip(" .").casefold() == right.strip(" .").casefold())
    if not isinstance(right, list):
        raise InputError(
            f"personas: right is {right!r}, expected a text, words, or a list of aliases for each question"
        )
    return contains_any(answer, right) if right and isinstance(right[0], list) else set_recall(answer, right)
