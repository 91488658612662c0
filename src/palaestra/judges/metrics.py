"""Metrics out of feedback in free words: aspects, the metrics that cover them, and when there are enough of them.

[149] AutoLibra (arXiv 2505.02820). Long tables: aspects (`episode`, `aspect`, `behaviour`, `comment`, `sign` ±1),
ratings (`episode`, `metric`, `rating` 1 did well, 0 does not apply, -1 something is wrong) and matches (`episode`,
`aspect`, `metric`, null where none fits, `ok`). A metric is an item of a rubric with scale [-1, 1]: a reward reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.judges.asking import Read
from palaestra.judges.judged import Asker, PolicyAsker
from palaestra.judges.reading import fenced, read_value
from palaestra.judges.rubric import Item
from palaestra.judges.templates import write_prompt

Own = Mapping[str, str] | None
"""Templates in place of shipped prompts, see `palaestra.judges.templates.write_prompt`."""
SIGNS = {1: "+", -1: "-"}


@dataclass(frozen=True)
class Metric:
    """Data of a metric for a judge model: its name, its definition, and what is good and what is bad behaviour."""

    name: str
    definition: str
    good: str = ""
    bad: str = ""

    def item(self, weight: float = 1.0) -> Item:
        """The metric as a rubric item: 1 did well, 0 does not apply, -1 something is wrong."""
        passes = f"1 if {self.good or 'it did well'}; 0 if it does not apply"
        return Item(
            self.name, self.definition, passes, f"-1 if {self.bad or 'it went wrong'}", weight, scale=(-1.0, 1.0)
        )


def ground(transcripts: Sequence[str], feedback: Sequence[str], asker: Asker, *, own: Own = None) -> pl.DataFrame:
    """Table of aspects (behaviour, comment, sign, ok) that a model, `asker`, reads in lists of transcripts, feedback.

    `ok`: it could be read. `episode`: the number of the feedback. An unreadable answer gives one row that is not `ok`.

    Raises:
        InputError: not as many feedbacks as transcripts.
    """
    if len(transcripts) != len(feedback):
        raise InputError(f"ground: {len(transcripts)} transcripts and {len(feedback)} feedbacks; give one for each")
    prompts = [
        write_prompt("ground", {"transcript": fenced(shown), "feedback": fenced(said)}, own)
        for shown, said in zip(transcripts, feedback, strict=True)
    ]
    rows: list[dict[str, Any]] = []
    for episode, found in enumerate(_ask(asker, prompts, _aspects)):
        for aspect, each in enumerate([{"ok": False}] if found is None else found):
            rows.append({"episode": episode, "aspect": aspect, "ok": True} | each)
    kinds = {"episode": pl.Int32, "aspect": pl.Int32, "behaviour": pl.String, "comment": pl.String}
    return pl.DataFrame(rows, {**kinds, "sign": pl.Int8, "ok": pl.Boolean})


def cluster(aspects: pl.DataFrame, known: Sequence[Metric], asker: Asker, *, own: Own = None) -> list[Metric]:
    """List of new `Metric` that a model, `asker`, forms of table `aspects`; no name in `known`, empty if unreadable.

    known: `Metric` objects that there are.
    """
    lines = [
        f"{SIGNS[sign]} {behaviour}: {comment}"
        for behaviour, comment, sign in aspects.select("behaviour", "comment", "sign").drop_nulls().iter_rows()
    ]
    names = {metric.name for metric in known}
    prompt = write_prompt("cluster", {"aspects": fenced("\n".join(lines)), "known": sorted(names)}, own)
    found = _ask(asker, [prompt], _metrics)[0] or []
    return [
        made for number, made in enumerate(found) if made.name not in names | {each.name for each in found[:number]}
    ]


def match(aspects: pl.DataFrame, ratings: pl.DataFrame, asker: Asker, *, own: Own = None) -> pl.DataFrame:
    """Table of the metric each row of `aspects` is about, by model `asker`, of those in table `ratings` of equal sign.

    An aspect without such a metric matches none, unasked. An answer that is no number of the list is not `ok`.
    """
    _need(aspects, "episode", "aspect", "sign")
    _need(ratings, "episode", "metric", "rating")
    allowed = {
        key: sorted(part["metric"].to_list())
        for key, part in ratings.filter(pl.col("rating") != 0).group_by("episode", "rating")
    }
    rows = aspects.drop_nulls("sign").to_dicts()
    options = [allowed.get((row["episode"], row["sign"]), []) for row in rows]
    prompts, reads = [], []
    for row, names in zip(rows, options, strict=True):
        if names:
            aspect = f"{SIGNS[row['sign']]} {row.get('behaviour')}: {row.get('comment')}"
            prompts.append(write_prompt("match", {"aspect": fenced(aspect), "metrics": names}, own))
            reads.append(_whole(len(names)))
    answers = iter(_ask(asker, prompts, reads))
    found = []
    for row, names in zip(rows, options, strict=True):
        choice = next(answers) if names else 0
        metric = names[choice - 1] if choice else None
        found.append({"episode": row["episode"], "aspect": row["aspect"], "metric": metric, "ok": choice is not None})
    kinds = {"episode": aspects.schema["episode"], "aspect": aspects.schema["aspect"]}
    return pl.DataFrame(found, {**kinds, "metric": pl.String, "ok": pl.Boolean})


def coverage(matches: pl.DataFrame) -> float | None:
    """Share of rows of table `matches` with a metric, from 0 to 1, without failed (`ok` false); None without any."""
    _need(matches, "metric")
    asked = matches.filter(pl.col("ok")) if "ok" in matches.columns else matches
    return None if not len(asked) else float(asked["metric"].is_not_null().sum() / len(asked))


def redundancy(matches: pl.DataFrame, ratings: pl.DataFrame, *, applicable: bool = False) -> float | None:
    """Share of the (episode, metric) rows of table `ratings` that no row of table `matches` has; None without any.

    Over all episodes.

    Σ (metrics listed - distinct metrics matched) / Σ metrics listed.

    applicable: leave out metrics rated 0; the released code counts them, so one that never applies is redundant.

    >>> said = pl.DataFrame({"episode": [0, 0, 0, 0, 1], "metric": ["A", None, "B", "B", "C"]})
    >>> rated = pl.DataFrame({"episode": [0, 0, 0, 1, 1, 1], "metric": list("ABCABC"), "rating": [1, -1, 0, 0, 0, -1]})
    >>> coverage(said), redundancy(said, rated), redundancy(said, rated, applicable=True)
    (0.8, 0.5, 0.0)
    """
    _need(matches, "episode", "metric")
    _need(ratings, "episode", "metric", "rating")
    listed = ratings.filter(pl.col("rating").is_not_null())
    listed = listed.filter(pl.col("rating") != 0) if applicable else listed
    hit = matches.drop_nulls("metric").select("episode", "metric").unique()
    used = listed.join(hit, on=["episode", "metric"], how="semi")
    return None if not len(listed) else float((len(listed) - len(used)) / len(listed))


class Induced(NamedTuple):
    """Result data of metric induction: the metrics, and the history of rounds.

    metrics: the set before the round that brought nothing. history: `round`, `metrics`, `coverage`, `redundancy`.
    """

    metrics: list[Metric]
    history: pl.DataFrame


def induce(
    aspects: pl.DataFrame,
    propose: Callable[[pl.DataFrame, list[Metric]], list[Metric]],
    judge: Callable[[list[Metric]], pl.DataFrame],
    match: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame],
    *,
    rounds: int = 10,
) -> Induced:
    """Metric induction, `Induced`, of table `aspects` by functions `propose`, `judge`, `match`, while coverage rises.

    `propose` is given what is still open.

    That is, until it does not strictly improve.

    The released code goes on while coverage is equal; that need not end.

    Args:
        aspects: what feedback says, a row per `episode` and `aspect`.
        propose: new metrics from uncovered aspects and those that are known.
        judge: metrics to ratings.
        match: aspects and ratings to matches.
        rounds: most rounds.
    """
    metrics: list[Metric] = []
    open_, best, history = aspects, -1.0, []
    for round_ in range(rounds):
        more = [*metrics, *propose(open_, metrics)]
        if len(more) == len(metrics):
            break
        ratings = judge(more)
        matches = match(aspects, ratings)
        covered = coverage(matches)
        history.append((round_, len(more), covered, redundancy(matches, ratings)))
        if covered is None or covered <= best:
            break
        metrics, best = more, covered
        hit = matches.drop_nulls("metric").select("episode", "aspect")
        open_ = aspects.join(hit, on=["episode", "aspect"], how="anti")
        if not len(open_):
            break
    kinds = {"round": pl.Int32, "metrics": pl.Int32, "coverage": pl.Float64, "redundancy": pl.Float64}
    return Induced(metrics, pl.DataFrame(history, kinds, orient="row"))


def _ask(asker: Asker, prompts: Sequence[str], read: Read[Any] | Sequence[Read[Any]]) -> list[Any]:
    reads = [read] * len(prompts) if callable(read) else list(read)
    if isinstance(asker, PolicyAsker):
        asker.reads = reads
    said = asker.ask([(prompt, 0) for prompt in prompts])
    return [None if each.text is None or each.error else how(each.text) for each, how in zip(said, reads, strict=True)]


def _whole(most: int) -> Read[int]:
    def read(answer: str) -> int | None:
        value = read_value(answer, 0, max(most, 2))  # never [0, 1], on which words count
        return int(value) if value is not None and value == int(value) and value <= most else None

    return read


def _objects(answer: str) -> list[Mapping[str, Any]] | None:
    """The last whole list of objects in JSON; None if there is none."""
    text = answer[-100_000:]
    begin = text.find("[")
    decoder = json.JSONDecoder()
    for _ in range(64):
        if begin < 0:
            return None
        try:
            found, _end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            return found
        begin = text.find("[", begin + 1)
    return None


def _aspects(answer: str) -> list[dict[str, Any]] | None:
    found = _objects(answer)
    if found is None:
        return None
    good = [
        {"behaviour": each["behaviour"], "comment": each["comment"], "sign": each["sign"]}
        for each in found
        if isinstance(each.get("behaviour"), str) and isinstance(each.get("comment"), str)
        if not isinstance(each.get("sign"), bool) and each.get("sign") in (1, -1)
    ]
    return good if len(good) == len(found) else None


def _metrics(answer: str) -> list[Metric] | None:
    found = _objects(answer)
    if found is None:
        return None
    texts = [[each.get(name, "") for name in ("name", "definition", "good", "bad")] for each in found]
    if not all(isinstance(text, str) for each in texts for text in each) or not all(each[0] for each in texts):
        return None
    return [Metric("_".join(name.casefold().split()), *rest) for name, *rest in texts]


def _need(table: pl.DataFrame, *names: str) -> None:
    for name in names:
        if name not in table.columns:
            raise MissingColumnError(f"metrics: no column {name!r}{nearest(name, table.columns)}")
