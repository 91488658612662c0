"""The rubric judge: every item of a checklist asked about every row, as a table of criteria.

A call that failed is null with `call_ok` false, never 0. The judge sees the rows it is shown and no others, in a fence
that they cannot close. Left out:
writing the items (a policy of its own), and what becomes of the values (`rewards.Criteria`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import polars as pl
import yaml

from palaestra.agents.policy import Policy
from palaestra.algebra.signals import SignalLike, as_signal
from palaestra.algebra.turns import Turns
from palaestra.errors import DamagedFileError, InputError, nearest
from palaestra.foundation.yaml import read as read_yaml
from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.reading import fenced, read_value
from palaestra.judges.templates import NOTHING, own_prompts, write_prompt
from palaestra.rewards.judged.criteria import EPISODE, KEYS, Criteria


@dataclass(frozen=True)
class Item:
    """Data of one criterion of a rubric: its question, when it passes, weight and scale.

    question, passes, failures: what the judge is told. weight, depends_on: for the table of weights and `satisfaction`.
    tool: the item is about what tools did; where a tool failed it is 0 and nobody is asked.
    scale: lowest and highest verdict; from 0 to 1 it may be yes or no.

    Raises:
        InputError: the scale is no interval of finite numbers, or weight is not finite.
    """

    name: str
    question: str
    passes: str = "the answer to the question is yes"
    failures: str = ""
    weight: float = 1.0
    depends_on: tuple[str, ...] = ()
    tool: bool = False
    scale: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        low, high = self.scale
        if not (math.isfinite(high - low) and low < high and math.isfinite(self.weight)):
            raise InputError(
                f"item {self.name!r}: scale {self.scale} is no interval, or weight {self.weight} no number"
            )

    @property
    def form(self) -> str:
        """Sentence for the prompt that says how to write the verdict."""
        low, high = self.scale
        words = "`VERDICT: yes`, `VERDICT: no` or " if self.scale == (0, 1) else ""
        return f"a line {words}`VERDICT: x` with x a number from {low:g} to {high:g}"

    def read(self, answer: str) -> float | None:
        """Parse the verdict in an answer; None if it is missing, unreadable or off the scale."""
        return read_value(answer, *self.scale)


def items_of(given: Mapping[str, str | Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> list[Item]:
    """List of rubric `Item` of plain data: a mapping of questions or fields by name, or a list of mappings with `name`.

    Raises:
        InputError: there are none, or a field is unknown or missing.
    """
    if isinstance(given, Mapping):
        named = {name: {"question": each} if isinstance(each, str) else each for name, each in given.items()}
        given = [{"name": str(name), **each} if isinstance(each, Mapping) else each for name, each in named.items()]
        names = list(map(str, named))
    else:
        names = [str(each.get("name", n)) if isinstance(each, Mapping) else str(n) for n, each in enumerate(given)]
    if not given:
        raise InputError("judge: no items; give each a name and a question")
    return [_item(name, each) for name, each in zip(names, given, strict=True)]


def _item(name: str, given: Mapping[str, Any]) -> Item:
    known = [field.name for field in fields(Item)]
    if not isinstance(given, Mapping):
        raise InputError(f"item {name!r}: expected a question, or fields such as question and weight, found {given!r}")
    for field in given:
        if field not in known:
            raise InputError(f"item {name!r}: unknown field {field!r}{nearest(str(field), known)}")
    for field in ("name", "question"):
        if not isinstance(given.get(field), str) or not given[field].strip():
            raise InputError(f"item {name!r}: {field} is {given.get(field)!r}, expected a text")
    try:
        low, high = map(float, given.get("scale", (0.0, 1.0)))
        return Item(**{**given, "scale": (low, high), "depends_on": tuple(given.get("depends_on", ()))})
    except (TypeError, ValueError) as error:
        raise InputError(f"item {name!r}: {error}; weight is a number, scale two, depends_on a list of names") from None


def read_rubric(path: str | Path) -> list[Item]:
    """List of rubric `Item` read from a YAML file: see `items_of`.

    Raises:
        StorageError: the file is not there or is no list or mapping in YAML.
        InputError: an item cannot be used; names the file.
    """
    try:
        found = read_yaml(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{path}: cannot be read ({error}); expected a rubric in YAML") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DamagedFileError(f"{path}{where}: not YAML ({why}); a text with ? or : stands in quotes") from error
    if not isinstance(found, list | dict):
        raise DamagedFileError(f"{path}: expected a rubric, a list of items with name and question")
    try:
        return items_of(found)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def weights_of(items: Sequence[Item]) -> dict[str, float]:
    """Dict of the weights of a list of rubric `Item` by name, as `utility` takes them."""
    return {item.name: item.weight for item in items}


def judge(
    turns: Turns,
    items: Sequence[Item],
    policy: Policy,
    *,
    level: Literal["turn", "episode"] = "episode",
    shown: Turns | None = None,
    tool_failed: SignalLike | None = None,
    votes: int = 1,
    cache: AnswerCache | None = None,
    attempts: int = 2,
    seed: int = 0,
    instructions: str | None = None,
) -> Criteria:
    """`Criteria` of a policy's verdicts on `Turns` for a list of `Item`: per episode, or per turn with all up to it.

    shown: the only rows a judge may see, e.g. `semi_join(turns)`; default all. votes: ask each question this often
    (column `vote`); the policy should then sample. tool_failed: mask of the rows in which a tool failed. Equal prompts
    are asked once, and never again with the same cache: another weighting costs no call. instructions: a Jinja template
    of every question, or its file `….j2`, instead of the shipped one.

    Raises:
        InputError: no items, two with one name, an unknown dependency or level, or votes < 1.
    """
    _check(items, level, votes)
    own = own_prompts(instructions, ("judged",), "judge")
    rows = turns if tool_failed is None else turns.with_column(tool_failed=as_signal(tool_failed))
    keys = [name for name in EPISODE if name in rows.columns]
    cases = rows.frame.with_columns(
        pl.col("tool_failed") != 0 if tool_failed is not None else pl.lit(False).alias("tool_failed")
    )
    task = pl.col("task").first() if "task" in rows.columns else pl.lit("").first().alias("task")
    if level == "episode":
        cases = cases.group_by(keys, maintain_order=True).agg(pl.col("turn").max(), pl.col("tool_failed").any(), task)
    else:
        cases = cases.group_by([*keys, "turn"], maintain_order=True).agg(pl.col("tool_failed").any(), task)
    texts = _transcripts(turns if shown is None else shown, keys)
    asked: list[tuple[str, int]] = []
    reads: list[Callable[[str], float | None]] = []
    records = []
    for case in cases.iter_rows(named=True):
        seen = [text for turn, text in texts.get(tuple(case[key] for key in keys), []) if turn <= case["turn"]]
        for item in items:
            decided = bool(item.tool and case["tool_failed"])
            question = shown_to(item, case["task"], "\n".join(seen), own=own)
            for vote in range(votes):
                record = {key: case[key] for key in keys} | {"criterion": item.name, "vote": vote}
                records.append(record | ({"turn": case["turn"]} if level == "turn" else {}) | {"asked": not decided})
                if not decided:
                    asked.append((question, vote))
                    reads.append(item.read)
    answers = iter(ask(policy, asked, reads, cache=cache, attempts=attempts, seed=seed))
    values = [next(answers) if record["asked"] else 0.0 for record in records]
    schema = {name: rows.frame.schema[name] for name in (*keys, *(["turn"] if level == "turn" else []))}
    frame = pl.DataFrame(records, {**schema, "criterion": pl.String, "vote": pl.Int32, "asked": pl.Boolean})
    frame = frame.with_columns(pl.Series("value", values, pl.Float64))
    return Criteria(frame if votes > 1 else frame.drop("vote"))


def cases(turns: Turns, level: Literal["turn", "episode"] = "episode") -> pl.DataFrame:
    """Table for a judge from `Turns`: `task` as `prompt`, transcript as `response`, one row per episode or per turn.

    At level "turn" each turn with what came up to it. Other columns have their last value.

    Raises:
        MissingColumnError: there is no `episode` or no `action`.
        InputError: level is unknown.
    """
    if level not in ("turn", "episode"):
        raise InputError(f"cases: level={level!r}{nearest(str(level), ('turn', 'episode'))}")
    for name in ("episode", "action"):
        _ = turns[name]
    turns = turns if "turn" in turns.columns else turns.with_column(turn=pl.Series([0] * len(turns), dtype=pl.Int32))
    keys = [name for name in EPISODE if name in turns.columns]
    by = [*keys, *(["turn"] if level == "turn" else [])]
    found = (
        turns.frame.sort([*keys, "turn"], maintain_order=True).group_by(by, maintain_order=True).agg(pl.all().last())
    )
    texts = _transcripts(turns, keys)
    response = [
        "\n".join(text for turn, text in texts[key] if turn <= until)
        for *key_, until in found.select(*keys, "turn").iter_rows()
        for key in [tuple(key_)]
    ]
    prompt = pl.col("task") if "task" in found.columns else pl.lit(None, pl.String)
    return found.with_columns(prompt.alias("prompt"), pl.Series("response", response, pl.String))


def shown_to(
    item: Item, task: str | None, transcript: str, *, told: str | None = None, own: Mapping[str, str] | None = None
) -> str:
    """Text of the prompt that asks a judge about one rubric `Item`, given a task and its transcript.

    told: shown beside the criterion. own: see `palaestra.judges.templates.write_prompt`.
    """
    shown = fenced(transcript) if transcript else ""
    values: dict[str, Any] = {
        "task": fenced(task) if task else "",
        "response": shown,
        "first": shown,
        "second": "",
        "told": fenced(told) if told else "",
        "nothing": NOTHING,
        "question": item.question,
        "passes": item.passes,
        "failures": item.failures,
        "form": item.form,
    }
    return write_prompt("judged", values, own)


def _check(items: Sequence[Item], level: str, votes: int) -> None:
    names = [item.name for item in items]
    if not items or len(set(names)) < len(names):
        raise InputError(f"judge: items need names of their own, not {names}")
    for item in items:
        for other in item.depends_on:
            if other not in names:
                raise InputError(f"judge: item {item.name!r} depends on {other!r}{nearest(other, names)}")
    if level not in ("turn", "episode") or votes < 1:
        raise InputError(f"judge: {level=} is 'turn' or 'episode', {votes=} at least 1")


def _transcripts(turns: Turns, keys: Sequence[str]) -> dict[tuple[object, ...], list[tuple[int, str]]]:
    columns = [name for name in ("agent", "observation", "action") if name in turns.columns]
    texts: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for row in (
        turns.frame.select(*keys, "turn", *columns).sort([*keys, "turn"], maintain_order=True).iter_rows(named=True)
    ):
        lines = [
            f"[turn {row['turn']}] {name}: {row[name]}" for name in columns if name != "agent" and row[name] is not None
        ]
        speaker = f"{row['agent']} " if row.get("agent") is not None else ""
        texts.setdefault(tuple(row[key] for key in keys), []).append((row["turn"], speaker + "\n".join(lines)))
    return texts


def vote_columns(criteria: Criteria, names: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Table of a `Criteria`'s several votes, a list[bool] column per criterion, null: a call failed; for `judge_votes`.

    names: column by criterion; default `<criterion>_votes`. Join it with `rewards.onto`.

    Raises:
        InputError: the table has no column `vote`.
    """
    if "vote" not in criteria.frame.columns:
        raise InputError("vote_columns: the criteria have one vote each; judge(..., votes=3) asks more often")
    keys = [name for name in KEYS if name in criteria.keys]
    wide = None
    for name in criteria.frame["criterion"].unique(maintain_order=True):
        column = (names or {}).get(name, f"{name}_votes")
        one = criteria.frame.filter(pl.col("criterion") == name).sort("vote")
        one = one.group_by(keys, maintain_order=True).agg((pl.col("value") > 0.5).alias(column))
        wide = one if wide is None else wide.join(one, on=keys, nulls_equal=True)
    return pl.DataFrame() if wide is None else wide.sort(keys)
