"""`palaestra audit-judge`: a table of findings, JSON and a page; a finding is no error."""

import json
import re

import numpy as np
import polars as pl
import pytest

from palaestra.interface.cli.app import main


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["audit-judge", *map(str, arguments)])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


@pytest.fixture
def verdicts(tmp_path):
    """A judge who always prefers the first."""
    rows = {
        "item": np.repeat(np.arange(40), 2),
        "order": [0, 1] * 40,
        "value": [0.9, 0.1] * 40,
        "truth": [1.0, 1.0] * 40,
    }
    file = tmp_path / "verdicts.parquet"
    pl.DataFrame(rows).with_columns(ok=pl.lit(True)).write_parquet(file)
    return file


def test_findings_with_their_fix_and_exit_code_1_where_one_fails(capsys, verdicts):
    code, out, _ = run(capsys, verdicts)
    assert code == 1
    assert re.search(r"fail +position: the first one shown wins 100.0%", out)
    assert "→ judge every pair in both orders" in out


def test_json_of_several_files(capsys, verdicts, tmp_path):
    scores = tmp_path / "scores.csv"
    pl.DataFrame({"group": [0, 0, 1, 1], "score": [2, 1, 1, 1], "correct": [True, False] * 2}).write_csv(scores)
    code, out, _ = run(capsys, verdicts, scores, "--json")
    told = json.loads(out)
    assert code == 1
    assert [each["file"] for each in told] == [str(verdicts), str(scores)]
    position = next(f for f in told[0]["findings"] if f["audit"] == "position")
    assert (position["verdict"], position["numbers"]["first"]) == ("fail", 1.0)
    assert told[1]["scores"][1]["mean"] == 0.5


def test_a_benchmarks_file_and_a_page_with_the_curve(capsys, tmp_path):
    bench = tmp_path / "rm.json"
    bench.write_text(
        json.dumps([{"problem": "p", "solution_reference": ["human_to_GPT-4", "<b>"], "score": [2.0, 1.0]}])
    )
    curve = tmp_path / "curve.csv"
    step = np.repeat(np.arange(30), 6)
    truth = np.where(step < 15, step, 30 - step) + np.random.default_rng(0).normal(size=180)
    pl.DataFrame({"step": step, "reward": step * 1.0, "truth": truth}).write_csv(curve)
    page = tmp_path / "out" / "page.html"
    code, out, err = run(capsys, bench, curve, "--out", page)
    assert code == 1
    assert "reciprocal_rank" in out
    assert "fail  overoptimisation" in out
    assert run(capsys, bench)[0] == 0
    assert str(page) in err
    text = page.read_text()
    assert "<svg" in text
    assert "truth by step" in text
    assert "by iteration" not in text
    assert "refresh the reward model" in text


def test_errors_name_the_file_and_exit_with_2(capsys, tmp_path):
    file = tmp_path / "other.csv"
    pl.DataFrame({"a": [1]}).write_csv(file)
    code, _, err = run(capsys, file)
    assert code == 2
    assert "other.csv" in err
    assert "verdicts have item, value" in err
