from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestra.errors import InputError, StorageError
from palaestra.interface.report import write_comparison
from palaestra.interface.report.health import TrainingHealth, health, spikes
from palaestra.interface.report.load import SeedRun


@pytest.fixture
def compared(build: Callable[..., Path], tmp_path: Path) -> Path:
    """Two variants with a verdict on the pair."""
    build(tmp_path / "grpo", seeds=2, gain=0.19)
    build(tmp_path / "<gigpo>", seeds=2, gain=0.24, first=7)
    pair = {
        "a": "<gigpo>", "b": "grpo", "difference": {"mean": 0.05, "low": 0.02, "high": 0.08}, "p_holm": 0.004,
        "verdict": "<gigpo> is better than grpo by 5.0 points.", "seeds_needed": 17,
    }  # fmt: skip
    write(tmp_path, variants={"grpo": "grpo", "<gigpo>": str(tmp_path / "<gigpo>")}, pairs=[pair])
    return tmp_path


def write(folder: Path, **content: Any) -> None:
    (folder / "comparison.json").write_text(json.dumps(content))


def test_the_page_has_curves_intervals_and_verdicts(compared: Path) -> None:
    html = write_comparison(compared).read_text()
    assert "&lt;gigpo&gt; is better than grpo by 5.0 points." in html
    assert "<gigpo>" not in html
    assert "50.2\u00a0%" in html
    assert "55.2\u00a0%" in html
    assert "+19.0" in html
    assert "0.004" in html
    assert "Line plot of Held-out success by iteration. grpo: " in html
    assert "Forest plot of success after training. grpo: 50.2\u00a0%" in html
    assert "&lt;gigpo&gt; − grpo: +5.0, from +2.0 to +8.0" in html


def test_the_page_has_cost_and_calm(compared: Path) -> None:
    """A gradient that leaps once in one seed is counted once, with the rows without credit and the seconds."""
    path = compared / "grpo" / "seed-0" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for policy in lines[3]["policies"].values():
        policy["grad_norm"] = 50.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    html = write_comparison(compared).read_text()
    iterations = sum(len((compared / "grpo" / f"seed-{n}" / "metrics.jsonl").read_text().splitlines()) for n in (0, 1))
    assert f'data-label="Gradient spikes" class="">1 of {iterations}<' in html
    assert 'data-label="Wall time"' in html
    assert re.search(r'data-label="Rows without credit" class="">\d+\.\d\u00a0%<', html)
    assert "Line plot of Gradient norm by iteration" in html
    assert 'data-label="Seeds that would tell" class="">17<' in html


def test_one_seed_of_an_exact_measure_tells_nothing(compared: Path) -> None:
    pairs = [
        {
            "a": a,
            "b": "grpo",
            "difference": {"mean": 0.1, "low": 0.1, "high": 0.1},
            "verdict": f"{a} against grpo{said}",
        }
        for a, said in (
            ("<gigpo>", ", exploitability: difference +0.100, one seed: nothing is said about other seeds"),
            ("x", ", exploitability: better (difference +0.100, 95 % interval +0.050 to +0.150 over 3 seeds)"),
            ("y", ", exploitability: cannot tell: the interval contains 0"),
        )
    ]
    write(compared, variants={"grpo": "grpo", "<gigpo>": "<gigpo>"}, pairs=pairs)
    html = write_comparison(compared).read_text()
    assert "2 variants compared: 1 of 3 pairs told apart" in html
    assert "&lt;gigpo&gt; − grpo: +10.0;" in html, "no interval of no width"


@pytest.mark.parametrize(
    ("norms", "found"),
    [
        ([1.0] * 9, 0),
        ([1.0] * 8 + [1.5], 1),  # constant but for one
        ([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.4], 0),
        ([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 4.0], 1),
        ([0.1], 0),
        ([0.0] * 9 + [1.0, 1.1, 0.9], 0),  # most taught nothing
        ([0.0] * 9, 0),
    ],
)
def test_spikes_are_far_above_the_median(norms: list[float], found: int) -> None:
    assert spikes(np.array(norms)).sum() == found


def test_nothing_learned_has_no_share() -> None:
    line = {"iteration": 1, "policies": {"p": {"zero_credit": None, "grad_norm": None}}, "metrics": {}, "errors": {}}
    assert health([SeedRun("0", [line], False, None, None, {})]) == TrainingHealth(None, 0, 1)


def test_policies_count_by_their_rows() -> None:
    policies = {"p": {"zero_credit": 0.2, "rows": 10}, "q": {"zero_credit": 0.5, "rows": 30}, "r": {}}
    lines = [{"iteration": each, "policies": policies, "metrics": {}, "errors": {}} for each in (1, 2)]
    found = health([SeedRun("0", lines, False, None, None, {})])
    assert (found.zero_credit, found.spikes, found.iterations) == (pytest.approx(0.425), 0, 2)


def test_reports_inside_the_directory_are_linked(compared: Path) -> None:
    assert 'href="grpo/report.html"' not in write_comparison(compared).read_text()
    for name in ("grpo", "<gigpo>"):
        (compared / name / "report.html").touch()
    html = write_comparison(compared).read_text()
    assert 'href="grpo/report.html"' in html
    assert 'href="%3Cgigpo%3E/report.html"' in html


def test_a_variant_that_was_stopped_stays_in_the_curves(compared: Path) -> None:
    (compared / "grpo" / "summary.json").unlink()
    html = write_comparison(compared).read_text()
    assert "not finished" in html
    assert "in the curves only: grpo" in html
    assert "Line plot of Training reward by iteration. grpo: " in html


def test_bad_input_is_named(compared: Path) -> None:
    write(compared, variants={"x": "nowhere"})
    with pytest.raises(InputError, match="nowhere"):
        write_comparison(compared)
    write(compared, variants=["grpo"])
    with pytest.raises(StorageError, match="'variants'"):
        write_comparison(compared)
    write(compared, variants={"grpo": "grpo"}, pairs=[{"a": "grpo", "b": "grpo", "difference": "much"}])
    with pytest.raises(StorageError, match=r"pairs\[0\]"):
        write_comparison(compared)
    (compared / "comparison.json").unlink()
    with pytest.raises(InputError, match=r"comparison\.json"):
        write_comparison(compared)
