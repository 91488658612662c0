from __future__ import annotations

import functools
import json
import logging
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents.policy import Decision, Policy, Request
from palaestra.algebra.turns import SCHEMA, Turns, empty
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import InputError, MissingExtraError, StorageError
from palaestra.play.rollout import rollout
from palaestra.play.streams import Streams

# -- fakes ------------------------------------------------------------------------------------------------------------


class Team(dict[str, Policy]):
    """agent -> policy; `"*"` is everybody else."""

    def for_agent(self, agent: str) -> Policy:
        try:
            return self.get(agent) or self["*"]
        except KeyError:
            raise InputError(f"no policy for {agent!r}") from None


class Dice:
    """Acts with a number from the request's stream; remembers the size of every call."""

    def __init__(self, name: str = "dice") -> None:
        self.name = name
        self.calls: list[list[str]] = []

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        self.calls.append([request.agent for request in requests])
        decisions = []
        for request in requests:
            tokens = request.rng.integers(0, 50, size=3)
            decisions.append(
                Decision(
                    str(tokens.sum()),
                    prompt_ids=np.arange(4, dtype=np.int32),
                    action_ids=tokens.astype(np.int32),
                    logprobs=-request.rng.random(3).astype(np.float32),
                    entropies=np.ones(3, np.float32),
                    cost=0.5,
                )
            )
        return decisions


class Answers:
    """Answers with whatever `answer(request)` returns or raises."""

    name = "answers"

    def __init__(self, answer: Callable[[Request], Any]) -> None:
        self.answer = answer

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        return [self.answer(request) for request in requests]


class Chatter:
    """Between 1 and 6 turns of `a`, sometimes with `b` at the same time; everything follows from seed and actions."""

    agents = ("b", "a")
    task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.task = f"task-{seed}"
        self.said = [f"start {seed}"]
        self.length = 1 + seed // 2 % 6
        return {"a": Observation(self.said[0])}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        self.said += [f"{agent}:{action}" for agent, action in actions.items()]
        self.length -= 1
        rewards: dict[str, float | None] = {agent: float(action) for agent, action in actions.items()}
        if not self.length:
            return StepResult({}, rewards, terminated=True, info={"success": {"a": True, "b": False}})
        seen = Observation(" ".join(self.said))
        both = int(next(iter(actions.values()))) % 2
        return StepResult({"a": seen, "b": seen} if both else {"a": seen}, rewards)


class Script:
    """Plays `steps`: each is what one call of `step` returns, or a function of (env, actions) that does so."""

    agents: tuple[str, ...] = ("a", "b", "c")
    task = "script"

    def __init__(self, first: Any, *steps: Any) -> None:
        self.first, self.steps = first, steps

    def reset(self, seed: int) -> Any:
        self.seed, self.position = seed, 0
        return self.first(self) if callable(self.first) else self.first

    def step(self, actions: Mapping[str, Action]) -> Any:
        self.actions = actions
        result = self.steps[self.position]
        self.position += 1
        return result(self, actions) if callable(result) else result


def see(*agents: str) -> dict[str, Observation]:
    return {agent: Observation(f"{agent} to move") for agent in agents}


def end(rewards: Mapping[str, float | None] | None = None, **info: Any) -> StepResult:
    return StepResult({}, rewards or {}, terminated=True, info=info)


def fail(error: BaseException) -> Callable[..., Any]:
    def raises(*_: Any) -> Any:
        raise error

    return raises


def play(*script: Any, **options: Any) -> Turns:
    team = options.pop("team", Team({"*": Dice()}))
    return rollout(lambda: Script(*script), team, **{"groups": 1} | options)


def column(turns: Turns, *names: str) -> list[Any]:
    return turns.frame.select(names).rows() if len(names) > 1 else turns[names[0]].to_list()


def content(turns: Turns) -> pl.DataFrame:
    """All that is sampled, in a form in which rows can be compared; durations are measured."""
    return turns.frame.drop("duration").with_columns(pl.col("agent", "policy").cast(pl.String))


# -- what is played ---------------------------------------------------------------------------------------------------


def chatter(groups: int = 9, group_size: int = 4, **options: Any) -> Turns:
    return rollout(Chatter, Team(a=Dice(), b=Dice("other")), groups=groups, group_size=group_size, **options)


