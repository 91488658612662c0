"""[149]: metrics from feedback; coverage and redundancy to the card's numbers, and the loop stops where it is best."""

from __future__ import annotations

import json

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges import PolicyAsker
from palaestra.judges.metrics import Metric, cluster, coverage, ground, induce, match, redundancy


def says(*answers: str) -> PolicyAsker:
    left = list(answers)
    prompts: list[str] = []

    def play(request: object) -> str:
        prompts.append(request.observation.text)  # type: ignore[attr-defined]
        return left.pop(0) if len(left) > 1 else left[0]

    made = PolicyAsker(ScriptedPolicy(play))
    made.prompts = prompts  # type: ignore[attr-defined]
    return made


RATINGS = pl.DataFrame({"episode": [0] * 3 + [1] * 3, "metric": list("ABCABC"), "rating": [1, -1, 0, 0, 0, -1]})
ASPECTS = pl.DataFrame(
    {
        "episode": [0, 0, 0, 0, 1], "aspect": [0, 1, 2, 3, 0], "behaviour": list("abcde"), "comment": list("vwxyz"),
        "sign": pl.Series([1, 1, -1, -1, -1], dtype=pl.Int8),
    }
)  # fmt: skip


def test_two_episodes_of_the_card() -> None:
    """Aspects (+A, +none, -B, -B) and (-C), three metrics each: coverage 4/5, redundancy 3/6."""
    asker = says("VERDICT: 1", "VERDICT: 0", "VERDICT: 1", "It is B.\nVERDICT: 1", "VERDICT: 1")
    matches = match(ASPECTS, RATINGS, asker)
    assert matches["metric"].to_list() == ["A", None, "B", "B", "C"]
    assert coverage(matches) == pytest.approx(0.8)
    assert redundancy(matches, RATINGS) == pytest.approx(0.5)
    assert redundancy(matches, RATINGS, applicable=True) == 0.0


def test_praise_may_only_match_what_did_well_and_without_such_nobody_is_asked() -> None:
    asker = says("VERDICT: 1")
    none = match(ASPECTS, RATINGS.with_columns(rating=pl.lit(0)), asker)
    assert none["metric"].null_count() == 5
    assert none["ok"].all()
    assert asker.prompts == []  # type: ignore[attr-defined]
    match(ASPECTS.head(1), RATINGS, asker)
    assert "1. A" in asker.prompts[0]  # type: ignore[attr-defined]
    assert "B" not in asker.prompts[0].split("about?")[1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", ["VERDICT: 2", "VERDICT: A", "VERDICT: 0.5", "none", "VERDICT: yes", ""])
def test_a_choice_that_is_none_of_the_list_is_missing_and_in_no_share(answer: str) -> None:
    matches = match(ASPECTS.head(2), RATINGS, says(answer, "VERDICT: 1"))
    assert matches["ok"].to_list() == [False, True]
    assert coverage(matches) == 1.0


def test_feedback_becomes_aspects_and_what_cannot_be_read_is_said() -> None:
    good = json.dumps([{"behaviour": "it asked first", "comment": "good", "sign": 1}])
    asker = says(f"Here:\n```json\n{good}\n```", '[{"behaviour": "x", "comment": "y", "sign": true}]')
    found = ground(["t0", "t1"], ["f0", "give me [10]"], asker)
    assert found["ok"].to_list() == [True, False]
    assert found.row(0) == (0, 0, "it asked first", "good", 1, True)
    with pytest.raises(InputError, match="1 transcripts and 2 feedbacks"):
        ground(["t"], ["f", "g"], asker)


def test_aspects_become_metrics_with_names_of_their_own() -> None:
    said = json.dumps(
        [{"name": "Asks First", "definition": "Does it ask?", "good": "it asks"}, {"name": "known"}, {"name": "known"}]
    )
    found = cluster(ASPECTS, [Metric("known", "?")], says(said))
    assert [(each.name, each.good) for each in found] == [("asks_first", "it asks")]
    item = found[0].item()
    assert [item.read(f"VERDICT: {x}") for x in (1, 0, -1, 2, "yes")] == [1, 0, -1, None, None]
    assert cluster(ASPECTS, [], says("I propose kindness.")) == []


def test_the_loop_returns_the_set_before_coverage_stopped_rising() -> None:
    kinds = ["a", "b", "c", "d", "e"]

    def propose(uncovered: pl.DataFrame, known: list[Metric]) -> list[Metric]:
        return [Metric(kinds[len(known)], "?")]

    def judge(metrics: list[Metric]) -> pl.DataFrame:
        rows = [(0, metric.name, 1) for metric in metrics]
        return pl.DataFrame(rows, ["episode", "metric", "rating"], orient="row")

    def exact(aspects: pl.DataFrame, ratings: pl.DataFrame) -> pl.DataFrame:
        names = set(ratings["metric"])
        metric = [name if name in names and name in "ab" else None for name in aspects["behaviour"]]
        return aspects.select("episode", "aspect").with_columns(metric=pl.Series(metric, dtype=pl.String))

    found = induce(ASPECTS.with_columns(episode=pl.lit(0), aspect=pl.int_range(5)), propose, judge, exact)
    assert [metric.name for metric in found.metrics] == ["a", "b"]
    assert found.history["coverage"].to_list() == [0.2, 0.4, 0.4]
    assert found.history["redundancy"].to_list() == pytest.approx([0, 0, 1 / 3])


def test_columns_are_named() -> None:
    with pytest.raises(MissingColumnError, match="no column 'metric'"):
        coverage(pl.DataFrame({"metrics": ["a"]}))
