"""[149] AutoLibra (arXiv 2505.02820): metrics are added for what feedback says and no metric covers yet.

Eight behaviours, the k-th 1/k as frequent as the first; 60 episodes of eight aspects. A proposer names the two most
frequent ones that are not covered; ratings are right; a matcher takes any allowed metric, or none, in one of twenty.
Left out: real feedback, and prompts optimised on the metrics.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy
from palaestra.evaluation.analyses import analyze
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.metrics import Metric, cluster, coverage, ground, induce, match, redundancy
from palaestra_atlas.reproductions import Outcome, exact, reproduction

KINDS, EPISODES, ASPECTS, ERROR = 8, 60, 8, 0.05


def feedback(seed: int) -> pl.DataFrame:
    """Aspects with the behaviour that they are about; a behaviour goes well or badly for a whole episode."""
    rng = np.random.default_rng([seed, 0])
    share = 1 / np.arange(1, KINDS + 1)
    episode = np.repeat(np.arange(EPISODES), ASPECTS)
    kind = rng.choice(KINDS, size=len(episode), p=share / share.sum())
    well = rng.integers(2, size=(EPISODES, KINDS)) * 2 - 1
    keys = {"episode": episode, "aspect": np.tile(np.arange(ASPECTS), EPISODES)}
    return pl.DataFrame(keys | {"behaviour": [f"b{k}" for k in kind], "sign": well[episode, kind]})


def rate(aspects: pl.DataFrame, metrics: Sequence[Metric]) -> pl.DataFrame:
    """What each metric is in each episode; 0 where nobody spoke of it."""
    said = aspects.group_by("episode", "behaviour").agg(rating=pl.col("sign").first())
    every = (
        aspects.select("episode").unique().join(pl.DataFrame({"metric": [each.name for each in metrics]}), how="cross")
    )
    found = every.join(said, left_on=["episode", "metric"], right_on=["episode", "behaviour"], how="left")
    return found.with_columns(pl.col("rating").fill_null(0)).sort("episode", "metric")


def matcher(seed: int, error: float) -> Any:
    """Takes the right metric if it may, else none; with the error, anything that it may."""

    def match(aspects: pl.DataFrame, ratings: pl.DataFrame) -> pl.DataFrame:
        rng = np.random.default_rng([seed, 1])
        allowed = {
            key: part["metric"].sort().to_list()
            for key, part in ratings.group_by("episode", "rating", maintain_order=True)
        }
        found = []
        for episode, behaviour, sign in aspects.select("episode", "behaviour", "sign").iter_rows():
            names = allowed.get((episode, sign), [])
            wrong, drawn = rng.random() < error, rng.random()
            right = behaviour if behaviour in names else None
            found.append([None, *names][int(drawn * (len(names) + 1))] if wrong else right)
        return aspects.select("episode", "aspect").with_columns(metric=pl.Series(found, dtype=pl.String))

    return match


def propose(open_: pl.DataFrame, known: list[Metric]) -> list[Metric]:
    """The two behaviours that are most often not covered and have no metric."""
    names = {each.name for each in known}
    counts = open_.filter(~pl.col("behaviour").is_in(names)).group_by("behaviour").len()
    best = counts.sort("len", "behaviour", descending=[True, False]).head(2)["behaviour"]
    return [Metric(name, "?") for name in best]


def asked(answer: Callable[[str], str]) -> PolicyAsker:
    """Somebody who answers a prompt by a function of it."""
    return PolicyAsker(ScriptedPolicy(lambda request: answer(request.observation.text), name="asked"))


@exact
def aspects_of_a_comment() -> None:
    """A comment that praises one thing and blames another is two aspects, with a sign each."""
    said = [
        {"behaviour": "greets", "comment": "friendly", "sign": 1},
        {"behaviour": "hurries", "comment": "too fast", "sign": -1},
    ]
    found = ground(["a talk"], ["friendly, but too fast"], asked(lambda prompt: json.dumps(said)))
    assert found.select("behaviour", "sign", "ok").rows() == [("greets", 1, True), ("hurries", -1, True)]


def file(seed: int, folder: Path) -> None:
    """Feedback on talks in words: a behaviour is praised or blamed as often as it shows, some of them rarely."""
    said = feedback(seed)
    rows = []
    for _, part in said.group_by("episode", maintain_order=True):
        how = dict(part.select("behaviour", "sign").unique(maintain_order=True).iter_rows())
        pairs = part.select("behaviour", "sign").rows()
        told = [f"{name} was {'good' if sign > 0 else 'bad'}." for name, sign in pairs]
        lines = [f"{name}: {'well' if sign > 0 else 'badly'}" for name, sign in how.items()]
        rows.append({"transcript": "\n".join(lines), "feedback": " ".join(told)})
    pl.DataFrame(rows).write_parquet(folder / "feedback.parquet")


@exact
def by_the_question() -> None:
    """Two planted behaviours in words: one metric a round; of what is held out one aspect of three has none."""
    rows = {"transcript": ["greets: well", "greets: badly\nwaits: well", "waits: badly",
                           "greets: well\nwaits: well\nnods: well"],
            "feedback": ["greets was good.", "greets was bad. waits was good.", "waits was bad.",
                         "greets was good. waits was good. nods was good."]}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feedback.parquet"
        pl.DataFrame(rows).write_parquet(path)
        found = analyze("induce_metrics('palaestra.judges.scripted:reviewer(most=1)', held_out=0.25)", path)
    assert found["coverage"].to_list() == [0.5, 1.0], found
    np.testing.assert_allclose(found["redundancy"], [1 / 3, 2 / 6])  # of three episodes, not of the one held out
    np.testing.assert_allclose(found["held_out"], [2 / 3] * 2)


@exact
def clusters() -> None:
    """Three aspects of two behaviours become two metrics, of which a known one is left out."""
    table = {"behaviour": ["greets", "waves", "hurries"], "comment": ["a", "b", "c"], "sign": [1, 1, -1]}
    said = [{"name": name, "definition": "?"} for name in ("Greeting people", "pace", "pace")]
    found = cluster(pl.DataFrame(table), [Metric("pace", "?")], asked(lambda prompt: json.dumps(said)))
    assert [each.name for each in found] == ["greeting_people"]


@exact
def matched_by_sign() -> None:
    """The card's example: praise of what went badly matches nothing; four of five are covered, three of six idle."""
    aspects = pl.DataFrame(
        {
            "episode": [0, 0, 0, 0, 1], "aspect": [0, 1, 2, 3, 0], "behaviour": ["A", "B", "B", "B", "C"],
            "comment": ["?"] * 5, "sign": [1, 1, -1, -1, -1],
        }
    )  # fmt: skip
    rated = pl.DataFrame({"episode": [0] * 3 + [1] * 3, "metric": list("ABCABC"), "rating": [1, -1, 0, 0, 0, -1]})

    def named(prompt: str) -> str:
        about = next(line for line in prompt.splitlines() if line[:2] in ("+ ", "- "))[2]
        options = [line.partition(". ")[2] for line in prompt.splitlines() if line[:1].isdigit() and ". " in line]
        return f"VERDICT: {options.index(about) if about in options else 0}"

    found = match(aspects, rated, asked(named))
    assert found["metric"].to_list() == ["A", None, "B", "B", "C"]
    assert coverage(found) == 0.8
    assert redundancy(found, rated) == 0.5
    unknown = pl.DataFrame({"episode": [1], "metric": ["D"], "rating": [None]}, schema=rated.schema)
    assert redundancy(found, pl.concat([rated, unknown])) == 0.5  # a metric that could not be judged is not listed
    unread = aspects.with_columns(sign=pl.when(pl.col("behaviour") != "C").then("sign"))
    assert match(unread, rated, asked(named)).equals(found[:4])  # nor does an aspect without a sign count