def test_every_column_is_there_and_filled() -> None:
    turns = chatter(run="r", iteration=3)
    assert turns.columns == list(SCHEMA)
    assert turns.frame.schema == empty().schema
    blank = {name for name in turns.columns if turns[name].null_count() == len(turns)}
    assert blank == {
        "error",
        "features",
        "legal",
        "metadata",
        "messages",
        "tools",
        "prefix",
        "finish",
        "token_versions",
    }
    some = turns.frame.row(0, named=True)
    assert (some["run"], some["iteration"], some["agent"], some["policy"]) == ("r", 3, "a", "dice")
    assert some["task"] == f"task-{some['seed']}"
    assert some["state"] == Observation(some["observation"]).key()
    assert (some["tokens_in"], some["tokens_out"], some["cost"]) == (4, 3, 0.5)
    assert some["action"] == str(sum(some["action_ids"]))
    assert some["duration"] > 0
    assert column(turns.filter(pl.col("agent") == "b"), "policy", "success") == [("other", False)] * sum(
        turns["agent"] == "b"
    )


@pytest.mark.parametrize("concurrency", [1, 7, 256])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_the_table_does_not_depend_on_concurrency(concurrency: int, timeout: float | None) -> None:
    reference = content(chatter(seed=5, concurrency=12, timeout=None))
    assert content(chatter(seed=5, concurrency=concurrency, timeout=timeout)).equals(reference)
    assert set(reference["turn"]) > {0, 1, 2}


def test_rows_are_in_canonical_order() -> None:
    turns = chatter()
    rows = column(turns, "group", "episode", "turn", "agent")
    assert rows == sorted(rows, key=lambda row: (*row[:3], Chatter.agents.index(row[3])))
    assert len(set(rows)) == len(rows)
    assert {(g, e) for g, e, _, _ in rows} == {(g, e) for g in range(9) for e in range(4)}
    assert (
        Counter(count for _, count in Counter(row[:3] for row in rows).items())[2] > 0
    )  # there are simultaneous turns


def test_an_episode_does_not_depend_on_the_others() -> None:
    few, many = content(chatter(groups=3, group_size=2)), content(chatter(groups=8, group_size=5))
    assert few.equals(many.filter(pl.col("group") < 3, pl.col("episode") < 2))


def test_simultaneous_agents_draw_from_streams_of_their_own() -> None:
    def both(order: str) -> dict[tuple[str, int], str]:
        turns = play(see(*order), StepResult(see(*order)), end())
        return {(agent, turn): action for agent, turn, action in column(turns, "agent", "turn", "action")}

    assert both("ab") == both("ba")
    assert len(set(both("ab").values())) == 4
    alone = play(see("a"), end())
    assert column(alone, "action") == [both("ab")["a", 0]]


def test_a_stream_goes_on_and_is_made_for_those_who_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = Streams.generator

    def counted(self: Streams, group: int, episode: int, agent: str) -> np.random.Generator:
        made.append(agent)
        return make(self, group, episode, agent)

    monkeypatch.setattr(Streams, "generator", counted)
    drawing = Answers(lambda request: Decision(str([int(request.rng.integers(1000)) for _ in range(2)])))
    team = Team(a=drawing, b=Answers(lambda request: Decision("0")))
    turns = play(see("a", "b"), StepResult(see("a", "b")), end(), team=team)
    assert made == ["a"]
    stream = make(Streams(0), 0, 0, "a")
    expected = [str([int(stream.integers(1000)) for _ in range(2)]) for _ in range(2)]
    assert column(turns.filter(pl.col("agent") == "a"), "action") == expected


def test_seeds() -> None:
    def seeds(**options: Any) -> list[int]:
        return chatter(groups=20, group_size=2, **options).frame.unique(["group", "seed"])["seed"].to_list()

    train = seeds()
    assert len(train) == 20  # one per group
    assert set(train).isdisjoint(seeds(seed=1))
    assert set(train).isdisjoint(seeds(iteration=1))
    assert set(train).isdisjoint(seeds(stream="eval"))
    first = chatter(groups=1, group_size=8)
    assert len(set(first.filter(pl.col("turn") == 0)["action"])) > 1  # but the agents' streams differ


