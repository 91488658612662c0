"""[109]: the worked numbers of the card, each detector on what it must and must not see, and selection."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.triage import detect, efficiency, episodes, loops, messages, sampling_gain, triage
from palaestra.evaluation.triage.detection import SCHEMA
from palaestra.evaluation.triage.select import because
from palaestra.evaluation.triage.talk import cosine, phrase_match, shorten
from palaestra.evaluation.trials import trials


def talk(*said: tuple[str, str], episode: int = 0) -> pl.DataFrame:
    """One episode of messages (role, text)."""
    roles, texts = zip(*said, strict=True)
    return pl.DataFrame({"episode": [episode] * len(said), "turn": range(len(said)), "role": roles, "action": texts})


def calls(*made: tuple[str, str, str | None]) -> Turns:
    """One episode of calls (tool, arguments, answer)."""
    tools, arguments, answers = zip(*made, strict=True)
    heard = ["please find my order", *answers[:-1]]
    return Turns({
        "episode": [0] * len(made), "turn": range(len(made)), "agent": ["a"] * len(made), "observation": heard,
        "action": [""] * len(made), "tool": tools, "arguments": arguments,
        "tool_error": [*[None] * (len(made) - 1), answers[-1]],
    })  # fmt: skip


def types(turns: Turns) -> list[str]:
    return detect(turns)["type"].to_list()


def test_user_turns_drag_from_the_tenth_on() -> None:
    assert efficiency(10) == pytest.approx(0.444, abs=5e-4)
    assert efficiency(9) == 0.5
    for turns, fires in ((9, False), (10, True)):
        said = [("human", f"question {chr(97 + i)}{chr(98 + i)}{chr(99 + i)}") for i in range(turns)]
        assert ("interaction.stagnation.dragging" in types(Turns(talk(*said)))) is fires


@pytest.mark.parametrize("each", [9, 10])
def test_a_team_drags_when_one_of_it_hears_so_much(each: int) -> None:
    rows = [(turn, agent, f"{word} {turn}") for turn in range(each) for agent, word in (("a", "look"), ("b", "go"))]
    turns = Turns(pl.DataFrame(rows, schema=["turn", "agent", "observation"], orient="row").with_columns(episode=0))
    assert types(turns) == ["interaction.stagnation.dragging"] * (each == 10)


def test_what_a_world_shows_in_numbers_is_neither_rephrased_nor_repeated_by_a_person() -> None:
    shown = ["left: 0 1 2 3 4 5", "left: 1 2 3 4 5", "left: 1 2 3 4 5"]
    assert not types(Turns({"episode": [0] * 3, "turn": range(3), "agent": ["a"] * 3, "observation": shown}))
    spelled = [
        text.replace("1", "one").replace("2", "two").replace("3", "three").replace("4", "four") for text in shown
    ]
    assert types(Turns({"episode": [0] * 3, "turn": range(3), "agent": ["a"] * 3, "observation": spelled})) == [
        *["interaction.misalignment.rephrase"] * 2, "interaction.stagnation.repetition",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "user_turns", "expected"),
    [
        ({}, 3, 50), ({"interaction.satisfaction.gratitude": 1}, 3, 62),
        ({"interaction.satisfaction.gratitude": 2}, 3, 66),
        ({"interaction.satisfaction.gratitude": 3}, 3, 69), ({"interaction.satisfaction.gratitude": 9}, 3, 69),
        ({"execution.failure.auth": 2}, 1, 34),
        ({"execution.failure.auth": 1, "execution.loop.retry": 1, "environment.exhaustion.timeout": 1}, 1, 34),
        ({"interaction.misalignment.correction": 2}, 4, 35), ({"interaction.misalignment.correction": 2}, 10, 50),
        ({"interaction.disengagement.quit": 1}, 2, 0), ({"interaction.disengagement.negative_stance": 1}, 2, 40),
        ({"interaction.disengagement.negative_stance": 5}, 2, 0), ({"interaction.stagnation.repetition": 2}, 2, 50),
        ({"interaction.stagnation.repetition": 3}, 2, 34), ({"execution.failure.state": 9}, 1, 0),
    ],
)  # fmt: skip
def test_quality_of_the_card(counts: dict[str, int], user_turns: int, expected: float) -> None:
    turns = Turns(talk(*[("human", f"wish {i}") for i in range(user_turns)], ("agent", "yes")))
    kinds = [kind for kind, n in counts.items() for _ in range(n)]
    rows = [(0, kind, 1.0, "") for kind in kinds]
    found = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    row = episodes(turns, found).row(0, named=True)
    assert row["user_turns"] == user_turns
    assert row["quality"] == pytest.approx(expected)
    buckets = {62: "good", 66: "good", 69: "good", 50: "neutral", 40: "neutral", 34: "poor", 35: "poor", 0: "severe"}
    assert row["bucket"] == buckets[int(expected)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No, that's wrong. The red one!", "misalignment.correction"),
        ("what do you mean?", "misalignment.clarification"),
        ("I want to talk to a human", "disengagement.escalation"),
        ("Never mind.", "disengagement.quit"),
        ("THIS DOES NOT WORK AT ALL", "disengagement.negative_stance"),
        ("thank you so much", "satisfaction.gratitude"),
        ("perfect", "satisfaction.confirmation"),
        ("Great, it works now", "satisfaction.success"),
        ("Book a table for two", None),
        ("OK DONE", None),
        ("WHY BROKEN STILL", "disengagement.negative_stance"),  # two words of speech are enough
        ("WHY BROKEN PHONE", None),
        ("WHY STILL on", "disengagement.negative_stance"),  # 8 of 10 letters
        ("WHY STIll on", None),
        ("WHY STILL", None),
    ],
)
def test_what_people_say(text: str, kind: str | None) -> None:
    found = types(Turns(talk(("human", text), ("agent", "done"))))
    assert found == ([] if kind is None else [f"interaction.{kind}"])


def test_only_people_are_listened_to() -> None:
    assert not types(Turns(talk(("agent", "thank you"), ("observation", "never mind"))))


def test_a_rephrased_wish_is_misalignment_and_a_new_one_is_not() -> None:
    first = "find cheap flights from Paris to Rome tomorrow"
    again = Turns(talk(("human", first), ("agent", "no"), ("human", "cheap flights tomorrow Paris Rome, find them")))
    assert types(again) == ["interaction.misalignment.rephrase"]
    other = Turns(talk(("human", first), ("agent", "no"), ("human", "reserve a quiet hotel near the station instead")))
    assert not types(other)
    for second, sure in (
        ("move red chair upstairs", 0.75),
        ("move blue sofa downstairs", 0.0),
        ("move blue chair upstairs before noon and paint walls", 1.0),  # half is new
        ("move blue chair upstairs before noon and paint walls green", 0.0),
    ):
        found = detect(Turns(talk(("human", "move blue chair upstairs"), ("agent", "no"), ("human", second))))
        assert found["confidence"].to_list() == ([sure] if sure else []), second


def test_repetition_of_one_speaker() -> None:
    line = "I can help you with that right away"
    said = Turns(talk(("agent", line), ("human", "go on"), ("agent", line + "!"), ("human", "well")))
    assert types(said) == ["interaction.stagnation.repetition"]
    assert detect(said)["row"].to_list() == [2]


@pytest.mark.parametrize("second", ["please add up the numbers of the list", "add up the numbers of the list please"])
def test_members_of_a_team_are_told_the_same_and_nobody_repeats_it(second: str) -> None:
    task = "please add up the numbers of the list"
    rows = [("solver", task, "the sum must be twelve then"), ("checker", second, "the sum must be twelve then")]
    team = {"episode": [0, 0], "agent": [a for a, _, _ in rows], "observation": [o for _, o, _ in rows]}
    table = pl.DataFrame(team | {"action": [said for *_, said in rows], "turn": [0, 1]})
    assert not types(Turns(table))
    assert types(Turns(table.with_columns(agent=pl.lit("solver"))))


def test_what_an_agent_hears_after_its_own_call_is_the_tools_answer() -> None:
    heard = ["sum it up", "check it", "never mind", "never mind"]
    rows = {"episode": [0] * 4, "turn": range(4), "agent": ["a", "b", "a", "b"], "observation": heard}
    table = pl.DataFrame(rows | {"tool": ["add", None, None, None]})
    assert messages(Turns(table))["role"].to_list() == ["human", "human", "observation", "human"]


def test_phrases_match_whole_words_or_nearly_the_whole_message() -> None:
    assert phrase_match("oh thanks a lot", ["thanks"]) == 1
    assert phrase_match("thanksgiving dinner for ten", ["thanks"]) == 0
    assert 0.65 <= phrase_match("that's not what i askd", ["that's not what i asked"]) < 1
    assert len(shorten("x" * 5000)) == 2000
    assert shorten("a" * 1000 + "b" * 5000).count("a") == 400


def test_words_are_alike_by_how_often_they_are_said() -> None:
    assert cosine("go go on", "go on on") == pytest.approx(4 / 5)
    assert cosine("stop it", "please stop please") == pytest.approx(1 / 10**0.5)
    assert cosine("yes", "no") == cosine("", "no") == 0


def test_loops() -> None:
    assert [f.type for f in loops(calls(*[("search", "{}", "none")] * 3))] == ["loop.retry"]
    assert not loops(calls(*[("search", "{}", "none")] * 2))
    drift = [("search", f'{{"page": {i}}}', "ok") for i in range(3)]
    assert [f.type for f in loops(calls(*drift))] == ["loop.parameter_drift"]
    swing = [("open", "{}", "ok"), ("close", "{}", "ok")]
    found = loops(calls(*swing * 3))
    assert [(f.type, f.evidence) for f in found] == [("loop.oscillation", "3 × (open → close)")]
    assert not loops(calls(*swing * 2))
    mixed = loops(calls(*[("search", "{}", "none")] * 3, *drift))
    assert [f.type for f in mixed] == ["loop.retry"]  # drift does not overlap a retry
    two = Turns.concat(
        [calls(*[("search", "{}", "x")] * 2), calls(*[("search", "{}", "x")] * 2).with_column(episode=[1, 1])]
    )
    assert not loops(two)  # not across episodes


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("TypeError: missing required argument 'city'", "execution.failure.invalid_args"),
        ("Tool book_flight not found", "execution.failure.tool_not_found"),
        ("403 Forbidden", "execution.failure.auth"),
        ("file already exists", "execution.failure.state"),
        ("SQL: syntax error near FROM", "execution.failure.bad_query"),
        ("no results found", "execution.failure.bad_query"),
        ("429 Too Many Requests", "environment.exhaustion.rate_limit"),
        ("the request timed out", "environment.exhaustion.timeout"),
        ("connection refused", "environment.exhaustion.network"),
        ("JSON decode error", "environment.exhaustion.malformed_response"),
        ("maximum context length is 8192", "environment.exhaustion.context_overflow"),
        ("503 Service Unavailable", "environment.exhaustion.api_error"),
        ("3 flights, the cheapest at 40", None),
    ],
)
def test_what_tools_answer(answer: str, kind: str | None) -> None:
    first = calls(("book", "{}", answer), ("look", "{}", None))
    assert types(first) == ([] if kind is None else [kind])
    assert detect(first)["row"].to_list() == [0] * (kind is not None)  # the row of the call, heard a turn later
    said = types(calls(("book", "{}", answer)))  # or said by the log itself, which is believed
    assert said == [kind or "execution.failure.other"]


def test_a_status_is_believed_before_words() -> None:
    fine = calls(("read", "{}", "page about HTTP 403 Forbidden"), ("look", "{}", None)).with_column(status=[200, 200])
    assert not types(fine)
    assert types(fine.with_column(status=[403, 200])) == ["execution.failure.auth"]


@pytest.mark.parametrize("none", [False, "", " ", "None", "false"])
def test_an_empty_tool_error_or_limit_is_none(none: object) -> None:
    fine = calls(("read", "{}", None), ("look", "{}", None)).frame.with_columns(limit=pl.lit(none))
    assert not types(Turns(fine.with_columns(tool_error=pl.lit(none))))
    assert types(Turns(fine.with_columns(status=pl.lit("ok")))) == [], "a word is no status"


def test_messages_tell_people_from_tools() -> None:
    turns = calls(("search", "{}", "thank you"), ("search", "{2}", None))
    roles = messages(turns).select("role", "text").rows()
    assert roles == [("human", "please find my order"), ("observation", "thank you")]
    with pytest.raises(InputError, match="holds 'robot'"):
        messages(Turns(talk(("robot", "hi"))))


def log(n: int = 60) -> Turns:
    """Every third episode fails twice."""
    rng = np.random.default_rng(0)
    parts = []
    for i in range(n):
        answers = ("invalid argument", "permission denied") if i % 3 == 0 else ("ok", "ok")
        part = calls(*[(f"tool{rng.integers(9)}{j}", "{}", a) for j, a in enumerate(answers)])
        parts.append(part.with_column(episode=[i] * 2, success=[i % 3 != 0] * 2, task=[f"t{i % 5}"] * 2))
    return Turns.concat(parts)


def test_triage_fills_the_budget_with_what_is_worth_reading() -> None:
    chosen = triage(log(), 20)
    assert chosen.height == 20
    assert not chosen["success"].any()
    assert chosen["why"][0] == "failure.auth, failure.invalid_args"
    assert chosen["score"].is_sorted(descending=True)
    assert triage(log(), 20).equals(triage(log(), 20))
    more = triage(log(), 30)
    assert more["success"].sum() == 10  # quiet episodes fill the rest, by lot
    assert not more.equals(triage(log(), 30, seed=1))
    assert triage(log(), 1000).height == 60


def test_what_is_the_same_word_for_word_is_read_once() -> None:
    """Two of four episodes are the same with a known task, as in runs that start alike: the second is read last."""
    said = ["not that, do it again"] * 3 + ["thanks"]
    turns = Turns({"episode": [0, 1, 2, 3], "turn": [0] * 4, "agent": ["user", "user", "user", "user"], "action": said})
    same = turns.with_column(task=["t", "t", "u", "t"])
    chosen = triage(same, 4)
    assert dict(chosen.select("episode", "alike").rows()) == {0: 2, 1: 2, 2: 1, 3: 1}
    assert chosen["episode"][-1] in (0, 1)
    assert {*triage(same, 2)["episode"]} & {2}
    assert triage(turns, 4)["alike"].to_list() == [1] * 4  # without tasks nobody knows
    apart = same.with_column(system=["a", "b", "a", "a"])
    assert triage(apart, 4)["alike"].to_list() == [1] * 4


def test_a_share_of_the_budget_is_drawn_blindly() -> None:
    chosen = triage(log(), 20, random=0.5)
    assert chosen["drawn"].value_counts().sort("drawn").rows() == [("random", 10), ("signals", 10)]
    assert chosen["episode_code"].is_unique().all()
    weightless = triage(log(), 20, weights={"execution": 0.0})
    assert weightless["score"].sum() == 0


def test_bad_budgets_and_tables_are_named() -> None:
    with pytest.raises(InputError, match="budget=0"):
        triage(log(), 0)
    with pytest.raises(InputError, match="random=2"):
        triage(log(), 5, random=2.0)
    with pytest.raises(InputError, match="weight execution=-1"):
        triage(log(), 5, weights={"execution": -1.0})
    with pytest.raises(MissingColumnError, match="episode"):
        detect(Turns({"action": ["a"]}))
    assert detect(Turns({"episode": [0], "action": ["hi"]})).is_empty()


def test_gain_over_random_reading_has_intervals() -> None:
    gain = sampling_gain({"random": [True] * 54 + [False] * 46, "signals": [True] * 82 + [False] * 18})
    row = gain.filter(pl.col("way") == "signals").row(0, named=True)
    assert row["gain"] == pytest.approx(82 / 54)
    assert row["low"] == pytest.approx(0.7333, abs=1e-4)
    with pytest.raises(InputError, match="no 'rnd'; did you mean 'random'"):
        sampling_gain({"random": [True]}, baseline="rnd")


def test_a_table_without_words_or_calls_is_sampled_blindly() -> None:
    table = Turns({"task": list("abcd"), "episode": [0, 1, 2, 3], "success": [True, False] * 2})
    assert len(messages(table)) == 0
    chosen = triage(table, 3)
    assert len(chosen) == 3
    assert chosen["score"].to_list() == [0.0] * 3


@pytest.mark.parametrize(("failing", "fires"), [(2, True), (1, False)])  # and the last, whose answer is an error
def test_varied_calls_are_stuck_if_half_of_them_fail(failing: int, fires: bool) -> None:
    made = [("search", f'{{"q": {k}}}', "Error: not found" if k < failing else f"page {k}") for k in range(6)]
    assert bool(loops(calls(*made))) is fires


@pytest.mark.parametrize(("text", "fires"), [("please try it once more", True), ("please try it again", False)])
def test_what_repeats_has_five_words_or_more(text: str, fires: bool) -> None:
    turns = Turns(talk(("human", text), ("agent", "no"), ("human", text)))
    assert any(kind.startswith("interaction.stagnation") for kind in types(turns)) is fires


def quiet(failures: set[int], count: int, system: str) -> pl.DataFrame:
    """Episodes of which nothing but the outcome is known."""
    return pl.DataFrame({
        "system": [system] * count, "task": [f"t{n}" for n in range(count)], "run": [system] * count,
        "episode": range(count), "success": [n not in failures for n in range(count)],
    })  # fmt: skip


def test_failures_that_are_known_are_chosen_before_signs() -> None:
    """100 episodes of which 40 failed, the failures without any sign and some successes with one."""
    noisy = calls(("pay", "{}", "invalid argument"), ("pay", "{}", "permission denied")).frame
    noisy = noisy.with_columns(episode=1, success=True, task=pl.lit("t1"))
    table = Turns(pl.concat([quiet(set(range(40, 80)), 100, "a"), noisy], how="diagonal_relaxed"))
    chosen = triage(table, 40)
    assert chosen["outcome"].to_list() == ["failed"] * 40
    assert triage(table, 1, outcomes=False)["task"].to_list() == ["t1"]
    assert triage(table, 41)["task"][40] == "t1"


def test_what_was_right_and_is_wrong_comes_first() -> None:
    table = Turns(pl.concat([quiet({7, 8}, 20, "old"), quiet({3, 4, 8}, 20, "new")]))
    chosen = triage(table, 5)
    assert chosen["outcome"].to_list() == ["regressed"] * 2 + ["failed"] * 3
    assert set(chosen["task"][:2]) == {"t3", "t4"}
    assert because(chosen.row(0, named=True)) == "right before, wrong now"
    unknown = table.frame.with_columns(success=pl.lit(None, pl.Boolean))
    assert triage(Turns(unknown), 3)["outcome"].null_count() == 3


TOLD = st.lists(
    st.tuples(st.sampled_from((None, True, False)), st.sampled_from((None, "boom", "env: no disk", "skipped: late"))),
    min_size=1,
    max_size=3,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(TOLD, min_size=1, max_size=5))
def test_an_outcome_is_that_of_evaluate(told: list[list[tuple[bool | None, str | None]]]) -> None:
    """Whichever rows of an episode say it: a row of each agent, or the last one alone."""
    rows = [(e, i, f"a{i}", "t", *row) for e, episode in enumerate(told) for i, row in enumerate(episode)]
    schema = {"episode": pl.Int32, "turn": pl.Int32, "agent": pl.String, "task": pl.String, "success": pl.Boolean,
              "error": pl.String}  # fmt: skip
    table = pl.DataFrame(rows, schema, orient="row")
    known = trials(table)
    chosen = triage(Turns(table), len(told)).sort("episode")
    assert chosen["outcome"].to_list() == [{True: "succeeded", False: "failed"}.get(x) for x in known["success"]]
    assert chosen["error"].to_list() == known["error"].to_list()
