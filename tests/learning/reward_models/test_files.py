"""Files of pairs, verdicts and labels, of others and our own, and the command that learns from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.learning.reward_models.making import feature_pairs, lists, text_pairs

from palaestra.errors import InputError, MissingColumnError
from palaestra.interface import cli
from palaestra.judges import PAIRS, SCORERS
from palaestra.learning.reward_models import Labels, LinearReward, Preferences
from palaestra.learning.reward_models.files import read
from palaestra.learning.reward_models.held_out_scores import explained, held_out, preferences_from_labels
from palaestra.learning.reward_models.trained import fit_reward


def write(folder: Path, name: str, frame: pl.DataFrame) -> Path:
    path = folder / name
    frame.write_parquet(path) if name.endswith("parquet") else frame.write_ndjson(path)
    return path


def trl(count: int, seed: int = 0) -> pl.DataFrame:
    pairs = text_pairs(count, seed)
    return pl.DataFrame({"prompt": pairs.chosen["prompt"], "chosen": pairs.chosen["response"],
                         "rejected": pairs.rejected["response"]})  # fmt: skip


def numbers(count: int) -> pl.DataFrame:
    pairs = feature_pairs(count, [4.0, 0.0])
    return pl.DataFrame({"chosen_x": pairs.chosen["features"], "rejected_x": pairs.rejected["features"]})


@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.jsonl"])
def test_trls_preferences_as_text_and_as_messages(tmp_path: Path, name: str) -> None:
    frame = trl(4).with_columns(margin=pl.Series([1.0, None, 0.5, 0.0]))
    found = read(write(tmp_path, name, frame))
    assert isinstance(found, Preferences)
    assert found.chosen["response"].to_list() == frame["chosen"].to_list()
    assert found.margin.tolist() == [1.0, 0.0, 0.5, 0.0]
    assert found.key.tolist() == frame["prompt"].to_list()
    talks = [[{"role": "user", "content": "ask"}, {"role": "assistant", "content": text}] for text in ("good", "bad")]
    whole = read(write(tmp_path, f"talks-{name}", pl.DataFrame({"chosen": [talks[0]], "rejected": [talks[1]]})))
    assert whole.chosen["response"][0].to_list() == talks[0]
    assert whole.key is None


def test_our_pairs_are_looked_up_and_ties_left_out(tmp_path: Path) -> None:
    table = pl.DataFrame({"group": [5, 5, 6], "observation": ["a", "a", "b"], "action": ["x", "y", "z"]})
    rows = {"chosen": [0, 2, 1], "rejected": [1, 1, 0], "criterion": [None] * 3, "weight": [1.0, 2.0, 1.0],
            "margin": [None] * 3, "source": ["s"] * 3, "tie": [False, False, True]}  # fmt: skip
    pairs = write(tmp_path, "pairs.parquet", pl.DataFrame(rows, schema=PAIRS))
    about = write(tmp_path, "turns.parquet", table)
    found = read(pairs, rows=about)
    assert isinstance(found, Preferences)
    assert found.chosen["action"].to_list() == ["x", "z"]
    assert found.rejected["action"].to_list() == ["y", "y"]
    assert found.weight.tolist() == [1.0, 2.0]
    assert found.key.tolist() == ["5", "6"]
    assert found.condition is None
    with pytest.raises(InputError, match="--rows"):
        read(pairs)
    with pytest.raises(InputError, match="row 2, but the compared table has 2"):
        read(pairs, rows=write(tmp_path, "short.parquet", table[:2]))


def test_verdicts_become_labels_and_what_failed_is_missing(tmp_path: Path) -> None:
    verdicts = pl.DataFrame({"item": ["a", "a", "b", "c"], "value": [1.0, 0.0, None, 1.0],
                             "ok": [True, True, False, True]})  # fmt: skip
    about = pl.DataFrame({"item": ["a", "b", "c"], "prompt": ["p"] * 3, "response": ["x", "y", "z"]})
    found = read(write(tmp_path, "v.parquet", verdicts), rows=write(tmp_path, "t.parquet", about))
    assert isinstance(found, Labels)
    assert found.rows["response"].to_list() == ["x", "z"]
    assert found.value.tolist() == [0.5, 1.0]
    with pytest.raises(InputError, match="column item"):
        read(tmp_path / "v.parquet")


def test_labels_by_name_and_what_stands_beside(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [[1.0], [2.0]], "a": [1, None], "b": [True, False], "condition": [[1.0], [0.0]],
                          "reference": ["r", "s"], "weights": [[1.0, 0.0]] * 2})  # fmt: skip
    found = read(write(tmp_path, "t.parquet", frame), target=["a", "b"], features="x")
    np.testing.assert_array_equal(found.value, [[1.0, 1.0], [np.nan, 0.0]])
    assert found.condition.columns == ["features", "weights"]
    assert found.reference["response"].to_list() == ["r", "s"]
    with pytest.raises(MissingColumnError, match="'c'"):
        read(tmp_path / "t.parquet", target=["c"])
    with pytest.raises(InputError, match=r"chosen_x and rejected_x.*found x, a"):
        read(tmp_path / "t.parquet", features="x")


def test_prompts_are_held_out_whole() -> None:
    pairs = text_pairs(40)
    learned, other = pairs.split(0.3, seed=1)
    assert len(learned) + len(other) == 40
    assert not set(learned.key) & set(other.key)
    assert len(set(other.key)) == 2
    with pytest.raises(InputError, match="one side empty"):
        pairs.split(0.01)


def test_accuracy_counts_ties_half_and_leaves_what_is_unknown() -> None:
    model = LinearReward(standardise=False)
    model.weights = np.array([1.0])
    sides = [lists(np.array(each)[:, None]) for each in ([1.0, 1.0, 1.0, np.nan], [0.0, 2.0, 1.0, 0.0])]
    found = held_out(model, Preferences(*sides))
    assert found.mean == pytest.approx((1 + 0 + 0.5) / 3)
    assert found.n == 3
    labels = Labels(lists(np.array([[1.0], [2.0], [3.0]])), np.array([5.0, 5.0, 9.0]), key=np.zeros(3, int))
    assert len(preferences_from_labels(labels)) == 2
    assert held_out(model, labels).mean == 1.0
    assert explained(model, labels)[0] == pytest.approx(1 - (16 + 9 + 36) / (10.6666667))
    alike = Labels(labels.rows, np.ones(3))
    assert len(preferences_from_labels(alike)) == 0
    assert np.isnan(held_out(model, alike).mean)
    with pytest.raises(InputError, match="1 of the model beside 2 of the labels"):
        explained(model, Labels(labels.rows, np.ones((3, 2))))


# -- the command ------------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["fit-reward", *map(str, arguments)])
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


def test_a_head_on_features_from_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = write(tmp_path, "pairs.parquet", numbers(300)), tmp_path / "model"
    code, said, err = run(capsys, file, "--features", "x", "--model", "linear", "--out", out, "--json")
    assert code == 0, err
    found = json.loads(said)
    assert found["accuracy"]["mean"] > 0.8
    assert found["accuracy"]["low"] < found["accuracy"]["mean"] < found["accuracy"]["high"]
    assert found["learned"] == {"what": "pairs", "rows": 270, "held_out": 30, "keys": 30, "left_out": {}}
    scores = SCORERS.build(f"reward_model({str(out)!r})").score(pl.DataFrame({"x": [[2.0, 0.0], [-2.0, 0.0]]}))
    assert scores[0] > scores[1] + 5
    code, _, err = run(capsys, file, "--features", "x", "--out", out)
    assert code == 2
    assert "holds a model already" in err
    code, said, err = run(capsys, file, "--features", "x", "--out", tmp_path / "head", "--epochs", 2)
    assert code == 0, err
    assert "right on held-out pairs" in said


@pytest.mark.parametrize("same", [False, True], ids=["one answer per prompt", "one label for all"])
def test_labels_of_which_none_can_be_compared_still_make_a_model(
    same: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    rows = {"x": x.tolist(), "good": [1.0] * 60 if same else x[:, 0].tolist()}
    frame = pl.DataFrame(rows if same else {"prompt": [f"q{i}" for i in range(60)], **rows})
    file, out = write(tmp_path, "labels.parquet", frame), tmp_path / "model"
    code, said, err = run(capsys, file, "--target", "good", "--model", "linear('x')", "--out", out)
    assert code == 0, err
    assert "right on held-out pairs: unknown" in said
    assert ("R² unknown" in said) == same
    assert json.loads((out / "fit.json").read_text())["accuracy"]["mean"] is None
    assert len(SCORERS.build(f"reward_model({str(out)!r})").score(frame).drop_nulls()) == 60


def test_what_is_wrong_is_said_before_it_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "pairs.parquet", numbers(20))
    for options, message in (
        (["--model", "linear", "--epochs", 3], "linear(features='x') has no epochs"),
        (["--model", "heat"], "did you mean 'head'"),
        (["--loss", "btt"], "did you mean 'bt'"),
        (["--margin", "gap"], "no column 'gap'"),
    ):
        code, _, err = run(capsys, file, "--features", "x", "--out", tmp_path / "m", *options)
        assert (code, message in err) == (2, True), err
    assert not (tmp_path / "m" / "palaestra.json").exists()


def test_a_fit_that_was_killed_goes_on_with_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra.learning.reward_models.trained import fit_reward

    file = write(tmp_path, "pairs.parquet", numbers(100))

    def stop(phase: str, done: int, *_: Any, **__: Any) -> None:
        if done == 7:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"features": "x", "epochs": 5, "batch": 32, "every": 2}
    with pytest.raises(KeyboardInterrupt):
        fit_reward(file, tmp_path / "killed", progress=stop, **settings)
    steps: list[int] = []
    fit_reward(file, tmp_path / "killed", progress=lambda *said, **_: steps.append(said[1]), **settings)
    fit_reward(file, tmp_path / "whole", **settings)
    assert steps[0] == 7
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert weights[0] == weights[1]
    assert not (tmp_path / "killed" / "checkpoints").exists()


def test_what_is_written_loads_in_transformers_and_scores_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    file, out = write(tmp_path, "pairs.jsonl", trl(60)), tmp_path / "rm"
    code, said, err = run(capsys, file, "--out", out, "--lr", 3e-3, "--batch", 8, "--centre", 0.01, "--held-out", 0.3)
    assert code == 0, err
    assert "100.0 %" in said
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.config.num_labels == 1
    rows = trl(5, seed=3)
    ids = [tokenizer(a + b)["input_ids"] + [tokenizer.eos_token_id] for a, b in zip(rows["prompt"], rows["chosen"])]
    with torch.no_grad():
        theirs = [float(model(input_ids=torch.tensor([each])).logits) for each in ids]
    ours = SCORERS.build(f"reward_model({str(out)!r})").score(rows.rename({"chosen": "response"}))
    assert ours.to_list() == pytest.approx(theirs, abs=1e-4)


def test_what_is_written_learns_on_in_trls_reward_trainer(tmp_path: Path) -> None:
    """And the way back: what TRL saves is a reward model here."""
    pytest.importorskip("trl")
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    from palaestra.learning.reward_models.trained import fit_reward

    file, out = write(tmp_path, "pairs.parquet", trl(40)), tmp_path / "rm"
    fit_reward(file, out, lr=1e-3, held_out=0.3)
    options = RewardConfig(
        output_dir=str(tmp_path / "trl"), max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, gradient_checkpointing=False, bf16=False,
    )  # fmt: skip
    trainer = RewardTrainer(model=str(out), args=options, train_dataset=Dataset.from_polars(trl(16)))
    assert np.isfinite(trainer.train().training_loss)
    trainer.save_model(str(tmp_path / "back"))
    scores = SCORERS.build(f"reward_model({str(tmp_path / 'back')!r})").score(text_pairs(10).chosen)
    assert scores.is_not_null().all()


def test_numbers_of_rows_and_what_is_missing_beside_pairs(tmp_path: Path) -> None:
    about = write(tmp_path, "rows.parquet", pl.DataFrame({"x": [[1.0], [2.0], [3.0]], "group": [0, 1, 2]}))
    for name, wrong in (("chosen", -1), ("rejected", 3), ("reference", 7)):
        row = {"chosen": 0, "rejected": 1, "reference": 2} | {name: wrong}
        path = write(tmp_path, "pairs.parquet", pl.DataFrame({each: [value] for each, value in row.items()}))
        with pytest.raises(InputError, match=f"names row {wrong}, but the compared table has 3"):
            read(path, rows=about, features="x")
    pairs = pl.DataFrame({"chosen": [0, 1], "rejected": [1, 2], "trust": [0.5, None], "lead": [None, 2.0]})
    found = read(write(tmp_path, "pairs.parquet", pairs), rows=about, features="x", weight="trust", margin="lead")
    assert isinstance(found, Preferences)
    assert (list(found.weight), list(found.margin)) == ([0.5, 1.0], [0.0, 2.0])  # type: ignore[arg-type]


def test_verdicts_are_held_out_by_the_column_that_is_named_and_must_be_about_the_rows(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.parquet", pl.DataFrame({"item": ["0", "1", "2"], "x": [[1.0], [2.0], [3.0]]}))
    verdicts = pl.DataFrame({"item": [0, 0, 1, 9], "value": [1.0, 0.0, 1.0, 1.0], "task": ["s", "s", "t", "u"]})
    found = read(write(tmp_path, "v.parquet", verdicts), rows=rows, key="task")
    assert isinstance(found, Labels)
    assert (found.value.tolist(), list(found.key)) == ([0.5, 1.0], ["s", "t"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no item of the verdicts, such as '9', is in the judged table"):
        read(write(tmp_path, "v.parquet", verdicts.filter(item=9)), rows=rows)
    with pytest.raises(InputError, match="--weight value: verdicts have no weights"):
        read(write(tmp_path, "v.parquet", verdicts), rows=rows, weight="value")


def test_a_folder_that_cannot_be_one_and_one_without_a_model_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = write(tmp_path, "labels.parquet", pl.DataFrame({"x": [[1.0]] * 20, "y": [1.0, 2.0] * 10}))
    (tmp_path / "taken").write_text("mine")
    for out in ("taken", "taken/below"):
        with pytest.raises(SystemExit):
            cli.main(["fit-reward", str(labels), "--features", "x", "--target", "y", "--out", str(tmp_path / out)])
        assert "taken is a file; name a folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: holds no reward model"):
        SCORERS.build(f"reward_model({str(tmp_path / 'empty')!r})")


def test_what_is_asked_for_is_used_or_refused(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": [[1.0], [2.0]] * 10, "y": [1.0, 2.0] * 10, "w": [1.0, -1.0] * 10, "group": [0, 1] * 10})
    path, out = write(tmp_path, "labels.parquet", table), tmp_path / "model"
    given: dict[str, Any] = {"features": "x", "target": ["y"], "held_out": 0.5}
    with pytest.raises(InputError, match="column 'w' is -1 in row 1; weights are not below 0"):
        fit_reward(path, out, weight="w", **given)
    with pytest.raises(InputError, match="centre is for pairs"):
        fit_reward(path, out, centre=0.1, **given)
    path = write(tmp_path, "labels.parquet", table.with_columns(w=1.0))
    with pytest.raises(InputError, match="'listnet' orders inside groups, without weights"):
        fit_reward(path, out, weight="w", loss="listnet", **given)
    path = write(tmp_path, "labels.parquet", table.with_columns(y=None))
    with pytest.raises(InputError, match="nothing to learn from"):
        fit_reward(path, out, "linear", **given)
    path = write(tmp_path, "labels.parquet", table.with_columns(y=float("inf")))
    with pytest.raises(InputError, match="'y' is infinite in row 0"):
        fit_reward(path, out, **given)


def talks(prompts: int, per_prompt: int) -> dict[str, list[object]]:
    rows = [(f"question {i}", f"yes {j}", f"no {j}") for i in range(prompts) for j in range(per_prompt)]
    return dict(zip(("prompt", "chosen", "rejected"), map(list, zip(*rows, strict=True)), strict=True))


def test_held_out_pairs_of_one_prompt_are_one_key_without_an_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "pairs.parquet", pl.DataFrame(talks(5, 16)))
    code, said, err = run(capsys, file, "--out", tmp_path / "model", "--held-out", 0.2)
    assert code == 0, err
    assert "learned from 64 pairs, held out 16 (1 key)" in said
    assert "16 pairs of 1 key; pairs of one key are not independent, so there is no interval" in said
    assert "95 %" not in said
    assert "left out" not in said
    found = json.loads((tmp_path / "model" / "fit.json").read_text())
    assert found["accuracy"]["clusters"] == 1
    assert found["accuracy"]["low"] is found["accuracy"]["high"] is None


def test_only_pairs_that_are_used_are_counted_and_the_rest_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.DataFrame(talks(80, 1)).with_row_index()
    frame = frame.with_columns(
        chosen=pl.when(pl.col("index") % 4 > 0).then("chosen"), tie=pl.col("index").is_in([1, 2, 3, 4])
    )
    code, said, err = run(capsys, write(tmp_path, "pairs.parquet", frame.drop("index")), "--out", tmp_path / "model")
    assert code == 0, err
    assert "learned from 51 pairs, held out 6 (6 keys)" in said
    assert "left out 23: 4 tied, 19 without a chosen or a rejected side" in said
    sides = {f"{side}_x": [[float(i), None if i == 7 else 1.0] for i in at]
             for side, at in (("chosen", range(1, 41)), ("rejected", range(40)))}  # fmt: skip
    numbered = write(tmp_path, "x.parquet", pl.DataFrame(sides))
    for model in ("linear", "head"):
        out = tmp_path / model
        code, said, err = run(capsys, numbered, "--features", "x", "--model", model, "--out", out, "--json")
        assert code == 0, err
        learned = json.loads(said)["learned"]
        assert learned["rows"] + learned["held_out"] == 38
        assert learned["left_out"] == {"that the model cannot read, or of weight 0": 2}
    empty = write(tmp_path, "empty.parquet", frame.with_columns(rejected=pl.lit(None, pl.String)).drop("index", "tie"))
    code, _, err = run(capsys, empty, "--out", tmp_path / "none")
    assert code == 2
    assert "every row is left out (80 without a chosen or a rejected side)" in " ".join(err.split())


def test_pairs_of_rows_without_a_group_are_held_out_together_by_prompt(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = {"item": range(6), "prompt": ["p", "q"] * 3, "liked": [1, 0, 0, 1, 0, 0], "x": [[0.5]] * 6}
    pl.DataFrame(rows).write_parquet(path)
    found = read(path, features="x", pairing='all_pairs("liked", by="prompt", unit="item")')
    assert found.key is not None
    assert sorted(found.key.tolist()) == ["p", "p", "q", "q"]


def test_a_pairing_makes_the_pairs_of_the_files_own_rows(tmp_path: Path) -> None:
    rows = pl.DataFrame({"group": [0, 0, 1, 1], "x": lists(np.arange(4.0)[:, None]), "liked": [1.0, 2.0, 5.0, 3.0]})
    path = write(tmp_path, "rows.parquet", rows.with_columns(episode=pl.int_range(pl.len())))
    found = read(path, features="x", pairing='all_pairs("liked")')
    assert isinstance(found, Preferences)
    assert [each["x"].to_list() for each in (found.chosen, found.rejected)] == [[[1.0], [2.0]], [[0.0], [3.0]]]
    assert found.key is not None
    assert found.margin is None
    with pytest.raises(InputError, match="file's own rows"):
        read(path, rows=path, features="x", pairing='all_pairs("liked")')


def test_of_one_label_it_is_said_which_of_two_is_better(tmp_path: Path) -> None:
    x = np.arange(40.0)
    file = write(tmp_path, "labels.parquet", pl.DataFrame({"x": x[:, None] / 40, "y": x}))
    found = fit_reward(file, tmp_path / "rm", "linear", features="x", target="y", held_out=0.25)
    assert (found["learned"]["rows"], found["learned"]["held_out"]) == (30, 10)
    assert found["accuracy"]["mean"] == 1.0
    assert found["explained"] == pytest.approx([1.0], abs=1e-3)
