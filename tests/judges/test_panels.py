"""Panels: [131]'s four protocols on a stub with known errors, their exact rules, and [1]'s arbiter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges import SCORERS, Ensemble, Judge, Judged, PolicyAsker, StubJudge, Verifier
from palaestra.judges.panels import Correct, CorrectingPanel, Debate, Vote
from palaestra.judges.rubric import items_of

GUARD = [[0.75, 0.2, 0.05], [0.2, 0.6, 0.2], [0.05, 0.2, 0.75]]
ROWS = pl.DataFrame({"truth": np.random.default_rng(0).integers(3, size=20_000)})


class Says:
    """A judge that gives the column of this name."""

    def __init__(self, column: str) -> None:
        self.name = column

    def verdicts(self, rows: pl.DataFrame, **options: object) -> pl.DataFrame:
        table = StubJudge().verdicts(rows.with_columns(truth=pl.lit(0)))
        return table.with_columns(value=rows[self.name].cast(pl.Float64))

    def score(self, rows: pl.DataFrame, **options: object) -> pl.Series:
        return rows[self.name]


def test_the_second_judge_counts_only_two_levels_away() -> None:
    """[131]: rows s₁ = 0, 1, 2 give (0, 0, 1), (1, 1, 1), (1, 2, 2) for s₂ = 0, 1, 2."""
    rows = pl.DataFrame({"a": [0, 0, 0, 1, 1, 1, 2, 2, 2, None, 1], "b": [0, 1, 2] * 3 + [1, None]})
    panel = Correct(Says("a"), Says("b"))  # type: ignore[arg-type]
    assert panel.score(rows).to_list() == [0, 0, 1, 1, 1, 1, 1, 2, 2, None, None]


@pytest.mark.parametrize(
    ("text", "accuracy", "recall", "alarms"),
    [
        ("single('{}')", 0.699, 0.875, 0.253),
        ("correct('{}', '{}')", 0.699, 0.912, 0.290),
        ("debate('{}')", 0.892, 0.971, 0.104),
        ("vote('{}', n=10)", 0.946, 0.974, 0.025),
    ],
)
def test_votes_of_independent_errors_win(text: str, accuracy: float, recall: float, alarms: float) -> None:
    """The card's own numbers, for a judge that is right in seven of ten; within .01."""
    made = SCORERS.build(text.format("tests.judges.test_panels:guard()", "tests.judges.test_panels:guard(1)"))
    said, true = made.score(ROWS).to_numpy(), ROWS["truth"].to_numpy()
    found = ((said == true).mean(), (said > 0)[true > 0].mean(), (said > 0)[true == 0].mean())
    assert found == pytest.approx((accuracy, recall, alarms), abs=0.01)


def guard(seed: int = 0) -> StubJudge:
    return StubJudge(GUARD, seed=seed)


def test_votes_that_share_their_draws_win_nothing() -> None:
    shared = Vote(StubJudge(GUARD, error_correlation=0.8), 10)
    assert (shared.score(ROWS) == ROWS["truth"]).mean() == pytest.approx(0.699, abs=0.012)


def test_a_debate_is_nine_calls_and_the_jury_hears_it() -> None:
    heard: list[str] = []

    def jury(text: str) -> str:
        heard.append(text)
        return "VERDICT: 2"

    asked: list[str] = []

    def advocate(side: str) -> ScriptedPolicy:
        def play(request: object) -> str:
            asked.append(side)
            return f"because {side} {len(asked)}"

        return ScriptedPolicy(play, name=side)

    items = items_of({"risk": {"question": "How risky?", "scale": [0, 2]}})
    judge = Judged(items, PolicyAsker(ScriptedPolicy(lambda request: jury(request.observation.text))))
    panel = Debate(judge, [advocate("risk"), advocate("safe")])
    assert panel.score(pl.DataFrame({"response": ["an answer"]})).to_list() == [2.0]
    assert (sorted(asked), len(heard)) == (["risk"] * 2 + ["safe"] * 2, 5)
    assert all(f"because {side}" in heard[0] for side in ("risk", "safe"))
    assert {asked[0], asked[1]} == {"risk", "safe"}
    firsts = set()
    for seed in range(8):
        asked.clear()
        Debate(judge, [advocate("risk"), advocate("safe")], seed=seed).debates(pl.DataFrame({"response": ["x"]}))
        firsts.add(asked[0])
    assert firsts == {"risk", "safe"}


def test_the_second_judge_is_told_what_the_first_said() -> None:
    prompts: list[str] = []

    def play(request: object) -> str:
        prompts.append(request.observation.text)  # type: ignore[attr-defined]
        return "Because of the tone. VERDICT: 1"

    items = items_of({"rude": {"question": "How rude?", "scale": [0, 2]}})
    judges = [Judged(items, PolicyAsker(ScriptedPolicy(play, name=name))) for name in "ab"]
    assert Correct(*judges).score(pl.DataFrame({"response": ["x"]})).to_list() == [1.0]
    assert "Because of the tone" not in prompts[0]
    assert "rude: 1\nBecause of the tone" in prompts[1]


def test_a_first_judge_without_words_is_told_by_its_value() -> None:
    told: list[str] = []

    class Watching(StubJudge):
        def verdicts(self, rows: pl.DataFrame, **given: object) -> pl.DataFrame:
            told.extend(given["condition"]["told"])  # type: ignore[index]
            return super().verdicts(rows, **given)  # type: ignore[arg-type]

    first = Ensemble([Verifier("reward")])
    Correct(first, Watching()).score(pl.DataFrame({"truth": [1, 1], "reward": [2.0, None]}))
    assert told == ["score: 2.0\n", "score: no verdict\n"]