def test_groups_that_start_differently_are_reported() -> None:
    count = iter(range(100))
    with pytest.warns(UserWarning, match=r"3 of 3 groups do not start from one observation \(first: group 0\)"):
        play(lambda env: {"a": Observation(f"{next(count)}")}, end(), groups=3, group_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chatter()


# -- batching ---------------------------------------------------------------------------------------------------------


def test_whoever_waits_for_a_policy_is_served_in_one_call() -> None:
    shared, own = Dice(), Dice()
    play(see("a", "b", "c"), StepResult(see("b")), end(), groups=5, team=Team(a=shared, b=shared, c=own))
    assert [Counter(call) for call in shared.calls] == [{"a": 5, "b": 5}, {"b": 5}]
    assert own.calls == [["c"] * 5]


def test_places_are_refilled_at_once() -> None:
    lengths = [9, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    order = iter(lengths)

    def reset(env: Script) -> dict[str, Observation]:
        env.left = next(order)  # type: ignore[attr-defined]
        return see("a")

    def step(env: Script, _: Any) -> StepResult:
        env.left -= 1  # type: ignore[attr-defined]
        return StepResult(see("a")) if env.left else end()  # type: ignore[attr-defined]

    dice = Dice()
    play(reset, *[step] * 9, groups=10, concurrency=2, team=Team({"*": dice}))
    assert [len(call) for call in dice.calls] == [2] * 9


def test_one_env_per_place_is_made() -> None:
    made = []

    def make() -> Script:
        made.append(Script(see("a"), end()))
        return made[-1]

    rollout(make, Team({"*": Dice()}), groups=50, concurrency=4)
    assert len(made) == 4


# -- rewards ----------------------------------------------------------------------------------------------------------


def test_a_reward_belongs_to_the_latest_turn_of_its_agent() -> None:
    turns = play(
        see("a"),
        StepResult(see("b"), {"a": 1.0}),
        StepResult(see("a"), {"a": 2.0, "b": 4.0}),
        StepResult(see("b"), {"b": 8.0}),
        end({"a": 16.0, "b": 32.0}),
    )
    assert column(turns, "agent", "reward") == [("a", 3.0), ("b", 12.0), ("a", 16.0), ("b", 32.0)]


def test_a_reward_before_the_first_turn_counts_to_that_turn() -> None:
    turns = play(see("a"), StepResult(see("b"), {"b": 5.0}), StepResult(see("b"), {"b": 1.0}), end({"b": 2.0}))
    assert column(turns, "agent", "reward") == [("a", 0.0), ("b", 6.0), ("b", 2.0)]


def test_not_scored_is_null_unless_a_number_arrives() -> None:
    turns = play(
        see("a", "b", "c"),
        StepResult(see("a"), {"a": None, "b": None}),
        StepResult(see("a"), {"a": None, "b": 3.0}),
        end({"a": 2.0}),
    )
    expected = [("a", 0, None), ("b", 0, 3.0), ("c", 0, 0.0), ("a", 1, None), ("a", 2, 2.0)]
    assert column(turns, "agent", "turn", "reward") == expected


def test_rewards_of_agents_without_a_turn_are_kept() -> None:
    turns = play(see("a"), StepResult(see("a"), {"c": 1.5}, info={"note": 1}), end({"c": 1, "b": 0}, note="x"))
    assert [json.loads(text) for text in column(turns, "metadata")] == [
        {"note": 1},
        {"note": "x", "rewards_without_turn": {"c": 2.5, "b": 0.0}},
    ]


def test_a_reward_that_is_not_finite_ends_the_episode() -> None:
    turns = play(see("a"), StepResult(see("b"), {"a": 1.0}), end({"a": 1.0, "b": float("nan")}), groups=2)
    assert column(turns, "agent", "reward") == [("a", 1.0), ("b", None)] * 2
    assert errors(turns) == {"reward: RewardError: 'b' received nan from Script, expected a finite number or None": 2}


# -- what the env says ------------------------------------------------------------------------------------------------


def test_facts_of_the_episode_are_on_all_of_its_rows() -> None:
    turns = play(see("a"), StepResult(see("b")), end(success=np.bool_(True)))
    assert column(turns, "terminated", "truncated", "success", "task") == [(True, False, True, "script")] * 2
    cut = play(see("a"), StepResult(see("a")), StepResult({}, truncated=True))
    assert column(cut, "terminated", "truncated", "success") == [(False, True, None)] * 2
    silent = play(see("a"), StepResult({}))
    assert column(silent, "terminated", "truncated") == [(True, False)]


def test_validity_and_metadata_belong_to_the_actions_just_taken() -> None:
    turns = play(
        see("a", "b"),
        StepResult(see("a"), info={"valid": {"a": False}, "words": {"x", "y"}, "n": np.int64(3), "v": np.arange(2)}),
        end(valid={"a": True}),
    )
    assert column(turns, "valid") == [False, True, True]
    assert column(turns, "metadata") == ['{"words": ["x", "y"], "n": 3, "v": [0, 1]}'] * 2 + [None]


def test_choices_features_and_masks() -> None:
    seen = Observation(
        "s", choices=("left", "right"), mask=np.array([True, False]), array=np.array([[0.5], [2.0]], np.float64)
    )
    turns = play({"a": seen}, end(), groups=4, team=Team({"*": Answers(lambda _: Decision(1))}))
    assert column(turns, "action", "features", "legal") == [("right", [0.5, 2.0], [True, False])] * 4


def test_the_env_gets_the_actions_as_the_policy_gave_them() -> None:
    def check(env: Script, actions: Mapping[str, Action]) -> StepResult:
        return end(given=repr(dict(actions)))

    turns = play(see("b", "a"), check, team=Team(a=Answers(lambda _: Decision(3)), b=Answers(lambda _: Decision("up"))))
    assert json.loads(turns["metadata"][0]) == {"given": "{'a': 3, 'b': 'up'}"}


def test_a_result_that_breaks_the_protocol_ends_the_episode() -> None:
    turns = play(see("a"), None, groups=2)
    assert column(turns, "agent", "error") == [("a", "env: EnvError: step returned NoneType, expected StepResult")] * 2


def test_an_endless_episode_is_truncated() -> None:
    turns = play(see("a"), *[StepResult(see("a"), {"a": 1.0})] * 5, max_turns=3, groups=2)
    assert column(turns, "turn", "terminated", "truncated", "error") == [(t, False, True, None) for t in range(3)] * 2
    assert column(turns, "reward") == [1.0] * 6
    just = play(see("a"), StepResult(see("a")), end(), max_turns=2)
    assert column(just, "terminated", "truncated") == [(True, False)] * 2


# -- what goes wrong --------------------------------------------------------------------------------------------------


def errors(turns: Turns) -> Counter[str | None]:
    first = turns.frame.unique(["group", "episode"], maintain_order=True)
    assert turns.frame.group_by("group", "episode").agg(pl.col("error").n_unique())["error"].max() == 1
    return Counter(first["error"].to_list())


def test_an_env_that_raises_now_and_then() -> None:
    def flaky(env: Script, _: Any) -> StepResult:
        if np.random.default_rng(env.position + env.seed).random() < 0.05:
            raise ConnectionError("lost\n  it")
        return StepResult(see("a")) if env.position < 10 else end()

    turns = play(see("a"), *[flaky] * 10, groups=200, group_size=2)
    found = errors(turns)
    assert found.total() == 400  # no episode is lost
    assert set(found) == {None, "env: ConnectionError: lost it"}
    assert found["env: ConnectionError: lost it"] / 400 == pytest.approx(1 - 0.95**10, abs=0.1)
    failed = turns.filter(pl.col("error").is_not_null())
    assert failed["action"].null_count() == 0  # it acted, and then the env failed
    last = failed.frame.group_by("group", "episode").last()
    assert last["valid"].null_count() == last["reward"].null_count() == len(last)
    assert not failed["terminated"].any()


@pytest.mark.parametrize("moment", ["make", "reset"])
def test_an_env_that_cannot_begin_is_one_row(moment: str) -> None:
    count = iter(range(10**6))

    class Flaky(Script):
        def __init__(self) -> None:
            super().__init__(see("a"), end())
            if moment == "make" and next(count) % 3 == 0:
                raise OSError("no board")

        def reset(self, seed: int) -> Any:
            if moment == "reset" and next(count) % 3 == 0:
                raise OSError("no board")
            return super().reset(seed)

    turns = rollout(Flaky, Team({"*": Dice()}), groups=30, concurrency=4)
    failed = turns.filter(pl.col("error").is_not_null())
    assert column(turns, "group") == list(range(30))
    assert column(failed, "error") == ["env: OSError: no board"] * len(failed)
    assert len(failed) == (2 if moment == "make" else 10)
    assert column(failed, "agent", "policy", "observation", "reward") == [(None, None, None, None)] * len(failed)
    assert failed["seed"].null_count() == 0


@pytest.mark.parametrize("moment", ["reset", "step"])
def test_an_env_that_failed_is_not_played_again(moment: str) -> None:
    resets: list[Script] = []

    def reset(env: Script) -> dict[str, Observation]:
        resets.append(env)
        if moment == "reset" and len(resets) == 2:
            raise RuntimeError("no")
        return see("a")

    def step(env: Script, _: Any) -> StepResult:
        if moment == "step" and len(resets) == 2:
            raise RuntimeError("no")
        return end()

    turns = play(reset, step, groups=5, concurrency=1)
    assert column(turns, "error") == [None, "env: RuntimeError: no", None, None, None]
    first, second = dict.fromkeys(map(id, resets))
    assert [id(env) for env in resets] == [first, first, second, second, second]


@pytest.mark.parametrize("moment", ["reset", "step"])
def test_an_env_that_hangs(moment: str) -> None:
    hanging = {Streams(0).env_seed(group) for group in (2, 3, 11)}
    release = threading.Event()

    def hang(env: Script, *_: Any) -> Any:
        if env.seed in hanging:
            release.wait(60)
        return see("a") if moment == "reset" else end({"a": 1.0})

    script = (hang, end({"a": 1.0})) if moment == "reset" else (see("a"), hang)
    turns = play(*script, groups=20, timeout=0.5)  # a busy machine may stand still for a fifth of a second
    release.set()
    assert column(turns, "group") == list(range(20))
    assert column(turns.filter(pl.col("error").is_not_null()), "group") == [2, 3, 11]
    assert errors(turns) == {None: 17, "env-timeout: TimeoutError: no answer within 0.5 s": 3}
    assert turns["reward"].sum() == 17


def test_many_slow_steps_are_not_a_hang() -> None:
    turns = play(see("a"), lambda *_: time.sleep(0.04) or end(), groups=20, timeout=0.5)
    assert errors(turns) == {None: 20}


def test_a_policy_that_raises_fails_its_requests_only() -> None:
    bad = Answers(fail(RuntimeError("out of memory")))
    turns = play(
        lambda env: see("a") if env.seed % 4 else see("b"), end({"a": 1.0}), groups=40, team=Team(a=Dice(), b=bad)
    )
    found = errors(turns)
    assert found.total() == 40
    assert set(found) == {None, "policy: RuntimeError: out of memory"}
    failed = turns.filter(pl.col("error").is_not_null())
    assert set(column(failed, "agent", "policy", "action", "reward")) == {("b", "answers", None, None)}
    assert failed["observation"].null_count() == 0


class Miscount:
    name = "miscount"

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        return [Decision("x")] * (len(requests) + 1)


def test_a_policy_that_miscounts_fails_its_requests() -> None:
    turns = play(see("a"), end(), groups=3, team=Team({"*": Miscount()}))
    assert errors(turns) == {"policy: PolicyError: act returned 4 decisions for 3 requests": 3}


def test_a_malformed_decision_fails_alone() -> None:
    answers = iter([Decision("x"), "x", Decision("x")])
    turns = play(see("a"), end(), groups=3, team=Team({"*": Answers(lambda _: next(answers))}))
    assert column(turns, "error") == [None, "policy: PolicyError: act answered 'a' with str, expected Decision", None]


def test_one_failing_agent_ends_the_episode_for_all() -> None:
    steps = []
    bad = Answers(lambda _: Decision("", error="RateLimitError: try later", cost=2.0))
    turns = play(see("a", "b", "c"), lambda *_: steps.append(1) or end(), team=Team({"a": Dice(), "*": bad}))
    assert column(turns, "agent", "error") == [(a, "policy: RateLimitError: try later") for a in "abc"]
    assert [action is None for action in column(turns, "action")] == [False, True, True]
    assert column(turns, "cost") == [0.5, 2.0, 2.0]
    assert not steps


def flaky_by_chance(env: Script, actions: Mapping[str, Action]) -> StepResult:
    if int(actions["a"]) % 2:
        raise RuntimeError("odd")
    return end({"a": 1.0})


@pytest.mark.parametrize("concurrency", [1, 5, 100])
def test_a_failed_episode_is_played_again_under_a_new_number(concurrency: int) -> None:
    options: dict[str, Any] = {"groups": 6, "group_size": 4, "concurrency": concurrency}
    turns = play(see("a"), flaky_by_chance, retries=2, **options)
    failed = {(g, e): error is not None for g, e, error in column(turns, "group", "episode", "error")}
    once = play(see("a"), flaky_by_chance, **options)
    assert content(once).equals(content(turns.filter(pl.col("episode") < 4)))
    for group in range(6):
        for first in range(4):
            numbers = [first + 4 * attempt for attempt in range(4)]
            attempts = [failed[group, number] for number in numbers if (group, number) in failed]
            assert attempts in ([False], [True, False], [True, True, False], [True, True, True])
    assert [key for key in failed if key[1] >= 8]
    assert list(failed) == sorted(failed)


def test_everything_fails_and_every_failure_is_counted() -> None:
    turns = play(fail(RuntimeError("no")), groups=3, group_size=2, retries=1, concurrency=2)
    assert column(turns, "group", "episode") == [(g, e) for g in range(3) for e in range(4)]


def test_tracebacks_are_logged_for_whoever_looks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "palaestra.play.rollout"):
        play(see("a"), fail(RuntimeError("no")))
    assert "Traceback" in caplog.text
    assert "in raises" in caplog.text


# -- what the user did wrong, and the rest ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 0}, "rollout: groups=0, expected at least 1"),
        ({"group_size": 0}, "group_size=0"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"max_turns": 0}, "max_turns=0"),
        ({"retries": -1}, "retries=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"stream": "test"}, "stream='test'"),
        ({"team": Team()}, "no policy for 'a'"),
    ],
)
def test_arguments_out_of_range_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        play(see("a"), end(), **options)


