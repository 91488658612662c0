"""Labels by advocate, opponent, strict judge and reflector, over HTTP: what each is asked, and what comes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.interface.cli.app import main
from palaestra.judges import Argued
from palaestra.judges.argued import argued
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.reading import read_reason
from palaestra.judges.scorers import build
from palaestra.testing.endpoint import StubEndpoint

FENCE = r"(={5} \d{20} ={5})\n(.*?)\n\1"
ROWS = pl.DataFrame(
    {
        "prompt": ["a wish for snow"] * 5,
        "response": ["plain merit", "merit flaw", "merit odd", "merit hidden", "merit odd flaw"],
    }
)
LABELS = [1.0, 0.0, 1.0, 1.0, 0.0]
"""Of `ROWS`, by the players below: nobody sees what is hidden."""


def roles(**own: Callable[[dict[str, str]], str]) -> Any:
    """From the body of a request to what its role says; it checks what each is shown."""

    def answer(body: dict[str, Any]) -> str:
        assert (body["model"], body["temperature"]) == ("m", 0.0)
        text = body["messages"][0]["content"]
        role = next(
            name
            for name, begin in {
                "advocate": "You are the advocate",
                "opponent": "You are the opponent",
                "judge": "You judge an answer to a task, and are strict",
                "reflector": "You check a verdict",
            }.items()
            if text.startswith(begin)
        )
        parts = [found[1] for found in re.findall(FENCE, text, re.DOTALL)]
        names = ["response", *(["merits", "flaws"] if role in ("judge", "reflector") else [])]
        names += ["words"] if role == "reflector" else []
        assert len(parts) in (1 + len(names), 3 + len(names))  # without and with an example
        seen = dict(zip(names, parts[-len(names) :], strict=True)) | {"task": parts[0], "text": text}
        if role == "reflector":
            seen["verdict"] = re.findall(r"The verdict is (\d) ", text)[0]
            assert seen["words"].endswith(f"VERDICT: {seen['verdict']}")
        return (own.get(role) or PLAYERS[role])(seen)

    return answer


PLAYERS: dict[str, Callable[[dict[str, str]], str]] = {
    "advocate": lambda seen: "- merit: it is there" if "merit" in seen["response"] else "none",
    "opponent": lambda seen: "\n".join(f"- {word}" for word in ("flaw", "odd") if word in seen["response"]) or "none",
    "judge": lambda seen: f"Weighed.\nVERDICT: {int('merit' in seen['merits'] and seen['flaws'] == 'none')}",
    "reflector": lambda seen: (
        "REASON: odd is no flaw\nVERDICT: 1" if seen["flaws"] == "- odd" else f"VERDICT: {seen['verdict']}"
    ),
}


def reviewed(say: Any, rows: pl.DataFrame = ROWS, **options: Any) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    with StubEndpoint(say) as stub:
        given = {"base_url": stub.url, "api_key_env": None, "retries": 0, "wait": 0.0, "patience": 5} | options
        return argued(model="m", **given).review(rows), stub.bodies


def test_each_role_is_asked_once_and_a_reason_overturns() -> None:
    table, bodies = reviewed(roles(), price_in=1.0)
    assert table["label"].to_list() == LABELS
    assert table["verdict"].to_list() == [1, 0, 0, 1, 0]
    assert table["overturned"].to_list() == [False, False, True, False, False]
    assert table["reason"].to_list() == [None, None, "odd is no flaw", None, None]
    assert table["flaws"].to_list() == ["none", "- flaw", "- odd", "none", "- flaw\n- odd"]
    assert len(bodies) == 4 * len(ROWS)
    assert table["cost"].sum() > 0


def test_without_a_role_labels_are_wrong() -> None:
    """The judge believes its lists; each role that has nothing to say shows in the labels."""
    for role, labels in (("advocate", [0, 0, 1, 0, 0]), ("opponent", [1, 1, 1, 1, 1]), ("reflector", [1, 0, 0, 1, 0])):
        table, _ = reviewed(roles(**{role: lambda seen: "none"}))
        assert table["label"].to_list() == labels, role


@pytest.mark.parametrize(
    ("said", "overturned"),
    [
        ("VERDICT: 1", False),
        ("REASON: none\nVERDICT: 1", False),
        ("REASON: I only wonder.", False),
        ("REASON: it is fine\nVERDICT: 0.5", False),
        ("**REASON:** it is fine\n**VERDICT: 1**", True),
        ('{"reason": "it is fine", "verdict": 1}', True),
        ('{"reason": " ", "verdict": 1}', False),
    ],
)
def test_only_another_verdict_with_a_reason_overturns(said: str, overturned: bool) -> None:
    table, _ = reviewed(roles(reflector=lambda seen: said), ROWS[1:2])
    assert (table["label"][0], table["overturned"][0], table["error"][0]) == (int(overturned), overturned, None)
    assert (read_reason(said) == "it is fine") == ("it is fine" in said)


def test_what_could_not_be_read_or_had_is_no_label_and_says_why() -> None:
    table, bodies = reviewed(roles(judge=lambda seen: "VERDICT: 0.5"), ROWS[:1])
    assert table.select("label", "overturned", "error").row(0) == (None, None, "judge: its answer cannot be read")
    assert len(bodies) == 3  # nothing to check

    def broken(role: str) -> Any:
        def says(seen: dict[str, str]) -> str:
            if "odd" in seen["response"]:
                raise OSError("broken")
            return PLAYERS[role](seen)

        return roles(**{role: says})

    for role, calls in (("opponent", 5 + 5 + 3 + 3), ("reflector", 4 * 5)):
        table, bodies = reviewed(broken(role))
        assert table["label"].to_list() == [1, 0, None, 1, None]
        assert table["overturned"].to_list() == [False, False, None, False, None]
        assert table["error"].drop_nulls().str.starts_with(f"{role}: ").to_list() == [True, True]
        assert len(bodies) == calls


def test_similar_good_examples_are_shown_to_all(tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    pl.DataFrame({"prompt": ["a wish for rain", "a bill"], "response": ["shown", "far"]}).write_csv(good)
    _, bodies = reviewed(roles(), ROWS[:1], examples=str(good), shown=1)
    texts = [body["messages"][0]["content"] for body in bodies]
    assert len(texts) == 4
    assert all("shown" in text and "far" not in text for text in texts)


def test_a_verdict_for_each_row_with_both_words() -> None:
    with StubEndpoint(roles()) as stub:
        made = build(f'argued(model="m", base_url="{stub.url}", api_key_env=None)')
        table = made.verdicts(ROWS.with_columns(item=pl.Series(list("abcde"))))  # type: ignore[attr-defined]
        assert made.score(ROWS).to_list() == LABELS
    assert table["item"].to_list() == list("abcde")
    assert table["answer"].to_list() == ["1", "0", "0 > 1", "1", "0"]
    assert table["rationale"][2] == "Weighed.\nVERDICT: 0\nreflector: odd is no flaw"
    assert table["judge"].unique().to_list() == ["m"]
    with pytest.raises(InputError, match="labels one answer and compares none"):
        made.score(ROWS, reference=ROWS)


def test_policies_play_roles_of_a_recipe() -> None:
    named = build('argued("all", reflector="other")')
    assert named.asks == ("all", "other")  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="the policy 'all' is not here"):
        named.score(ROWS)
    say = roles()

    def find(name: str) -> PolicyAsker:
        def says(request: Any) -> str:
            text = request.observation.text
            assert text.startswith("You check") == (name == "other")
            return str(say({"model": "m", "temperature": 0.0, "messages": [{"content": text}]}))

        return PolicyAsker(ScriptedPolicy(says, name=name))

    named.bind(find)  # type: ignore[attr-defined]
    assert named.score(ROWS).to_list() == LABELS


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: argued(advocate="a", judge="j"), "nobody plays opponent, reflector"),
        (lambda: argued("a", model="m"), "policy=…, or model=…"),
        (lambda: Argued(policies={"judges": "x"}), "'judges' is no role; did you mean 'judge'"),
        (lambda: argued("a", instructions={"merits": "{{ flaws }}"}), "there is no {{ flaws }}"),
    ],
)
def test_what_cannot_be_asked_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        make()


def test_labels_of_logs_become_a_reward_model(tmp_path: Path, capsys: Any) -> None:
    """`palaestra judge` writes the labels, `palaestra fit-reward` reads them as they are; nothing is paid for twice."""
    pytest.importorskip("torch")
    logs, labels = tmp_path / "answers.parquet", tmp_path / "labels.parquet"
    Turns(
        {
            "group": [each for each in range(12) for _ in ROWS["response"]],
            "episode": list(range(5)) * 12,
            "turn": [0] * 60,
            "agent": ["a"] * 60,
            "action": ROWS["response"].to_list() * 12,
            "task": [f"wish {each}" for each in range(12) for _ in ROWS["response"]],
        }
    ).save(logs)

    def run(*arguments: object) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--json"])
        assert ended.value.code == 0
        return dict(json.loads(capsys.readouterr().out))

    with StubEndpoint(roles()) as stub:
        scorer = f'argued(model="m", base_url="{stub.url}", api_key_env=None)'
        for _ in range(2):
            run("judge", logs, "--scorer", scorer, "--out", labels)
        assert len(stub.bodies) == 4 * 60
    assert pl.read_parquet(labels)["score"].to_list() == LABELS * 12
    options = ("--epochs", 1, "--held-out", 0.25)
    found = run("fit-reward", labels, "--pairing", "all_pairs('score')", "--out", tmp_path / "model", *options)
    assert found["learned"]["what"] == "pairs"
    assert (found["learned"]["rows"], found["learned"]["held_out"], found["learned"]["keys"]) == (9 * 6, 3 * 6, 3)
    assert run("fit-reward", labels, "--out", tmp_path / "other", *options)["learned"]["what"] == "labels"
