"""A judge of several answers in two forms, over HTTP: what it is asked, what its faults cost, what is not read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.interface.cli.app import main
from palaestra.judges import best_of
from palaestra.judges.best_of import judge_forms
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.reading import read_letter, read_rating
from palaestra.testing.endpoint import StubEndpoint

SIZE = 150
FENCE = r"(={5} \d{20} ={5})\n(.*?)\n\1"


def prompts(size: int = SIZE, ties: int = 4) -> pl.DataFrame:
    """RewardBench 2's form: the right answer first, two domains, and Ties."""
    rows: list[dict[str, Any]] = [
        {"id": str(i), "subset": name, "prompt": f"{name} {i}?", "chosen": [f"right {i}"],
         "rejected": [f"wrong {i}, {j}" for j in range(3)]}
        for name in ("Factuality", "Math")
        for i in range(size)
    ]  # fmt: skip
    for i in range(ties):
        rows.append({"id": f"ref:{i}", "subset": "Ties", "prompt": f"the one {i}?", "chosen": ["right"],
                     "rejected": ["wrong", "wrong too"]})  # fmt: skip
        rows.append({"id": f"tied:{i}", "subset": "Ties", "prompt": f"any {i}?", "chosen": ["right", "right too"],
                     "rejected": ["wrong", "wrong too"]})  # fmt: skip
    return pl.DataFrame(rows)


Said = Callable[[str, list[str]], str]


def judge(rank: Said = lambda task, answers: "VERDICT: A", rate: Said = lambda task, answers: "5") -> Any:
    """From the body of a request to what a judge says; it checks what it is asked."""

    def answer(body: dict[str, Any]) -> str:
        assert (body["model"], body["temperature"]) == ("m", 0.0)
        assert [each["role"] for each in body["messages"]] == ["user"]
        text = body["messages"][0]["content"]
        task, *answers = [found[1] for found in re.findall(FENCE, text, re.DOTALL)]
        assert len(set(answers)) == len(answers)
        if len(answers) == 1:
            assert "from 1 to 10" in text
            assert ("in what detail does not count" in text) == task.startswith(("the one", "any"))
            return rate(task, answers)
        assert sorted(each.split()[0] for each in answers) == ["right", "wrong", "wrong", "wrong"]
        assert re.findall(r"^Answer (.):$", text, re.MULTILINE) == ["A", "B", "C", "D"]
        return rank(task, answers)

    return answer


def sure(task: str, answers: list[str]) -> str:
    return f"Compared.\nVERDICT: {'ABCD'[[each.startswith('right') for each in answers].index(True)]}"


def exact(task: str, answers: list[str]) -> str:
    return "It is right.\n\n9" if answers[0].startswith("right") else "VERDICT: 2"