def test_an_env_that_is_not_installed_stops_the_run() -> None:
    with pytest.raises(MissingExtraError, match="not installed"):
        rollout(fail(MissingExtraError("x is not installed")), Team(), groups=3)
    assert errors(play(see("a"), fail(InputError("later")))) == {"env: InputError: later": 1}


def test_an_interrupt_gets_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        play(see("a"), end(), team=Team({"*": Answers(fail(KeyboardInterrupt()))}))


@pytest.mark.filterwarnings("ignore:.*do not start from one observation")
def test_a_sink_holds_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.play.recording.CHUNK_ROWS", 10)
    path = tmp_path / "new" / "turns.parquet"
    turns = chatter(groups=30, sink=path)
    assert content(turns).equals(content(chatter(groups=30)))
    assert turns.frame.equals(Turns.load(path).frame)
    assert [file.name for file in path.parent.iterdir()] == ["turns.parquet"]


def test_a_sink_that_cannot_be_written_is_noticed_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    dice = Dice()
    with pytest.raises(StorageError, match="cannot write"):
        play(see("a"), end(), sink=tmp_path / "file" / "turns.parquet", team=Team({"*": dice}))
    assert not dice.calls


def test_a_run_that_stops_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        play(see("a"), end(), sink=tmp_path / "turns.parquet", team=Team())
    assert not list(tmp_path.iterdir())


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    play(see("a"), fail(RuntimeError()), groups=3, progress=True)
    out, err = capsys.readouterr()
    assert not out
    assert "3 errors" in err
    play(see("a"), end(), groups=3)
    assert capsys.readouterr() == ("", "")


