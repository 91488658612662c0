"""AgentsNet's JSON per run (arXiv 2507.08616): agents on a graph, a turn per agent and round, addressed messages.

The score is the run's and stands on every agent's last turn; success is a score of 1. A retry after an answer that
could not be parsed belongs to the round it repeats. A run that failed has no score.
"""

from __future__ import annotations

import json
import re
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, rest, text

_KNOWN = {"transcripts", "graph", "model_name", "task", "score", "successful", "error_message", "answers"}
_RETRY = "could not be parsed"


@READERS.register("agentsnet")
def agentsnet() -> LogReader:
    """Makes the `LogReader` of AgentsNet's runs: agents on a graph."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is AgentsNet's: transcripts by agent and the graph that they talked on."""
    return isinstance(record.get("transcripts"), dict) and "graph" in record


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per run of `found`, (place, JSON object) pairs, to `Rows`; what cannot be read, as a problem."""
    for where, record in found:
        transcripts = record.get("transcripts")
        if not isinstance(transcripts, dict):
            rows.problem(where, "no transcripts by agent")
            continue
        failed = record.get("successful") is False
        score = None if failed else record.get("score")
        turns = []
        for name, messages in transcripts.items():
            if not isinstance(messages, list):
                rows.problem(where, f"the transcript of {text(name)[:40]!r} is not a list")
                continue
            own = _rounds(turns_of(messages, agent=text(name), policy=record.get("model_name")))
            if own:
                own[-1]["reward"] = score
            turns += own
        turns = sorted(turns, key=lambda turn: turn["turn"]) or [{"reward": score}]
        turns[-1]["metadata"] = rest(record, _KNOWN)
        names = ("task", "graph_generator", "num_nodes", "graph_index")
        rows.episode(
            where,
            turns,
            system=record.get("model_name"),
            task="/".join(text(record[name]) for name in names if record.get(name) is not None) or None,
            success=None if score is None else score == 1,
            error=f"env: {text(record.get('error_message') or 'the run failed')}" if failed else None,
        )


def _rounds(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    number, message = -1, -1
    for turn in turns:
        if turn["turn"] != message:  # the further calls of a message belong to its round
            message = turn["turn"]
            number += _RETRY not in (turn.get("observation") or "") or number < 0
        turn |= {"turn": number, "recipient": addressed(turn.get("action") or "")}
    return turns


def addressed(words: str) -> list[str] | None:
    """Names to which a message is addressed: keys of the JSON object at its end; None if there is none.

    >>> addressed('I ask both. {"Ann": "your colour?", "Bob": "yours?"}')
    ['Ann', 'Bob']
    """
    for match in re.finditer(r"\{", words[-20_000:]):
        try:
            said = json.loads(words[-20_000:][match.start() : words[-20_000:].rindex("}") + 1])
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said and all(isinstance(v, str) for v in said.values()):
            return [text(name) for name in said]
    return None
