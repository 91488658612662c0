"""Tool calls against those that would have been right: names, parameters, values, each a component of its own.

Calls are JSON in text columns, `[{"name": ..., "arguments": {...}}, ...]`; `parameters` is read as well, and arguments
that are JSON in a text themselves, as endpoints give them. Left out: how calls are parsed out of an action;
`tag_format` says whether there is anything to parse.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.signals import Signal, SignalLike, as_signal, clip, is_missing, register, where
from palaestra.errors import ExpressionError, InputError, nearest
from palaestra.rewards.match.words import column, text_of, texts

Call = Mapping[str, Any]
Part = Literal["score", "name", "keys", "values", "calls", "exact"]
PARTS = ("score", "name", "keys", "values", "calls", "exact")
METHODS = ("optimal", "greedy")
UNREADABLE = object()
Frozen = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class MatchReport:
    """Data of agreement between predicted and gold tool calls: name, keys, values, calls, exact, best, number.

    name: multiset Jaccard index of the names. keys, values: over matched pairs, the sum of the Jaccard indices of the
    parameter names and the number of equal values. calls: gold calls that were made to the letter. exact: all of them
    were, and nothing else. best: the largest possible name + keys + values; number: gold calls.
    """

    name: float
    keys: float
    values: float
    calls: int
    exact: bool
    best: float
    number: int

    @property
    def score(self) -> float:
        """Normalised score (name + keys + values) / best, in [0, 1]."""
        return 1.0 if self.exact else (self.name + self.keys + self.values) / self.best


def match_calls(
    gold: Sequence[Call], pred: Sequence[Call], *, method: Literal["optimal", "greedy"] = "optimal"
) -> MatchReport:
    """Compares predicted with gold tool calls as a `MatchReport`, by an assignment of equal names: ToolRL.

    arXiv 2504.13958. Each gold call is paired with at most one predicted call.

    A pair scores the Jaccard index of its parameter names plus the number of gold parameters with an equal value; best
    = 1 + Σ(1 + parameters) over the gold calls. optimal: the assignment of largest sum, as in the paper. greedy: gold
    calls take their best free partner one after the other, as in the released code.

    Raises:
        InputError: the method is unknown.

    >>> gold = [{"name": "search", "arguments": {"q": "cats", "k": 3}}, {"name": "calc", "arguments": {"e": "1+1"}}]
    >>> report = match_calls(gold, [{"name": "search", "arguments": {"q": "cats", "k": 5}}])
    >>> report.name, report.keys, report.values, report.best
    (0.5, 1.0, 1.0, 6.0)
    """
    if method not in METHODS:
        raise InputError(f"match_calls: method={method!r}{nearest(str(method), METHODS)}")
    return _report([frozen(call) for call in gold], [frozen(call) for call in pred], method)


def _report(wanted: Sequence[Frozen], given: Sequence[Frozen], method: str) -> MatchReport:
    names = (Counter(name for name, _ in wanted), Counter(name for name, _ in given))
    same, both = (names[0] & names[1]).total(), (names[0] | names[1]).total()
    made = (Counter(map(repr, wanted)) & Counter(map(repr, given))).total()
    pairs = np.array([[_pair(one, other) for other in given] for one in wanted], float)
    pairs = pairs.reshape(len(wanted), len(given), 2)
    chosen = pairs[_assign(pairs.sum(axis=2), method)].sum(axis=0) if pairs.size else np.zeros(2)
    best = 1.0 + sum(1 + len(parameters) for _, parameters in wanted)
    exact = made == len(wanted) == len(given)
    keys, values = map(float, chosen)
    return MatchReport(same / both if both else 1.0, keys, values, made, exact, best, len(wanted))


def frozen(call: Call) -> Frozen:
    """Comparable form of a tool call: tuple of its name and {argument: JSON text}, arguments sorted."""
    given = call.get("arguments", call.get("parameters")) or {}
    given = json.loads(given) if isinstance(given, str) else given
    return str(call["name"]), {name: _plain(value) for name, value in sorted(dict(given).items())}


def _plain(value: Any) -> str:
    """Values are equal iff their JSON is; 1, 1.0 and True differ in what they mean to a tool."""
    return json.dumps(value, sort_keys=True)


def _pair(gold: Frozen, pred: Frozen) -> tuple[float, float]:
    if gold[0] != pred[0]:
        return 0.0, 0.0
    together, shared = gold[1].keys() | pred[1].keys(), gold[1].keys() & pred[1].keys()
    return len(shared) / len(together) if together else 1.0, float(sum(gold[1][key] == pred[1][key] for key in shared))


def _assign(score: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    if method == "optimal":
        rows, columns = scipy.optimize.linear_sum_assignment(score, maximize=True)
        return rows, columns
    free, pairs = score.copy(), []
    for row in range(len(score)):  # whom no free call suits leaves all of them to the next
        column = int(free[row].argmax())
        if free[row, column] > 0:
            pairs.append((row, column))
            free[:, column] = -1.0
    rows, columns = np.array(pairs, int).reshape(-1, 2).T
    return rows, columns


@register()
def call_match(
    calls: str, gold: str, *, part: Part = "score", method: Literal["optimal", "greedy"] = "optimal"
) -> Signal:
    """Signal: a `part` of `match_calls` of two text columns: score, name, keys, values, calls, exact; 0 if unreadable.

    Missing where there are no gold calls (null or an empty list); null calls are unreadable, `[]` is not.

    Raises:
        ExpressionError: the part or the method is unknown, or something is not a column.
        InputError: the gold calls of a row are not readable.
    """
    for name, value, known in (("part", part, PARTS), ("method", method, METHODS)):
        if value not in known:
            raise ExpressionError(f"call_match: {name}={value!r}{nearest(str(value), known)}")
    return Signal("call_match", column(calls), column(gold), part=part, method=method)


@kernel("call_match", range="row")
def _call_match(evaluation: Evaluation, node: Signal) -> np.ndarray:
    both, gold_column = texts(evaluation, node), node.inputs[1].options["name"]
    distinct = both.unique(maintain_order=True)  # a group shares its gold calls and often its answers
    part, method = node.options["part"], node.options["method"]

    read = CallReader()

    def wanted(text: str) -> Any:
        calls = read(text)
        if calls is UNREADABLE:
            form = '[{"name": "f", "arguments": {}}]'
            raise InputError(f"call_match: column {gold_column!r} holds {text[:80]!r}, not a list of calls like {form}")
        return calls

    found: list[float | None] = []
    for given, gold in distinct.iter_rows():
        right = wanted(gold) if gold else []
        made: Any = read(given) if given is not None else UNREADABLE
        if not right:
            found.append(None)
        elif made is UNREADABLE:
            found.append(0.0)
        else:
            report = _report(right, made, method)
            value = getattr(report, part)
            found.append(float((report.name + value) / (1 + report.number) if part == "calls" else value))
    scored = distinct.with_columns(pl.Series("found", found, pl.Float64))
    return both.join(scored, on=["0", "1"], how="left", nulls_equal=True, maintain_order="left")["found"].to_numpy()


class CallReader(dict[str, Any]):
    """Callable cache, text to parsed tool calls (frozen), each text once; UNREADABLE if parsing fails."""

    def __call__(self, text: str) -> Any:
        """The calls in a text, or UNREADABLE."""
        return self[text]

    def __missing__(self, text: str) -> Any:
        try:
            self[text] = [frozen(dict(call)) for call in json.loads(text)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # "[" a thousand times
            self[text] = UNREADABLE
        return self[text]


@register()
def tag_format(text: str, tags: tuple[str, ...], *, like: str | None = None) -> Signal:
    """Signal: 1 if the text is exactly `<tag>…</tag>` for each of the tags, in this order and once, else 0.

    like: a text column, the right answer; then a row asks for those of the tags that this one has, and for no other.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"action": ["<think>a</think> <answer>b</answer>", "<answer>b</answer>"]})
    >>> tag_format("action", ("think", "answer")).evaluate(turns)
    array([ True, False])
    """
    content = text_of(text).fill_null("")
    gold = None if like is None else text_of(like).fill_null("")
    asked = {tag: pl.lit(True) if gold is None else gold.str.contains(f"<{tag}>", literal=True) for tag in tags}
    parts = [pl.when(asked[tag]).then(pl.lit(rf"<{tag}>.*</{tag}>\s*")).otherwise(pl.lit("")) for tag in tags]
    whole = content.str.contains(pl.concat_str(pl.lit(r"(?s)^\s*"), *parts, pl.lit("$")))
    marks = [(tag, f"<{end}{tag}>") for tag in tags for end in ("", "/")]
    once = (content.str.count_matches(mark, literal=True) == asked[tag].cast(pl.UInt32) for tag, mark in marks)
    return as_signal(pl.all_horizontal(whole, *once) & pl.any_horizontal(*asked.values()))


@register()
def length_reward(text: str, *, words: int = 512) -> Signal:
    """Signal: ToolRL's length reward, number of words / `words`, at most 1; longer is better.

    Its own ablation finds that it hurts.
    """
    count = as_signal(text_of(text).fill_null("").str.count_matches(r"\S+").cast(pl.Float64))
    return clip(count / words, high=1.0)


@register()
def tool_rl_reward(
    calls: str,
    gold: str,
    *,
    format: SignalLike = 0.0,
    scale: SignalLike = 3.0,
    format_scale: SignalLike = 1.0,
    granularity: Literal["fine", "call", "all"] = "fine",
    method: Literal["optimal", "greedy"] = "optimal",
) -> Signal:
    """Signal: [215] ToolRL, format_scale · format + scale · (2s - 1), s = `call_match(calls, gold)` of two columns.

    arXiv 2504.13958.

    S/S_max is the score of `match_calls`: fine; with granularity="call" only calls to the letter count (S_max = 1 +
    n), with "all" it is all or nothing. Unreadable calls get -scale, turns that should call nothing 0. format: a mask,
    e.g. `tag_format("action", ("think", "tool_call", "response"), like="answer")`. scale, format_scale: numbers or
    schedules; the paper's dynamic scale is 2 + t/150 up to 3, and 2 - t/150 down to 1. method="greedy" is the released
    code. Checked against it.
    """
    parts = {"fine": "score", "call": "calls", "all": "exact"}
    if granularity not in parts:
        raise ExpressionError(f"tool_rl_reward: granularity={granularity!r}{nearest(str(granularity), parts)}")
    share = call_match(calls, gold, part=parts[granularity], method=method)  # type: ignore[arg-type]
    correct = where(is_missing(share), 0.0, as_signal(scale) * (2.0 * share - 1.0))
    return as_signal(format_scale) * as_signal(format) + correct