# -- a number of episodes for each group -----


def test_groups_may_have_sizes_of_their_own() -> None:
    uneven, even = chatter(groups=3, group_size=[1, 4, 2]).frame, chatter(groups=3, group_size=4).frame
    sizes = uneven.unique(["group", "episode"])["group"].value_counts().sort("group")["count"].to_list()
    assert sizes == [1, 4, 2]
    common = even.filter(pl.col("episode") < pl.col("group").replace_strict({0: 1, 1: 4, 2: 2}))
    played = ["group", "episode", "turn", "agent", "observation", "action", "reward"]
    assert uneven.select(played).equals(common.select(played)), "the size of a group changes no episode"


def test_a_failed_episode_is_played_again_in_the_numbering_of_its_group() -> None:
    turns = play(fail(RuntimeError("no")), groups=2, group_size=[1, 3], retries=1, concurrency=2)
    assert turns.frame.select("group", "episode").rows() == [(0, 0), (0, 1), *((1, episode) for episode in range(6))]


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match=r"group_size has 2 numbers for groups=3"):
        chatter(groups=3, group_size=[2, 2])
    with pytest.raises(InputError, match="group_size=0"):
        chatter(groups=2, group_size=[2, 0])


# -- whatever strangers return ends their own episode only ------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit("even so")


