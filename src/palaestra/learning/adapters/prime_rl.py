"""prime-rl: any signal as credit by turn, for episodes of our envs (`verifiers_v1`). Written against verifiers 0.4.0.

    class ByState(Algorithm):  # in prime-rl, beside its own; `algo.type` names it
        async def score_group(self, episodes):
            assign(episodes, "gigpo()")

prime-rl's own algorithms have one number for all tokens of a trace, and compare what stands in `trace.reward`. Here the
table has a row for each turn of each agent, with its own reward and state, and a turn's value stands on the tokens that
were sampled in it. Left out: columns with a value per token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, short
from palaestra.algebra.turns import SCHEMA, Ragged, Turns
from palaestra.errors import InputError, need_columns
from palaestra.learning.adapters.verifiers_v1 import INFO
from palaestra.play.validation import describe

COLUMNS = (
    "group", "episode", "turn", "agent", "task", "seed", "state", "observation", "action", "reward", "valid", "success",
    "truncated", "tokens_out", "error",
)  # fmt: skip


class _Turn(NamedTuple):
    row: dict[str, Any]
    nodes: list[Any]
    trains: bool


def to_turns(episodes: Iterable[Any]) -> Turns:
    """Convert prime-rl's episodes to a `Turns` table, a row per turn of each agent; an episode without turns: null row.

    `group` numbers the seeds.

    Raises:
        InputError: an episode was not played by `plugin`; names it.
    """
    return _table(_turns(episodes))


def assign(episodes: Iterable[Any], credit: Signal | str) -> None:
    """Set `node.advantages` of sampled tokens of prime-rl's episodes, in place, to the turn's credit (`Signal`, text).

    A text is parsed as a signal. Advantages have the form in which prime-rl's own algorithms write them.
    episodes: of one group or several, whole. A missing credit is 0. An episode that failed has no credit and is not
    among those that others are compared with; an agent that is not trained is, but is given none.

    Raises:
        InputError: an episode was not played by `plugin`, or by a client that tells no tokens.
        MissingColumnError: the credit needs a column that the table does not have.
        ExpressionError: the text is no expression.
    """
    signal = parse(credit) if isinstance(credit, str) else credit
    turns = [turn for turn in _turns(episodes) if turn.row["error"] is None]
    table = _table(turns)
    need_columns(f"assign: {short(signal)}", table.columns, sorted(signal.needs()))
    value = signal.evaluate(table)
    assert not isinstance(value, Ragged), "the table has no column with a value per token"
    nodes = [
        (node, each)
        for turn, each in zip(turns, np.nan_to_num(value).tolist(), strict=True)
        if turn.trains
        for node in turn.nodes
        if any(node.mask)
    ]
    if not nodes and any(turn.trains for turn in turns):
        raise InputError("assign: no trace has tokens; let the client be of type 'train'")
    for node, each in nodes:
        node.advantages = [float(each)] * sum(node.mask)


def _table(turns: Iterable[_Turn]) -> Turns:
    return Turns(pl.DataFrame([turn.row for turn in turns], {name: SCHEMA[name].dtype for name in COLUMNS}))


def _turns(episodes: Iterable[Any]) -> list[_Turn]:
    groups: dict[tuple[str, int], int] = {}
    sizes: dict[int, int] = {}
    found: list[_Turn] = []
    for episode in episodes:
        seed = getattr(episode.task.data, "seed", None)
        if seed is None:
            raise InputError(f"episode {episode.id} was not played by `plugin`: its task has no seed")
        group = groups.setdefault((episode.env.id, seed), len(groups))
        sizes[group] = sizes.get(group, -1) + 1
        shared = {"group": group, "episode": sizes[group], "task": episode.task.data.name, "seed": seed}
        shared["error"] = _error(episode)
        played: dict[tuple[int, str], _Turn] = {}
        for trace in episode.traces:
            sampled = [place for place, node in enumerate(trace.nodes) if node.sampled]
            told = trace.info.get(INFO, [])
            if episode.ok and len(told) != len(sampled):
                raise InputError(
                    f"trace {trace.id} of {trace.agent.name!r}: info[{INFO!r}] tells {len(told)} turns of "
                    f"{len(sampled)} sampled messages; let `plugin` play it"
                )
            for place, turn in zip(sampled, told):
                row = shared | turn | {"state": int(turn["state"]), "observation": _heard(trace.nodes, place)}
                each = played.setdefault((turn["turn"], turn["agent"]), _Turn(row, [], trace.agent.trainable))
                each.nodes.append(trace.nodes[place])
                each.row["action"] = _words(trace.nodes[place])
                each.row["tokens_out"] = sum(sum(node.mask) for node in each.nodes) or None
        found += [played[key] for key in sorted(played)] or [_Turn(shared, [], False)]
    return found


def _heard(nodes: list[Any], place: int) -> str:
    """Messages since the agent's last one."""
    said: list[str] = []
    at = nodes[place].parent
    while at is not None and not nodes[at].sampled:
        said.insert(0, _words(nodes[at]))
        at = nodes[at].parent
    return "\n".join(said)


def _words(node: Any) -> str:
    content = node.message.content
    return content if isinstance(content, str) else ""


def _error(episode: Any) -> str | None:
    if episode.ok:
        return None
    errors = [*episode.errors, *(error for trace in episode.traces if not trace.ok for error in trace.errors)]
    return describe(errors[-1].type, errors[-1].message) if errors else "failed"
