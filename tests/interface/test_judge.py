"""`palaestra judge` over a real endpoint on 127.0.0.1: files in, verdicts out, nothing paid twice, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.judges.chat_server import completion
from tests.judges.test_endpoint import Server, http

from palaestra.algebra.turns import Turns
from palaestra.interface import cli


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.respond = lambda prompt, number: http(
        200, completion("VERDICT: A" if "Answer A" in prompt else f"VERDICT: {'yes' if 'thanks' in prompt else 'no'}")
    )
    yield made
    made.loop.call_soon_threadsafe(made.stop.set)
    made.thread.join(5)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Any:
    """Run it in a folder with a rubric and the play of two systems."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("rubric.yaml").write_text("polite: {question: 'Is it polite?', weight: 2}\nshort: Is it short?\n")
    for name, said in (("old", "go away"), ("new", "thanks")):
        rows = {"group": [0, 0, 1], "episode": [0, 0, 0], "turn": [0, 1, 0], "agent": ["a"] * 3}
        Turns(rows | {"action": ["hello", said, said], "task": ["t0", "t0", "t1"]}).save(f"{name}.parquet")

    def run(*arguments: object, model: bool = True) -> tuple[int, str, str]:
        asked = ["--rubric", "rubric.yaml", "--model", "m", "--endpoint", server.url, "--key-env", "none"] * model
        with pytest.raises(SystemExit) as ended:
            cli.main(["judge", *map(str, arguments), *asked, "--out", "out/verdicts.parquet"])
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    return run


def test_any_log_is_judged_and_never_paid_for_twice(say: Any, server: Server) -> None:
    code, out, err = say("new=new.parquet", "old=old.parquet", "--calls", "calls.parquet")
    assert (code, err) == (0, "")
    assert "8 calls, 880 tokens" in out
    table = pl.read_parquet("out/verdicts.parquet")
    mean = {(s, c): v for s, c, v in table.group_by("system", "criterion").agg(pl.col("value").mean()).rows()}
    assert mean == {("new", "polite"): 1, ("new", "short"): 1, ("old", "polite"): 0, ("old", "short"): 0}
    assert {"group", "episode", "task", "item", "ok", "cost"} <= set(table.columns)
    assert Turns.load("calls.parquet")["agent"].cast(pl.String).to_list() == ["judge"] * 8
    code, out, err = say("new=new.parquet", "old=old.parquet", "--json")
    assert (code, len(server.prompts)) == (0, 8)
    assert json.loads(out)["spent"]["calls"] == 8


def test_two_systems_are_compared_in_both_orders(say: Any, server: Server) -> None:
    code, out, _ = say("new=new.parquet", "old=old.parquet", "--baseline", "old")
    assert code == 0
    assert len(server.prompts) == 2 * 2 * 2
    table = pl.read_parquet("out/verdicts.parquet")
    assert table["value"].mean() == 0.5  # the server always takes what comes first
    assert table["system"].unique().to_list() == ["new"]
    assert "consistent" in out


def test_a_dry_run_asks_nobody_and_leaves_nothing(say: Any, server: Server) -> None:
    code, out, _ = say("new.parquet", "--dry-run", "--price-in", 1, "--price-out", 2)
    assert (code, server.prompts) == (0, [])
    assert "4 questions" in out
    assert "to pay" in out
    assert not Path("out").exists()


def test_a_budget_ends_it_with_what_there_is(say: Any, server: Server) -> None:
    code, _, err = say("new.parquet", "--budget-calls", 3)
    assert (code, len(server.prompts)) == (1, 3)
    assert "no verdict: 1 × the budget is spent" in err
    assert pl.read_parquet("out/verdicts.parquet")["ok"].sum() == 3
    code, _, _ = say("new.parquet", "--budget-calls", 4)
    assert (code, len(server.prompts)) == (0, 4)


def test_a_budget_that_no_call_can_keep_says_so(say: Any, server: Server) -> None:
    code, _, err = say("new.parquet", "--budget-tokens", 20)
    assert (code, server.prompts) == (1, [])
    assert "no verdict: 4 × the budget is too small for one call" in err


def test_what_a_scorer_cannot_say_is_no_answer(say: Any) -> None:
    Turns({"group": [0, 1], "episode": [0, 0], "turn": [0, 0], "agent": ["a"] * 2, "action": ["x", "y"],
           "reward": [1.0, None], "task": ["s", "t"]}).save("some.parquet")  # fmt: skip
    code, _, err = say("some.parquet", "--scorer", "verifier('reward')", model=False)
    assert (code, err.strip()) == (1, "no verdict: 1 × the scorer has no value")


def test_what_cannot_be_read_is_counted_and_exits_with_one(say: Any, server: Server) -> None:
    server.respond = lambda prompt, number: http(200, completion("Give me 10. It is a 9."))
    code, out, err = say("new.parquet")
    assert code == 1
    assert "no verdict: 4 × an answer that cannot be read" in err
    assert "–" in out