def answer_of(group_0: Any, others: Any = Decision("x")) -> Answers:  # noqa: B008
    """Another answer in the first of the groups."""
    first = Streams(0).env_seed(0)
    return Answers(lambda request: group_0 if request.observation.text == str(first) else others)


def show_seed(env: Script) -> dict[str, Observation]:
    return {"a": Observation(str(env.seed))}


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Decision("x", tokens_in=10**12), "policy: PolicyError: tokens_in is 1000000000000"),
        (Decision("x", action_ids=np.array([2**40])), r"policy: PolicyError: action_ids is \[1099511627776\]"),
        (Decision("x", action_ids=np.array([1.5])), r"policy: PolicyError: action_ids is \[1.5\]"),
        (Decision("x", cost=float("inf")), "policy: PolicyError: cost is inf"),
    ],
)
def test_what_no_column_can_hold_ends_its_own_episode(decision: Decision, message: str) -> None:
    turns = play(show_seed, end({"a": 1.0}), groups=3, team=Team({"*": answer_of(decision)}))
    failed = turns.filter(pl.col("error").is_not_null())
    assert column(failed, "group") == [0]
    assert failed.filter(pl.col("error").str.contains(message)).frame.height == 1


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (["1.5"], "reward: RewardError: 'a' received '1.5' from Script, expected a number or None"),
        ([10**400], "'a' received 1000"),
        ([1e308, 1e308], "reward: RewardError: what 'a' received since its last turn sums to inf"),
    ],
)
def test_rewards_that_are_no_finite_numbers_end_the_episode(rewards: list[Any], message: str) -> None:
    """The second of two rewards comes while somebody else acts, so both belong to one turn."""
    steps = [StepResult(see("b"), {"a": reward}) for reward in rewards]
    turns = play(see("a"), *steps, end())
    assert all(message in error for error in column(turns, "error"))
    assert turns["reward"].null_count() > 0


