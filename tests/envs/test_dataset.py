from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.envs import dataset, make
from palaestra.envs.task_files import PART, Columns, open_tasks
from palaestra.envs.task_keys import is_held_out, key_in, normalise, task_id, task_key, task_keys
from palaestra.envs.task_scores import SCORES, choice, exact, number, read_number, score_of
from palaestra.errors import InputError, MissingExtraError
from palaestra.teams import workflows
from palaestra.testing.env import check_env


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(folder: Path, rows: list[dict], name: str = "tasks.jsonl") -> str:
    path = folder / name
    if name.endswith("parquet"):
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sums(many: int) -> list[dict]:
    return [{"prompt": f"What is {n} + 1?", "answer": n + 1} for n in range(many)]


def questions(factory) -> set[str]:
    env = factory()
    return {env.draw(seed).question for seed in range(len(env.places))}


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.parquet"])
def test_a_question_is_asked_and_scored(tmp_path, name):
    factory = make("dataset", path=written(tmp_path, sums(40), name), score="number")
    check_env(factory)
    env = pickle.loads(pickle.dumps(factory))()
    text = env.reset(3)["solver"].text
    expected = int(text.split()[2]) + 1
    assert env.answer == str(expected)
    assert env.task == task_id("tasks", task_key(text))
    assert env.step({"solver": f"I think {expected}.0"}).rewards == {"solver": 1.0}
    env.reset(3)
    assert env.step({"solver": "no idea"}).info["valid"] == {"solver": False}


def test_the_sides_share_nothing_and_are_all(tmp_path):
    path = written(tmp_path, sums(500))
    train, test = (questions(dataset(path, split=split)) for split in ("train", "test"))
    assert not train & test
    assert train | test == questions(dataset(path, split="all"))
    assert 60 < len(test) < 140


@given(st.text(min_size=1), st.sampled_from(["{}", " {} ", "{}?", "{}.", "\t{}\n"]))
def test_a_duplicate_has_the_same_key_however_it_is_written(text, form):
    assert normalise(normalise(text)) == normalise(text)
    if normalise(text).strip(" .?!:"):
        assert task_key(form.format(text)) == task_key(text)
        assert task_key(text.upper()) == task_key(text.upper().lower()) or text.upper().lower() != text.lower()