Asked = Callable[..., tuple[pl.DataFrame, list[dict[str, Any]]]]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Runs the analysis with a judge behind an endpoint of its own: its table, and the requests."""

    def run(say: Any, rows: pl.DataFrame, **options: Any) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
        path = tmp_path / "prompts.parquet"
        rows.write_parquet(path)
        with StubEndpoint(say) as stub:
            given = {
                "model": "m",
                "base_url": stub.url,
                "api_key_env": None,
                "ledger": "none",
                "retries": 0,
                "wait": 0.0,
                "patience": 5,
            } | options
            text = ", ".join(f"{name}={value!r}" for name, value in given.items())
            return analyze(f"judge_forms({text})", path), stub.bodies

    return run


def score(table: pl.DataFrame, form: str, domain: str = "Math", column: str = "score") -> Any:
    return table.filter(form=form, domain=domain)[column].item()


def test_a_judge_that_always_says_the_first_is_at_chance_as_places_are_drawn(asked: Asked, monkeypatch: Any) -> None:
    table, bodies = asked(judge(), prompts())
    shares = [score(table, "ranking", name) for name in ("Factuality", "Math")]
    assert np.mean(shares) == pytest.approx(0.25, abs=0.08)
    assert score(table, "ranking", column="low") < 0.25 < score(table, "ranking", column="high")
    assert len(bodies) == 2 * SIZE * 5 + 4 * 7
    monkeypatch.setattr(best_of, "_order", lambda prompt, seed: list(range(len(prompt.answers))))
    table, _ = asked(judge(), prompts())
    assert [score(table, "ranking", name) for name in ("Factuality", "Math")] == [1.0, 1.0]


def test_orders_are_fixed_by_the_seed_and_each_place_is_as_likely(asked: Asked) -> None:
    def places(seed: int, size: int = SIZE) -> list[int]:
        seen: list[int] = []

        def note(task: str, answers: list[str]) -> str:
            seen.append([each.startswith("right") for each in answers].index(True))
            return "VERDICT: A"

        asked(judge(note), prompts(size), seed=seed, concurrency=1)
        return seen

    one = places(0)
    assert one == places(0)
    assert one != places(1)
    assert one[:20] == places(0, size=20)[:20]  # what else is asked changes nothing
    assert np.bincount(one, minlength=4).min() > 0.17 * len(one)


@pytest.mark.parametrize(
    ("rank", "rate", "better"),
    [(sure, lambda *_: "7", "ranking"), (lambda *_: "VERDICT: A", exact, "rating"), (sure, exact, "ranking")],
)
def test_the_better_form_counts(asked: Asked, rank: Said, rate: Said, better: str) -> None:
    table, _ = asked(judge(rank, rate), prompts(40))
    assert set(table.filter("better")["form"]) == {better}
    assert score(table, better) == 1.0
    whole = table.filter("better", domain="overall").row(0, named=True)
    assert whole["low"] <= whole["score"] <= whole["high"]
    assert whole["score"] == max(table.filter(domain="overall")["score"])


def test_what_cannot_be_read_earns_a_quarter_and_is_counted(asked: Asked) -> None:
    table, _ = asked(judge(lambda *_: "Hard to say: [[E]]", lambda *_: "8.5"), prompts(10))
    for form, calls in (("ranking", 10), ("rating", 40)):
        assert score(table, form) == 0.25
        assert score(table, form, column="unread") == score(table, form, column="calls") == calls
        assert score(table, form, "Ties", "left") == 8  # an unread rating is no low rating
        assert np.isnan(score(table, form, "overall"))


def test_an_unread_rating_is_below_all_but_no_rating_in_ties(asked: Asked) -> None:
    def rate(task: str, answers: list[str]) -> str:
        if task in ("Math 1?", "Math 2?"):
            return "?" if answers[0].startswith("right") == (task == "Math 1?") else "4"
        return "?" if task == "any 0?" and answers[0] == "wrong" else exact(task, answers)

    table, _ = asked(judge(sure, rate), prompts(4))
    assert score(table, "rating") == 0.75  # the right one unread: 0; the wrong ones unread: 1
    assert score(table, "rating", "Ties", "n") == 3
    assert score(table, "rating", "Ties", "left") == 1
    assert score(table, "rating", "Ties") == pytest.approx(1.01)


def test_a_request_that_failed_is_no_verdict(asked: Asked) -> None:
    table, bodies = asked(judge(sure, exact), prompts(10, ties=0), calls=88)
    assert len(bodies) == 88
    assert score(table, "rating", "overall", "left") == 0
    assert score(table, "ranking", "overall", "left") == 12
    assert score(table, "ranking", "overall", "unread") == 0
    assert score(table, "ranking", "Factuality") == 1.0


def test_answers_are_paid_once_and_priced(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "prompts.jsonl"
    prompts(3, ties=1).write_ndjson(file)
    with StubEndpoint(judge(sure, exact)) as stub:
        text = f'judge_forms(model="m", base_url="{stub.url}", api_key_env=None, price_in=10.0)'
        told = []
        for _ in range(2):
            with pytest.raises(SystemExit) as ended:
                main(["analyze", text, str(file), "--json"])
            assert ended.value.code == 0
            told.append(json.loads(capsys.readouterr().out))
        assert len(stub.bodies) == 2 * 3 * 5 + 7
    assert (tmp_path / "prompts.calls.sqlite").exists()
    assert told[0] == told[1]
    whole = {row["form"]: row for row in told[0] if row["domain"] == "overall"}
    assert (whole["ranking"]["calls"], whole["rating"]["calls"]) == (6 + 7, 24 + 7)
    assert 0 < whole["ranking"]["cost"] < whole["rating"]["cost"]


def test_templates_of_ones_own_and_their_marks(asked: Asked, tmp_path: Path) -> None:
    own = {"best": "{{ answers|join(' | ') }} of {{ task }}: end with [[A]], [[B]], [[C]] or [[D]]",
           "rated": str(tmp_path / "rated.j2")}  # fmt: skip
    (tmp_path / "rated.j2").write_text("{{ default }} Ties: {{ ties }}.")

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][0]["content"]
        if "[[A]]" not in text:
            return "10" if "Ties: True." in text else "4"
        return f"Not [[A]] as such; [[{'ABCD'[re.findall(r'(right|wrong) ', text).index('right')]}]]"

    table, _ = asked(answer, prompts(6), instructions=own)
    assert score(table, "ranking") == 1.0
    assert score(table, "rating") == 0.25


def test_a_single_text_is_one_answer_and_no_subset_is_one_domain() -> None:
    rows = pl.DataFrame({"prompt": ["a", "b"], "chosen": ["right", "right"], "rejected": ["wrong", "wrong"]})

    def says(request: Any) -> str:
        text = request.observation.text
        return (
            ("VERDICT: A" if text.index("right\n") < text.index("wrong\n") else "[[B]]") if "Answer A" in text else "3"
        )

    table = judge_forms(rows, PolicyAsker(ScriptedPolicy(says, name="j")))
    assert table.select("form", "domain", "score").rows()[:1] == [("ranking", "all", 1.0)]
    assert score(table, "rating", "all") == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen": [[]]}, "row 0 has no chosen"),
        ({"rejected": [[None]]}, "row 0 has no chosen or no rejected"),
        ({"chosen": [1]}, "'chosen' holds Int64"),
        ({"subset": ["Ties"]}, "row 0 of Ties has the id 'None', expected ref:N or tied:N"),
        ({"subset": ["Ties"], "id": ["tied:0"]}, "of Ties no prompt has both forms"),
        ({"rejected": [["x"] * 26]}, "row 0 has 27 answers"),
    ],
)
def test_rows_that_cannot_be_asked_about_are_refused_before_anything_is_asked(change: Any, message: str) -> None:
    given: dict[str, Any] = {"prompt": ["p"], "chosen": [["a"]], "rejected": [["b"]]}
    table = pl.DataFrame(given | change)
    if change.get("chosen") == [[]]:
        table = table.with_columns(pl.col("chosen").cast(pl.List(pl.String)))
    if change.get("rejected") == [[None]]:
        table = table.with_columns(pl.col("rejected").cast(pl.List(pl.String)))

    def nobody(request: Any) -> str:
        raise AssertionError("asked")

    with pytest.raises(InputError, match=re.escape(message)):
        judge_forms(table, PolicyAsker(ScriptedPolicy(nobody, name="j")))
    with pytest.raises(MissingColumnError):
        judge_forms(table.drop("prompt"), PolicyAsker(ScriptedPolicy(nobody, name="j")))


def test_marks_of_a_choice_and_of_a_rating() -> None:
    for said, place in {"VERDICT: b": 1, "**VERDICT: D.**": 3, '{"verdict": "C"}': 2, "VERDICT: [[A]]": 0, "[[B]]": 1,
                        "[[A]] or [[C]]": 2, "VERDICT: E": None, "VERDICT: A or B": None, "A": None,
                        "[[B]]\nVERDICT: none": None}.items():  # fmt: skip
        assert read_letter(said, 4) == place, said
    for said, rating in {"9": 9, "It is 10.": 10, "Rating: [[7]]": 7, "7/10": 7, "VERDICT: 3": 3, '{"verdict": 4}': 4,
                         "VERDICT: 7.5": None, "8.5": None, "0": None, "11": None, "7-8": None, "-3": None,
                         "in 2024": None, "VERDICT: none 5": None, "9 of them": None, "": None}.items():  # fmt: skip
        assert read_rating(said) == rating, said