@pytest.mark.parametrize("error", [SystemExit("bye"), Unspeakable(), Leaving(), GeneratorExit()])
def test_exits_and_errors_without_words_end_their_own_episode(error: BaseException) -> None:
    policy = Answers(fail(error))
    turns = play(lambda env: see("a" if env.seed % 4 else "b"), end(), groups=20, team=Team(a=Dice(), b=policy))
    assert set(column(turns.filter(pl.col("agent") == "a"), "error")) == {None}
    (said,) = set(column(turns.filter(pl.col("agent") == "b"), "error"))
    assert said.startswith(f"policy: {type(error).__name__}:")
    turns = play(see("a"), fail(error))
    assert column(turns, "error")[0].startswith(f"env: {type(error).__name__}:")


def test_half_a_sign_in_a_name_does_not_stop_the_rest() -> None:
    class Odd(Script):
        agents = ("a\ud83d", "b")

    half = "a\ud83d"
    script = functools.partial(Odd, {half: Observation("x")}, end({half: 1.0}))
    turns = rollout(script, Team({"*": Dice("p\ud83d")}), groups=2, run="r\ud83d")
    assert column(turns, "agent", "policy", "run", "reward") == [("a?", "p?", "r?", 1.0)] * 2


def test_half_a_sign_may_be_seen() -> None:
    turns = play({"a": Observation("half \ud83d", messages=({"role": "user", "content": "\ud83d"},))}, end())
    assert column(turns, "observation", "error") == [("half ?", None)]


def test_rewards_of_strangers_are_an_error() -> None:
    turns = play(see("a"), end({"A": 1.0}))
    assert column(turns, "error")[0].startswith("env: EnvError: a reward is of 'A', who is not one of the env's agents")


def test_a_policy_has_a_name() -> None:
    class Nameless:
        def act(self, requests: Sequence[Request]) -> list[Decision]:
            return []

    with pytest.raises(InputError, match="the policy of 'a', a Nameless, does not say its name"):
        play(see("a"), end(), team=Team({"*": Nameless()}))  # type: ignore[dict-item]


def test_names_of_agents_are_texts() -> None:
    turns = play({0: Observation("x")}, end())
    assert errors(turns) == {"env: EnvError: an agent is called 0; names of agents are texts": 1}