def test_any_scorer_of_the_registry(say: Any) -> None:
    code, out, _ = say("new.parquet", "--scorer", "verifier('1.0 * (turn > 0)')", model=False)
    assert code == 0
    assert pl.read_parquet("out/verdicts.parquet")["value"].to_list() == [1.0, 0.0]
    assert "0.5" in out


def test_a_panel_s_score_is_that_of_its_own_rule(say: Any, server: Server) -> None:
    """Of two votes, yes and no, the smaller: 0; their mean would be 1.5."""
    votes: dict[str, int] = {}

    def answer(prompt: str, number: int) -> bytes:
        votes[prompt] = votes.get(prompt, 0) + 1
        return http(200, completion(f"VERDICT: {'yes' if votes[prompt] == 1 else 'no'}"))

    server.respond = answer
    judge = f'judged("rubric.yaml", model="m", base_url="{server.url}", api_key_env=None)'
    assert say("new.parquet", "--scorer", f"vote({judge}, n=2, method='min')", model=False)[0] == 0
    written = pl.read_parquet("out/verdicts.parquet")
    assert sorted(written["value"]) == [0.0] * 4 + [1.0] * 4
    assert written["score"].unique().to_list() == [0.0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nowhere.parquet"], "nowhere.parquet"),
        (["new.parquet", "--baseline", "odl"], "--baseline 'odl': no such system"),
        (["new.parquet", "--level", "word"], "level='word'"),
        (["new.parquet", "--budget-price", "1"], "needs price_in"),
        (["new.parquet", "--key-env", "NOT_SET_HERE"], "NOT_SET_HERE is not set"),
        (["new.parquet", "--scorer", "stub()"], "give --rubric and --model, or --scorer"),
        (["new.parquet", "--out", "x.txt"], ".parquet, .csv, .jsonl"),
    ],
)
def test_what_is_wrong_is_one_line(say: Any, arguments: list[str], why: str) -> None:
    if "--out" in arguments or "--key-env" in arguments:  # the last one counts
        with pytest.raises(SystemExit) as ended:
            cli.main(["judge", "--rubric", "rubric.yaml", "--model", "m", "--endpoint", "http://127.0.0.1:9/v1",
                      "--out", "y.parquet", *arguments])  # fmt: skip
        assert ended.value.code == 2
        return
    code, out, err = say(*arguments)
    assert (code, out) == (2, "")
    assert why in err
    assert err.strip().count("\n") == 0