def test_keys_are_the_same_in_every_process_and_ranges_disjoint():
    keys = task_keys(f"task {number}" for number in range(2000))
    held = is_held_out(keys, 0.2)
    assert held.mean() == pytest.approx(0.2, abs=0.03)
    assert keys[held].max() < 0.2 * 2**64 <= keys[~held].min()
    assert key_in(task_id("x", int(keys[0]))) == keys[0] == key_in("Task  0.")


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([{"question": "a", "answer": 1}], {}, "row 1: no column 'prompt'; write prompt: and its name; known: answer"),
        ([{"prompt": "a"}], {}, "row 1: no column 'answer'; write answer: and its name"),
        ([{"prompt": "a", "answer": 1}, {"prompt": " ", "answer": 2}], {}, "row 2: column 'prompt' is empty"),
        ([{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": None}], {}, "row 2: column 'answer' is empty"),
        (
            [{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 1}, {"prompt": " A.", "answer": 2}],
            {},
            r"row 3 \(' A.'\): column 'prompt' says the same as row 1.*duplicates: drop",
        ),
        ([], {}, "holds no tasks"),
        ([{"prompt": "a", "answer": 1}], {"held_out": 1.5}, r"held_out=1.5: expected a share in \[0, 1\)"),
        ([{"prompt": "a", "answer": 1}], {"split": "dev"}, "'dev' is not one of train, test, all"),
        ([{"prompt": "a", "answer": 1}], {"score": "nummer"}, "score='nummer'; did you mean 'number'"),
        (
            [{"prompt": "a", "answer": 1}],
            {"split": "test", "held_out": 0.0},
            "none of its 1 tasks is of the test split",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_row_and_fix(tmp_path, rows, options, said):
    path = written(tmp_path, rows)
    with pytest.raises(InputError, match=said) as caught:
        dataset(path, **options)
    assert "\n" not in str(caught.value)
    assert "held_out=1.5" in said or "not one" in said or "nummer" in said or path in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tasks.jsonl", '{"prompt": "a", "answer": 1}\n{"prompt":', "row 2: is not JSON"),
        ("tasks.jsonl", "[1]\n", "row 1: list is no object"),
        ("tasks.parquet", "no parquet", "is no whole Parquet file"),
        ("tasks.csv", "a,b", "is no .jsonl, no .parquet and no hf://"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        dataset(str(tmp_path / name))
    with pytest.raises(InputError, match="cannot read"):
        dataset(str(tmp_path / "missing.jsonl"))


def test_exponents_and_factorials_make_another_task(tmp_path):
    texts = ["What is 2³?", "What is 23?", "What is 4!", "What is 4"]
    rows = [{"prompt": text, "answer": 1} for text in texts]
    assert questions(dataset(written(tmp_path, rows), split="all")) == set(texts)
    assert f"{task_key('WHAT is  23'):016x}" == f"{task_key('what is 23?'):016x}" == "bd994b31d64d629a"


def test_duplicates_can_be_dropped(tmp_path):
    path = written(tmp_path, [*sums(30), {"prompt": "what is 3 + 1", "answer": 5}])
    assert len(questions(dataset(path, split="all", duplicates="drop"))) == 30


def test_a_task_of_the_held_out_file_in_training_is_an_error_that_names_it(tmp_path):
    held = written(tmp_path, sums(3), "test.jsonl")
    fresh = [{"prompt": f"What is {n} - 1?", "answer": n - 1} for n in range(5)]
    apart = written(tmp_path, fresh, "apart.jsonl")
    assert questions(dataset(apart, held_out=held)) == {row["prompt"] for row in fresh}
    assert questions(dataset(apart, held_out=held, split="test")) == {row["prompt"] for row in sums(3)}
    env = dataset(apart, held_out=held)()
    asked = ["WHAT is  2 + 1", "What is 0 + 1?", "What is 1 + 1?", *(row["prompt"] for row in fresh)]
    assert [env.holds_out(each) for each in asked] == [True] * 3 + [False] * 5
    same = written(tmp_path, [*fresh, {"prompt": "WHAT is  2 + 1", "answer": 3}], "same.jsonl")
    with pytest.raises(InputError, match=r"same.jsonl, row 6 \('WHAT is  2 \+ 1'\): is a held-out task, .*row 3"):
        dataset(same, held_out=held)


def test_a_task_proposed_from_a_held_out_one_is_an_error_however_far(tmp_path):
    held = written(tmp_path, sums(3), "test.jsonl")
    rows = [
        {"prompt": "x", "answer": 1, "from": None},
        {"prompt": "child", "answer": 1, "from": "what is 2 + 1?"},
        {"prompt": "grandchild", "answer": 1, "from": "child"},
    ]
    with pytest.raises(InputError, match=r"row 2 \('child'\): is proposed from a held-out task.*row 3, and 1 rows"):
        dataset(written(tmp_path, rows, "a.jsonl"), parent="from", held_out=held)
    named = [rows[0], {**rows[1], "from": task_id("other", task_key("What is 1 + 1?"))}]
    with pytest.raises(InputError, match=r"is proposed from a held-out task.*row 2"):
        dataset(written(tmp_path, named, "b.jsonl"), parent="from", held_out=held)
    inner = [{"prompt": "gone", "answer": 1, "from": rows[1]["from"]}, rows[0], rows[2]]
    inner[2] = {**rows[2], "from": "gone"}
    file = open_tasks(written(tmp_path, inner, "c.jsonl"), Columns(parent="from"))
    assert file.roots()[2] == task_key("what is 2 + 1?")


def test_a_task_is_on_the_side_of_its_earliest_ancestor(tmp_path):
    rows = [{"prompt": f"root {n}", "answer": 1, "from": None} for n in range(50)]
    rows += [{"prompt": f"child {n}", "answer": 1, "from": f"root {n}"} for n in range(50)]
    rows += [{"prompt": f"grandchild {n}", "answer": 1, "from": f"child {n}"} for n in range(50)]
    path = written(tmp_path, rows)
    for split in ("train", "test"):
        found = questions(dataset(path, parent="from", split=split, held_out=0.4))
        assert {text.replace("root", "grandchild") for text in found if "root" in text} == {
            text for text in found if "grandchild" in text
        }
        assert len(found) % 3 == 0
    circle = [{"prompt": "a", "answer": 1, "from": "b"}, {"prompt": "b", "answer": 1, "from": "a"}]
    with pytest.raises(InputError, match=r"row 1.*proposed from itself"):
        dataset(written(tmp_path, circle, "circle.jsonl"), parent="from")


def families(names) -> list[dict]:
    """Children stand before their parents."""
    rows = [{"prompt": f"child {n}", "answer": 1, "name": None, "from": names(n)} for n in range(40)]
    return rows + [{"prompt": f"root {n}", "answer": 1, "name": names(n), "from": None} for n in range(40)]


@pytest.mark.parametrize("names", ["t{}".format, int])
def test_parents_may_be_named_by_the_ids_of_a_column(tmp_path, names):
    path = written(tmp_path, families(names))
    with pytest.raises(
        InputError, match=r"row 1 \('child 0'\): its parent, and that of 40 rows.*write id: and the column"
    ):
        dataset(path, parent="from")
    test = dataset(path, parent="from", id="name", split="test", held_out=0.4)()
    found = {test.file.row(place)[0] for place in test.places}
    assert {text.replace("root", "child") for text in found if "root" in text} == {t for t in found if "child" in t}
    train = dataset(path, parent="from", id="name", held_out=0.4)()
    assert all(train.holds_out(text) for text in found)
    held = [{"prompt": f"root {n}", "answer": 1, "name": names(n)} for n in range(40)]
    with pytest.raises(
        InputError, match=r"row 1 \('child 0'\): is proposed from a held-out task, .*row 1, and 40 rows"
    ):
        dataset(
            written(tmp_path, families(names)[:40], "children.jsonl"),
            parent="from", id="name", held_out=written(tmp_path, held, "held.jsonl"),
        )  # fmt: skip
    assert dataset(written(tmp_path, sums(9), "plain.jsonl"), split="all", id="name")


def test_two_tasks_of_one_id_are_an_error(tmp_path):
    rows = [{"prompt": text, "answer": 1, "name": "t", "from": None} for text in ("a", "A.", "b")]
    with pytest.raises(InputError, match=r"row 3 \('b'\): has the id of row 2; mend column id"):
        dataset(written(tmp_path, rows), parent="from", id="name", duplicates="drop")


def test_a_question_is_held_out_with_its_choices_too(tmp_path):
    rows = [{**row, "among": [row["answer"], 0]} for row in sums(40)]
    test = dataset(written(tmp_path, rows), choices="among", split="test")()
    train = dataset(written(tmp_path, rows), choices="among")()
    assert all(train.holds_out(test.draw(seed).question) for seed in range(len(test.places)))


def test_choices_are_shown_with_letters_and_the_answer_is_one(tmp_path):
    rows = [
        {"prompt": "Capital of France?", "answer": "Paris", "among": ["Rome", "Paris"]},
        {"prompt": "Capital of Italy?", "answer": 0, "among": ["Rome", "Paris"]},
        {"prompt": "Capital of Spain?", "answer": "B", "among": ["Rome", "Madrid"]},
    ]
    env = dataset(written(tmp_path, rows), choices="among", score="choice", split="all")()
    found = {}
    for seed in range(3):
        text = env.reset(seed)["solver"].text
        found[text.splitlines()[0]] = env.answer
        assert text.splitlines()[1] == "A) Rome"
        assert env.step({"solver": f"({env.answer.lower()}) it is"}).rewards == {"solver": 1.0}
    assert found == {"Capital of France?": "B", "Capital of Italy?": "A", "Capital of Spain?": "B"}


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.parquet"])
@pytest.mark.parametrize(
    ("choices", "answer", "right"),
    [
        ({"text": ["sun", "ice"], "label": ["1", "2"]}, "1", "A"),
        ({"text": ["sun", "ice"], "label": ["A", "B"]}, "ice", "B"),
        ([1, 2, 3], 2, "B"),
        ([3, 4, 5], 4, "B"),
        (["Rome", "paris"], "Paris.", "B"),
        (["Rome", "Paris"], "(b)", "B"),
        (["Rome", "Paris"], "a) Rome, the Eternal City", "A"),
    ],
)
def test_choices_and_their_answer_in_every_form(tmp_path, name, choices, answer, right):
    rows = [{"prompt": "Which?", "answer": answer, "among": choices}]
    env = dataset(written(tmp_path, rows, name), choices="among", score="choice", split="all")()
    texts = choices["text"] if isinstance(choices, dict) else choices
    assert env.reset(0)["solver"].text == "\n".join(["Which?", *map("{}) {}".format, "ABC", texts)])
    assert env.answer == right


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"answer": "B", "among": "A: 1, B: 2"}, "row 2: its choices are 'A: 1, B: 2', expected a list"),
        ({"answer": "Oslo", "among": ["Rome", "Paris"]}, r"row 2: 'Oslo' is none of its choices \['Rome', 'Paris'\]"),
        ({"answer": 2, "among": ["Rome", "Paris"]}, "row 2: '2' is none of its choices"),
        ({"answer": 2, "among": list(range(30))}, "row 2: has 30 choices, but there are 26 letters"),
    ],
)
def test_choices_that_cannot_be_asked_are_an_error(tmp_path, row, said):
    rows = [{"prompt": "x", "answer": "no choices"}, {"prompt": "y", **row}]
    with pytest.raises(InputError, match=said):
        dataset(written(tmp_path, rows), choices="among")


@pytest.mark.parametrize("column", ["choices", "parent"])
def test_a_column_that_is_in_no_row_is_an_error(tmp_path, column):
    rows = [{"prompt": "x", "answer": 1}, {"prompt": "y", "answer": 2, "among": None}]
    with pytest.raises(InputError, match=f"no column 'amogn'; write {column}: and its name; did you mean 'among'"):
        dataset(written(tmp_path, rows), **{column: "amogn"})
    assert dataset(written(tmp_path, rows), split="all", **{column: "among"})


def test_blank_lines_hold_no_task(tmp_path):
    path = tmp_path / "blank.jsonl"
    path.write_text('{"prompt": "a", "answer": 1}\n\n{"prompt": "b", "answer": 2}\n \n')
    assert questions(dataset(str(path), split="all")) == {"a", "b"}


LETTERS = [
    "The answer is B",
    "Option B is it",
    "A good answer is B",
    "__B__",
    "**B** Paris",
    "B - Paris",
    "'B'",
    "B, I think",
]
WORDS = ["I think so", "A good one", "Bäume", "E.g. this", "The answer is a city", "A-levels", "I'm sure"]


@pytest.mark.parametrize(
    ("score", "answer", "expected", "right"),
    [
        (exact, "the  NILE.", "The Nile", 1.0),
        (exact, "Nile", "The Nile", 0.0),
        (exact, "23", "2³", 0.0),
        (exact, "x^2", "x²", 1.0),
        (exact, "10⁻³", "10^-3", 1.0),
        (exact, "5", "5!", 0.0),
        (exact, "5!.", "5!", 1.0),
        (exact, "Paris!", "paris", 1.0),
        (number, "$1,234.50", "1234.5", 1.0),
        (number, "0.5", "1/2", 1.0),
        (number, "first 3, then 4", "Some steps: 9\n#### 4", 1.0),
        (number, "3e2", "300", 1.0),
        (number, "-3", "3", 0.0),
        (choice, "B: Paris", "b", 1.0),
        (choice, "**C**", "B", 0.0),
        *((choice, said, "B", 1.0) for said in LETTERS),
        (number, "\u22125", "-5", 1.0),
        (number, "10-7", "7", 1.0),
        (number, "3,4", "34", 0.0),
        (number, "1.5/2", ".75", 1.0),
        (number, "1{,}250", "1250", 1.0),
        (number, "1\u202f250", "1,250", 1.0),
    ],
)
def test_scores(score, answer, expected, right):
    assert score(answer, expected) == right


@given(
    st.integers(-(10**9), 10**9),
    st.sampled_from([",", "{,}", "\\,", "\u202f"]),
    st.sampled_from(["", "x = ", "$", "7, "]),
)
def test_a_number_is_read_however_its_thousands_are_written(number, between, before):
    text = before + f"{number:,}".replace(",", between)
    assert read_number(text) == read_number(text.replace("-", "\u2212")) == number
    assert read_number(f"10{text}") == abs(number) or not text.startswith("-")


def test_answers_that_say_the_same_are_one_vote(tmp_path):
    rows = [{"prompt": "6 times 7?", "answer": "42"}]
    said = ["Answer: 42", "Answer: 42.0", "Answer: $42", "Answer: 41", "Answer: 41"]
    for score in ("number", "exact"):
        env = workflows.self_consistency(make("dataset", path=written(tmp_path, rows), score=score, split="all"), 5)()
        env.reset(0)
        assert env.step(dict(zip(env.agents, said))).info["success"] == (score == "number")


def test_what_cannot_be_read_is_no_answer():
    for score, answer in ((number, "none"), *((choice, said) for said in ("Paris", "42", *WORDS))):
        with pytest.raises(ValueError, match="no "):
            score(answer, "1" if score is number else "A")
    assert read_number("1/0") == 1.0
    assert score_of("operator:eq")("a", "a")


def test_mathematics_is_compared_as_such():
    pytest.importorskip("math_verify")
    same = SCORES["math"]
    assert same(r"\frac{1}{2}", "0.5") == 1.0
    assert same("$x^2 + 2x + 1$", "(x+1)^2") == 1.0
    assert same("{1, 2}", r"\{2, 1\}") == 1.0
    assert same("3", "4") == 0.0


def test_a_missing_extra_is_said(monkeypatch):
    monkeypatch.setattr("palaestra.envs.task_scores.find_spec", lambda name: None)
    monkeypatch.setattr("palaestra.envs.task_files.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"math-verify is not installed: pip install 'palaestra\[math\]'"):
        score_of("math")
    with pytest.raises(MissingExtraError, match=r"datasets is not installed: pip install 'palaestra\[data\]'"):
        dataset("hf://openai/gsm8k?config=main")


def test_a_data_set_of_the_hub_is_read_as_one_from_disk(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    folder = tmp_path / "gsm"
    folder.mkdir()
    written(folder, [{"question": f"{n} and {n}?", "answer": f"#### {2 * n}"} for n in range(20)], "train.jsonl")
    path = f"hf://{folder}?split=train"
    env = dataset(path, prompt="question", score="number", split="all")()
    assert len(env.places) == 20
    env.reset(4)
    assert env.step({"solver": "8"}).info["success"]
    with pytest.raises(InputError, match=r"no column 'prompt'.*question"):
        dataset(path)
    with pytest.raises(InputError, match=r"cannot be loaded.*hf://owner/name"):
        dataset(f"hf://{folder}?split=dev")
    with pytest.raises(InputError, match="'splt' is not one of config, split"):
        dataset(f"hf://{folder}?splt=dev")


def test_the_index_follows_the_file(tmp_path):
    path = written(tmp_path, sums(10))
    assert len(questions(dataset(path, split="all"))) == 10
    path = written(tmp_path, sums(12))
    assert len(questions(dataset(path, split="all"))) == 12


def test_more_than_one_part(tmp_path):
    many = PART + 10
    path = tmp_path / "many.parquet"
    pl.select(prompt=pl.format("task {}", pl.int_range(many)), answer=pl.int_range(many)).write_parquet(path)
    env = dataset(str(path), split="all", score="number")()
    for seed in (0, PART - 1, PART, many - 1):
        env.reset(seed)
        assert (env.question, env.answer) == (f"task {seed}", str(seed))
    assert np.array_equal(env.places, np.arange(many))


def test_parts_may_be_shorter_than_asked_for(tmp_path):
    """A dictionary of each row group ends a part with it: so are categories read."""
    path = tmp_path / "categories.parquet"
    frame = pl.DataFrame(sums(90)).with_columns(pl.col("answer").cast(pl.String).cast(pl.Categorical))
    frame.write_parquet(path, row_group_size=20)
    file = open_tasks(str(path), Columns())
    assert len(file._parts) > 1
    assert [file.row(place)[:2] for place in range(90)] == [(f"What is {n} + 1?", str(n + 1)) for n in range(90)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (decimal.Decimal("1.25"), "1.25"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.time(3, 4), "03:04:00"),
        (dt.datetime(2026, 1, 2, 3), "2026-01-02 03:00:00"),
        (True, "true"),
        (42.0, "42.0"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_an_answer_of_any_kind_is_asked_for_without_quotes(tmp_path, value, said):
    path = written(tmp_path, [{"prompt": "What?", "answer": value}], "kinds.parquet")
    assert open_tasks(path, Columns()).row(0)[1] == said


def test_bytes_are_no_answer(tmp_path):
    path = written(tmp_path, [{"prompt": "a", "answer": b"42"}], "bytes.parquet")
    with pytest.raises(InputError, match=r"row 1: column 'answer' holds bytes; write text or a number"):
        open_tasks(path, Columns())
