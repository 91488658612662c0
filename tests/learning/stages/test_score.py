"""Any scorer fills a column that a reward reads; judges ask the recipe's policies, within a budget, once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from stage_play import context, talk

from palaestra.agents import Decision, Request, TabularPolicy, Team
from palaestra.errors import InputError, RecipeError
from palaestra.judges import Endpoint, Judged, StubJudge
from palaestra.judges.ledger import Ledger
from palaestra.judges.rubric import items_of
from palaestra.learning.stages.score import score
from palaestra.learning.stages.stage import StageCost
from palaestra.runs.build import check, resolve
from palaestra.runs.inline import learn
from palaestra.runs.recipe import load
from palaestra.testing.endpoint import StubEndpoint

PLAY = talk([["good", "good"], ["bad", "good"], ["bad", "bad", "bad"]])
JUDGED = 'score("fits", \'judged(question="Did the clerk do what it was time for?", policy="judge")\', level="turn")'


def test_what_is_spent_adds_up() -> None:
    spent = StageCost()
    for _ in range(2):
        spent.add(calls=1, tokens=10, cost=0.5)
    assert (spent.calls, spent.tokens, spent.cost) == (2, 20, 1.0)


def test_an_expression_is_paid_once_an_episode_or_given_to_every_turn() -> None:
    last = "verifier('1.0 * (turn == 1)')"
    assert score("x", last)(PLAY, context())["score.x"].to_list() == [0, 1, 0, 1, 0, 0, 0]
    assert score("x", last, everywhere=True)(PLAY, context())["score.x"].to_list() == [1, 1, 1, 1, 0, 0, 0]
    assert score("x", last, level="turn")(PLAY, context())["score.x"].to_list() == [0, 1, 0, 1, 0, 1, 0]


class _Distance:
    """What the reward models that read features are: they say which column, also of the reference."""

    name, features = "distance", "x"

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: object = None
    ) -> pl.Series:
        assert reference is not None
        return -(rows["x"].list.first() - reference["x"].list.first()).abs()


def test_a_reference_of_numbers_goes_to_the_column_that_the_reward_model_reads() -> None:
    x = pl.Series([[float(n), 1.0] for n in range(7)])
    play = PLAY.with_column(x=x, target=pl.Series([[2.0, 0.0]] * 7))
    found = score("x", _Distance(), level="turn", reference="target")(play, context())["score.x"]
    assert found.to_list() == [-2, -1, 0, -1, -2, -3, -4]


def test_what_has_no_value_is_missing_and_never_zero() -> None:
    play = PLAY.with_column(truth=pl.Series([0] * 7))
    made = score("x", StubJudge([[1, 0], [0, 1]], parse_failure=1.0))(play, context())
    assert made["score.x"].to_list() == [None] * 7


def test_a_recipe_trains_on_a_judge_of_its_own_and_pays_for_each_question_once() -> None:
    learned = learn(
        load("talk", [f"stages={JUDGED}", 'reward=col("score.fits")', "credit=grpo()", "train.iterations=3"])
    )
    assert len(learned.lines) == 3
    spent = [line["stages"]["score"]["calls"] for line in learned.lines]
    assert spent[0] > 0
    short = JUDGED.replace(", level", ", budget=5, level")
    learned = learn(
        load("talk", [f"stages={short}", 'reward=col("score.fits")', "credit=grpo()", "train.iterations=2"])
    )
    assert sum(line["stages"]["score"]["calls"] for line in learned.lines) == 5


def test_its_answers_are_part_of_the_checkpoint() -> None:
    first = score("x", 'judged(question="?", policy="judge")')
    asked: list[str] = []

    class Grader:
        name = "judge"

        def act(self, requests: list) -> list:  # type: ignore[type-arg]
            asked.extend(request.observation.text for request in requests)
            return [Decision("VERDICT: yes") for _ in requests]

    here = context()
    here.advisers = {"judge": Grader()}  # type: ignore[dict-item]
    first(PLAY, here)
    again = score("x", 'judged(question="?", policy="judge")')
    again.load_state_dict(first.state_dict())
    assert again(PLAY, here)["score.x"].to_list() == [0, 1, 0, 1, 0, 0, 1]
    assert len(asked) == 3


def test_a_judge_that_learns_is_asked_again() -> None:
    class Player(TabularPolicy):
        says = "VERDICT: yes"

        def act(self, requests: Sequence[Request]) -> list[Decision]:
            return [Decision(self.says) for _ in requests]

    player = Player(2, name="player")
    for policy, expected in ((player, [0, 0, 0, 0, 0, 0, 0]), (player.frozen_copy(), [0, 1, 0, 1, 0, 0, 1])):
        made, here = score("x", 'judged(question="?", policy="player")'), context()
        here.team, policy.says = Team(clerk=policy), "VERDICT: yes"  # type: ignore[attr-defined]
        assert made(PLAY, here)["score.x"].to_list() == [0, 1, 0, 1, 0, 0, 1]
        policy.says = "VERDICT: no"  # type: ignore[attr-defined]
        assert made(PLAY, here)["score.x"].to_list() == expected


def test_what_an_endpoint_takes_is_counted_once_also_after_a_resume() -> None:
    def made() -> score:
        asker = Endpoint("m", base_url=stub.url, api_key_env=None, ledger=ledger)
        return score("x", Judged(items_of({"good": "Is it?"}), asker))

    spent, ledger = [], Ledger(None)
    with StubEndpoint(lambda body: "VERDICT: 1") as stub:
        first, again = made(), made()
        for stage in (first, first, again):
            here = context()
            if stage is again:
                again.load_state_dict(first.state_dict())
            stage(PLAY, here)
            spent.append(here.spent.tokens)
    assert spent[0] > 0
    assert spent[1:] == [0, 0]


def test_what_a_recipe_lacks_is_named() -> None:
    with pytest.raises(RecipeError, match="asks the policy 'grader'"):
        check(resolve(load("talk", [f"stages={JUDGED}".replace('"judge"', '"grader"')])))
    with pytest.raises(InputError, match="level='word'"):
        score("x", "stub()", level="word")  # type: ignore[arg-type]