def test_a_dry_run_needs_no_key_and_a_run_says_how_to_go_without(
    say: Any, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = ["--rubric", "rubric.yaml", "--model", "m", "--endpoint", server.url]
    code, out, _ = say("new.parquet", *asked, "--dry-run", model=False)
    assert (code, "4 questions" in out, server.prompts) == (0, True, [])
    code, _, err = say("new.parquet", *asked, model=False)
    assert (code, "--key-env none" in err) == (2, True)


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Standard output of a command of the same program, as JSON."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert ended.value.code in (0, None), captured.err
    return json.loads(captured.out)


@pytest.fixture
def play(say: Any, server: Server) -> Path:
    """Twenty tasks by two systems: `new` is always polite, every other answer of both is short."""
    for name in ("old", "new"):
        said = [("thanks " if name == "new" else "") + "go" * (1 + 9 * (n % 2)) for n in range(20)]
        rows = {"group": range(20), "episode": [0] * 20, "turn": [0] * 20, "agent": ["a"] * 20}
        Turns(rows | {"action": said, "task": [f"task {n}" for n in range(20)]}).save(f"{name}.parquet")
    polite, short = "polite: {question: 'Is it polite?', weight: 1}", "short: {question: 'Short?', weight: 9}"
    Path("rubric.yaml").write_text(f"{polite}\n{short}\n")

    def respond(prompt: str, number: int) -> bytes:
        yes = "gogo" not in prompt if "Short?" in prompt else "thanks" in prompt
        if "Answer A" in prompt:
            first, second = prompt.split("Answer B:")
            said = "tie" if "Short?" in prompt else "A" if "thanks" in first else "B" if "thanks" in second else "tie"
            return http(200, completion(f"VERDICT: {said}"))
        return http(200, completion(f"VERDICT: {'yes' if yes else 'no'}"))

    server.respond = respond
    return Path("out/verdicts.parquet")


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_evaluate_gives_the_weighted_score_of_what_judge_wrote(
    kind: str, say: Any, play: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """short has weight 9, polite 1: (9·½ + 1) against 9·½, where the plain mean of the rows is ¾ against ¼."""
    say("new=new.parquet", "old=old.parquet")
    file = play.with_suffix(f".{kind}")
    table = pl.read_parquet(play)
    {"parquet": table.write_parquet, "csv": table.write_csv, "jsonl": table.write_ndjson}[kind](file)
    for option in ([], ["--score", "value"], ["--score", "score"]):
        rows = {row["system"]: row for row in command(capsys, "evaluate", file, "--baseline", "old", *option)}
        assert rows["new"]["score"]["mean"] == pytest.approx(5.5)
        assert rows["old"]["score"]["mean"] == pytest.approx(4.5)
        assert rows["new"]["tasks"] == 20
    polite = {row["system"]: row["score"]["mean"] for row in command(capsys, "evaluate", file, "--score", "polite")}
    assert polite == {"new": 1.0, "old": 0.0}


def test_an_item_without_a_verdict_is_an_error_and_no_zero(
    say: Any, play: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    respond = server.respond
    server.respond = lambda prompt, number: (
        http(200, completion("perhaps")) if "thanks" in prompt and "Short?" in prompt else respond(prompt, number)
    )
    assert say("new=new.parquet", "old=old.parquet")[0] == 1
    rows = {row["system"]: row for row in command(capsys, "evaluate", play)}
    assert rows["new"]["score"]["mean"] is None
    assert rows["new"]["errors"] == {"judge": 20}
    assert rows["old"]["score"]["mean"] == pytest.approx(4.5)


def test_verdicts_of_several_criteria_without_weights_are_refused(
    say: Any, play: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say("new.parquet")
    pl.read_parquet(play).drop("score").write_parquet("plain.parquet")
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", "plain.parquet", "--score", "value"])
    assert ended.value.code == 2
    assert "2 criteria without a column score" in capsys.readouterr().err


def test_a_rerun_keeps_what_was_paid(say: Any, play: Path) -> None:
    say("new.parquet", "--price-in", 1, "--price-out", 2)
    first = pl.read_parquet(play)
    assert first["tokens"].sum() == 40 * 110
    assert first["cost"].sum() > 0
    say("new.parquet", "--price-in", 1, "--price-out", 2)
    again = pl.read_parquet(play)
    assert again.select("item", "tokens", "cost").equals(first.select("item", "tokens", "cost"))


def test_the_file_of_judge_is_audited_and_learned_from_as_it_is(
    say: Any, play: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The longer answer of a task is the less short one, so the judge of shortness follows length."""
    say("new=new.parquet", "old=old.parquet")
    table = pl.read_parquet(play)
    assert table["length"].to_list() == table["response"].str.len_chars().to_list()
    (told,) = command(capsys, "audit-judge", play)
    found = {each["audit"]: each for each in told["findings"]}
    assert found.keys() == {"parsing", "ties", "drift", "nuisance length"}
    assert found["nuisance length"]["numbers"]["groups"] == 20
    assert found["nuisance length"]["numbers"]["rows"] == 80
    assert found["ties"]["numbers"]["tied"] == 0.5  # of `short`, not of `polite`
    learned = command(capsys, "fit-reward", play, "--out", "rm", "--epochs", 1, "--held-out", "0.2")
    assert learned["learned"] == {"what": "labels", "rows": 32, "held_out": 8, "keys": 4, "left_out": {}}


def test_comparisons_of_judge_are_pairs_to_learn_from(say: Any, play: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say("new=new.parquet", "old=old.parquet", "--baseline", "old")
    assert pl.read_parquet(play)["score"].unique().to_list() == [pytest.approx(0.9 * 0.5 + 0.1)]
    learned = command(capsys, "fit-reward", play, "--out", "rm", "--epochs", 1, "--held-out", "0.2")
    assert learned["learned"] == {"what": "pairs", "rows": 16, "held_out": 4, "keys": 4, "left_out": {}}


def test_a_scorer_that_asks_an_endpoint_pays_for_nothing_twice(say: Any, server: Server) -> None:
    judge = f'judged("rubric.yaml", model="m", base_url="{server.url}", api_key_env=None)'
    scorer = ("--scorer", f"vote({judge}, n=2)", "--votes", 2)
    assert say("new.parquet", *scorer, model=False)[0] == 0
    assert len(server.prompts) == 8  # two episodes, two criteria, two votes
    assert say("new.parquet", *scorer, model=False)[0] == 0
    assert len(server.prompts) == 8
    assert say("new.parquet", *scorer, "--ledger", "none", model=False)[0] == 0
    assert len(server.prompts) == 16


def test_the_last_line_says_that_nothing_was_judged(say: Any, server: Server) -> None:
    server.respond = lambda prompt, number: http(401, b'{"error": {"message": "no such key"}}')
    code, _, err = say("new.parquet")
    assert code == 1
    assert err.rstrip().split("\n")[-1].startswith("NOTHING WAS JUDGED: 4 of 4 questions got no answer")
    assert "no such key" in err.rstrip().split("\n")[-1]


def test_a_column_is_compared_with_in_both_orders_under_instructions(say: Any, server: Server) -> None:
    Path("strict.j2").write_text("Be strict.\n{{ default }}")
    code, _, _ = say("new.parquet", "--reference", "task", "--instructions", "strict.j2")
    assert code == 0
    assert len(server.prompts) == 8  # two episodes, two criteria, two orders
    assert all(each.startswith("Be strict.\nYou compare two answers") for each in server.prompts)
    assert set(pl.read_parquet("out/verdicts.parquet")["reference"]) == {"t0", "t1"}
    code, _, err = say("new.parquet", "--reference", "tusk")
    assert (code, "the logs have no such column" in err) == (2, True)
