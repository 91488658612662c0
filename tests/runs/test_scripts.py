"""Scripted play: legal, driven by the request's own stream, and as good as it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import Request, ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import EnvFactory, Observation, make
from palaestra.errors import ExpressionError, InputError, MissingExtraError, RecipeError
from palaestra.foundation.registry import load_object
from palaestra.play.rollout import rollout
from palaestra.runs.scripts import SCRIPTS, Play, call, naming, script
from palaestra.runs.scripts import make as make_script
from palaestra.teams import pipeline, role_tools

HANABI = make("openspiel/tiny_hanabi")
KUHN = make("openspiel/kuhn_poker")
NIM = make("textarena/Nim-v0", observation="short")
SUMS = pipeline(
    make("reasoning_gym", datasets={"chain_sum": {"min_terms": 2, "max_terms": 2}}, prompt="short"),
    roles=("solver", "checker"),
)
WORLD: dict[str, tuple[EnvFactory, dict[str, Any]]] = {
    "random": (HANABI, {}),
    "varied": (HANABI, {}),
    "convention": (HANABI, {}),
    "optimum": (HANABI, {"game": "tiny_hanabi"}),
    "kuhn": (KUHN, {"slope": 0.3}),
    "nim": (NIM, {"skill": 0.5}),
    "toolbox": (make("roles/toolbox", kinds=["search"]), {"skill": 0.7}),
    "cups": (make("native/cups", pages=1), {"accuracy": 0.7}),
    "commons": (make("native/commons", talk="none"), {}),
    "shelf": (make("native/shelf", solo=True), {}),
    "quest": (make("native/quest"), {"errs": 0.2}),
    "code": (make("native/referential"), {"number": 3, "noise": 0.2, "shared": 4}),
    "stays_home": (make("native/epidemic", number=12, horizon=3), {"noise": 0.1}),
    "lookups": (role_tools(make("roles/multi_hop"), {"*": ["multi_hop_index()"]}), {"skill": 0.7}),
    "functions": (pipeline(make("roles/functions", prompt="short"), roles=("writer", "reviewer")), {"accuracy": 0.9}),
    "trader": (make("textarena/SimpleNegotiation-v0", observation="short", max_turns=2), {"skill": 0.7}),
    "answers": (SUMS, {"accuracy": {"solver": 0.5, "checker": 0.9}}),
}


def play(teach: Play, world: EnvFactory, **options: Any) -> Turns:
    script = ScriptedPolicy(teach)
    return rollout(world, Team(dict.fromkeys(world().agents, script)), groups=20, group_size=2, timeout=None, **options)


def test_every_teacher_is_tested_here() -> None:
    shipped = {name for name, make in SCRIPTS.items() if make.__module__ == "palaestra.runs.scripts"}
    elsewhere = {"proposals", "punisher"}  # tests: teams/test_proposer.py, envs/worlds/test_reputation.py
    assert shipped - elsewhere <= WORLD.keys()


@pytest.mark.parametrize("name", WORLD)
def test_teachers_play_legally_and_from_the_stream_of_the_request(name: str) -> None:
    world, options = WORLD[name]
    turns = play(make_script(name, options, seed=3), world)
    assert turns["error"].null_count() == len(turns)
    assert turns["valid"].all()
    again = play(make_script(name, options, seed=3), world, concurrency=3)
    assert again["action"].to_list() == turns["action"].to_list()


@pytest.mark.parametrize("name", ["varied", "convention"])
def test_what_is_drawn_once_is_drawn_from_the_seed(name: str) -> None:
    world, options = WORLD[name]
    first, second = (play(make_script(name, options, seed=seed), world)["action"].to_list() for seed in (0, 1))
    assert first != second
    fixed = make_script(name, {**options, "seed": 0}, seed=1)
    assert play(fixed, world)["action"].to_list() == first, "options come before the run's seed"


def test_the_optimum_is_the_optimum() -> None:
    turns = play(make_script("optimum", {"game": "tiny_hanabi"}), HANABI)
    returns = turns.frame.group_by("group", "episode").agg(pl.col("reward").filter(agent="player_0").sum())
    assert returns["reward"].to_list() == [10.0] * 40


def test_the_perfect_nim_player_wins_from_the_first_seat() -> None:
    good, bad = (ScriptedPolicy(make_script("nim", {"skill": skill}), name=str(skill)) for skill in (1.0, 0.0))
    turns = rollout(NIM, Team(player_0=good, player_1=bad), groups=10, timeout=None)
    won = turns.frame.filter(agent="player_0").group_by("group").agg(pl.col("success").last())
    assert won["success"].all()  # 3 ^ 4 ^ 5 is not 0, so whoever begins can win


def test_answers_are_right_as_often_as_they_should_be() -> None:
    def share(accuracy: float | dict[str, float]) -> float:
        turns = play(make_script("answers", {"accuracy": accuracy}), SUMS)
        return float(turns.frame.unique(["group", "episode"])["success"].to_numpy().mean())

    assert share(1.0) == 1.0
    assert share({"solver": 0.0, "checker": 1.0}) == 1.0
    assert share(0.0) < 0.2


def test_unknown_teachers_and_options() -> None:
    with pytest.raises(RecipeError, match=r"^warm_start\.script: unknown script 'randm'; did you mean 'random'"):
        make_script("randm", {}, "warm_start.script")
    with pytest.raises(RecipeError, match=r"^x 'nim': unknown option 'skil'; did you mean 'skill'\?"):
        make_script("nim", {"skil": 1}, "x")
    with pytest.raises(RecipeError, match=r"^x 'random': unknown option 'a'; it takes none"):
        make_script("random", {"a": 1}, "x")
    with pytest.raises(RecipeError, match=r"^x 'optimum': .*missing 1 required positional argument: 'game'"):
        make_script("optimum", {}, "x")
    with pytest.raises(RecipeError, match=r"^x 'optimum': OpenSpiel has no game 'tiny_hanaby'; did you mean"):
        make_script("optimum", {"game": "tiny_hanaby"}, "x")


def test_teachers_of_your_own() -> None:
    def stubborn(word: str = "la") -> Play:
        return lambda request: word

    script("stubborn")(stubborn)
    try:
        assert make_script("stubborn", {"word": "mi"})(_request()) == "mi"
    finally:
        SCRIPTS.remove("stubborn")
    assert make_script("signalling:mumbler", {"clarity": 1.0})(_request("see green")) == 1


def _request(text: str = "see red") -> Request:
    return Request(Observation(text, choices=("la", "mi", "so")), "guide", np.random.default_rng(0))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("no_such_module:f", r"cannot import 'no_such_module' \(ModuleNotFoundError"),
        ("json:no_such_name", "json has no 'no_such_name'"),
        (":f", "expected module:name"),
        ("broken_module:f", r"cannot import 'broken_module' \(ZeroDivisionError: division by zero"),
    ],
)
def test_objects_that_cannot_be_loaded(path: str, found: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=f"^env.make '{path}': {found}"):
        load_object(path, "env.make")


def three(first: int, *, second: int = 2, third: int = 3) -> tuple[int, int, int]:
    return first, second, third


def passing(first: int, **options: int) -> Any:
    return three(first, **options)


@pytest.mark.parametrize(
    ("function", "accepts", "options", "complaint"),
    [
        (three, (), {"secnd": 1}, "f: unknown option 'secnd'; did you mean 'second'?"),
        (three, (), {"third": 1}, "f: unknown option 'third'; known: second"),  # it is given already
        (three, (), {"first": 1}, "f: unknown option 'first'"),
        (passing, (three,), {"secnd": 1}, "f: unknown option 'secnd'; did you mean 'second'?"),
        (passing, (), {"secnd": 1}, "f: three() got an unexpected keyword argument 'secnd'"),
    ],
)
def test_call_names_wrong_options(
    function: Callable[..., Any], accepts: tuple[Callable[..., Any], ...], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        call(function, options, "f", 1, accepts=accepts, third=3)
    assert str(caught.value).startswith(complaint)


def test_call_passes_on_what_fits() -> None:
    assert call(three, {"second": 7}, "f", 1, third=9) == (1, 7, 9)
    assert call(passing, {"second": 7}, "f", 1, accepts=(three,)) == (1, 7, 3)


def test_naming_says_where_bad_input_stands() -> None:
    with pytest.raises(RecipeError, match=r"^learn: no such thing"), naming("learn"):
        raise ExpressionError("no such thing")
    with pytest.raises(RecipeError, match=r"^named already"), naming("learn"):
        raise RecipeError("named already")
    with pytest.raises(MissingExtraError, match=r"^torch is not installed"), naming("learn"):
        raise MissingExtraError("torch is not installed")
    assert not issubclass(InputError, RecipeError)


def test_kuhn_looks_at_its_card() -> None:
    turns = rollout(
        KUHN, Team(dict.fromkeys(KUHN().agents, ScriptedPolicy(make_script("kuhn", {"slope": 0.4})))), groups=300
    )
    bets = turns.frame.group_by(card=pl.col("observation").str.slice(3, 1)).agg((pl.col("action") == "Bet").mean())
    low, middle, high = bets.sort("card")["action"]
    assert low < 0.2 < 0.4 < middle < 0.6 < 0.8 < high