@exact
def induced_from_what_is_open() -> None:
    """The commonest of what is not covered is proposed; at the end all behaviours but one are metrics, and no idle one.

    Nobody can tell when the last behaviour is spoken of, so its aspects stay open and further metrics cover nothing.
    """
    aspects = feedback(0)
    sure = matcher(0, 0.0)
    rarest = aspects["behaviour"].value_counts().sort("count", "behaviour")["behaviour"][0]

    def deaf(shown: pl.DataFrame, ratings: pl.DataFrame) -> pl.DataFrame:
        found: pl.DataFrame = sure(shown, ratings)
        return found.with_columns(metric=pl.when(pl.col("metric") != rarest).then("metric"))

    def commonest(open_: pl.DataFrame, known: list[Metric]) -> list[Metric]:
        counts = open_.group_by("behaviour").len().sort("len", "behaviour", descending=[True, False])
        return [Metric(f"{counts['behaviour'][0]}" if len(known) < KINDS - 1 else f"idle {len(known)}", "?")]

    found = induce(aspects, commonest, lambda metrics: rate(aspects, metrics), deaf, rounds=12)
    assert {each.name for each in found.metrics} == set(aspects["behaviour"]) - {rarest}, found.metrics


@reproduction(
    149,
    claim="Metrics proposed for what is not covered raise coverage until it saturates, redundancy rises with them, and "
    "the loop stops where coverage is highest.",
    baseline="metrics for behaviours that nobody spoke of",
    criterion="in every seed coverage rises from < .8 to > .9 and "
    "redundancy with it, the loop stops with 7 to 8 of 8 metrics, and its coverage is within .01 of that of all 8; "
    "eight metrics of nothing cover < .1 (so in all of ten fresh seeds)",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The loop with a matcher that errs."""
    holds = True
    found: dict[str, list[float]] = {}
    for seed in seeds:
        aspects, errs = feedback(seed), matcher(seed, ERROR)
        made = induce(aspects, propose, lambda metrics, shown=aspects: rate(shown, metrics), errs)  # type: ignore[arg-type, misc]
        curve = made.history["coverage"].to_numpy()
        full = rate(aspects, [Metric(f"b{k}", "?") for k in range(KINDS)])
        most = coverage(errs(aspects, full)) or 0.0  # type: ignore[operator]
        nothing = rate(aspects, [Metric(f"c{k}", "?") for k in range(KINDS)])
        idle = coverage(errs(aspects, nothing))  # type: ignore[operator]
        numbers = {
            "first": curve[0], "coverage": curve.max(), "all": most, "metrics": float(len(made.metrics)),
            "redundancy_first": made.history["redundancy"][0],
            "redundancy_last": made.history["redundancy"][len(made.metrics) // 2 - 1], "of_nothing": idle or 0.0,
        }  # fmt: skip
        for name, value in numbers.items():
            found.setdefault(name, []).append(value)
        holds &= numbers["first"] < 0.8 and numbers["coverage"] > 0.9 and numbers["of_nothing"] < 0.1
        holds &= numbers["redundancy_last"] > numbers["redundancy_first"] and numbers["metrics"] >= KINDS - 1
        holds &= abs(numbers["coverage"] - most) <= 0.01
    return Outcome({name: float(np.mean(values)) for name, values in found.items()}, bool(holds))