@pytest.mark.parametrize("panel", ["correct", "debate"])
def test_a_condition_stays_beside_what_members_are_told(panel: str) -> None:
    seen: list[dict[str, object]] = []

    class Watching(StubJudge):
        def verdicts(self, rows: pl.DataFrame, **given: object) -> pl.DataFrame:
            seen.append(given["condition"].row(0, named=True))  # type: ignore[attr-defined]
            return super().verdicts(rows, **given)  # type: ignore[arg-type]

    stub, silent = Watching(), [ScriptedPolicy(lambda request: "so")] * 2
    made = Correct(stub, stub) if panel == "correct" else Debate(stub, silent)
    rows = pl.DataFrame({"truth": [1], "response": ["x"]})
    made.score(rows, condition=pl.DataFrame({"criterion": ["polite"], "told": ["by the first"]}))
    made.score(rows, condition=pl.DataFrame({"criterion": ["polite"]}))
    assert all(each["criterion"] == "polite" for each in seen)
    told = [str(each["told"]) for each in seen if "told" in each]
    assert told[-2].startswith("by the first\n") or panel == "correct"
    assert not told[-1].startswith("by the first")


def test_panels_are_judges_and_wrong_options_are_named() -> None:
    assert isinstance(Vote(StubJudge()), Judge)
    with pytest.raises(InputError, match="gives scores and no verdicts"):
        SCORERS.build("vote(\"verifier('1.0')\")")
    with pytest.raises(InputError, match="two that sum to 1"):
        Correct(StubJudge(), StubJudge(), (0.7, 0.7))
    with pytest.raises(InputError, match="1 advocates"):
        Debate(StubJudge(), [ScriptedPolicy(lambda request: "")])
    with pytest.raises(InputError, match="n=0"):
        Vote(StubJudge(), 0)


def test_comparisons_are_the_mean_of_both_orders_and_criteria_are_weighed() -> None:
    """A judge who takes what is shown first says nothing of the pair; one who knows is right whatever the criteria."""
    rows, other = pl.DataFrame({"response": ["mine"]}), pl.DataFrame({"response": ["theirs"]})

    def judge(say: Callable[[str], str]) -> Judged:
        items = items_of({name: {"question": "Is it?", "weight": weight} for name, weight in (("a", 1), ("b", 3))})
        return Judged(items, PolicyAsker(ScriptedPolicy(lambda request: say(request.observation.text))))

    first, knows = judge(lambda text: "VERDICT: A"), judge(lambda text: f"VERDICT: {'AB'[_after(text)]}")
    silent = judge(lambda text: "?" if _after(text) else "VERDICT: A")
    for panel in (lambda judge: Vote(judge, 1), lambda judge: Vote(judge, 3), Debate):
        scores = [panel(each).score(rows, reference=other).item() for each in (first, knows, silent)]
        assert scores == [0.5, 1.0, None]
    with pytest.raises(InputError, match="compares none"):
        Correct(first, first).score(rows, reference=other)


def _after(text: str) -> bool:
    return text.index("mine") > text.index("theirs")


# -- [1] ---------------------------------------------------------------------------------------------------------------


def test_an_arbiter_takes_the_better_action_and_keeps_the_agents_in_a_tie() -> None:
    frame = pl.DataFrame({"action": ["a", "b", "c", "d", "e"], "worth": [0.0, 1.0, 0.0, 0.0, 0.0]})
    verdict = pl.DataFrame(
        {"verdict": [False, False, True, False, None], "corrected_action": ["x", "x", "x", None, "x"]}
    )

    class Arbiter:
        name = "arbiter"

        def score(self, rows: pl.DataFrame, *, reference: pl.DataFrame, condition: object = None) -> pl.Series:
            assert reference["action"].to_list() == ["x", "x"]
            return rows["worth"]

    made = CorrectingPanel(lambda rows: verdict, Arbiter())(Turns(frame))
    assert made["final_action"].to_list() == ["x", "b", "c", "d", "e"]
    assert made["overruled"].to_list() == [False, True, False, True, None]
    tie = CorrectingPanel(lambda rows: verdict, Verifier("0.5 + 0 * col('worth')"))
    assert tie(Turns(frame))["final_action"].to_list() == frame["action"].to_list()


def test_an_arbiter_that_says_nothing_keeps_the_action_and_is_not_asked_about_the_same_one() -> None:
    frame = pl.DataFrame({"action": ["a", "b"], "response": ["a", "b"]})
    verdict = pl.DataFrame({"verdict": [False, False], "corrected_action": ["x", "b"]})
    asked: list[list[str]] = []

    class Silent:
        name = "silent"

        def score(self, rows: pl.DataFrame, *, reference: pl.DataFrame, condition: object = None) -> pl.Series:
            asked.extend([[*rows["action"], *reference["action"], *rows["response"], *reference["response"]]])
            return pl.Series([None] * len(rows), dtype=pl.Float64)

    made = CorrectingPanel(lambda rows: verdict, Silent())(Turns(frame))
    assert asked == [["a", "x", "a", "x"]]
    assert made["final_action"].to_list() == ["a", "b"]
    assert made["overruled"].to_list() == [True, True]
