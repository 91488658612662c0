from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError, StorageError
from palaestra.report import write_comparison


@pytest.fixture
def compared(build: Callable[..., Path], tmp_path: Path) -> Path:
    """Two variants with a verdict on the pair."""
    build(tmp_path / "grpo", seeds=2, gain=0.19)
    build(tmp_path / "<gigpo>", seeds=2, gain=0.24, first=7)
    pair = {
        "a": "<gigpo>", "b": "grpo", "difference": {"mean": 0.05, "low": 0.02, "high": 0.08}, "p_holm": 0.004,
        "verdict": "<gigpo> is better than grpo by 5.0 points.",
    }  # fmt: skip
    write(tmp_path, variants={"grpo": "grpo", "<gigpo>": str(tmp_path / "<gigpo>")}, pairs=[pair])
    return tmp_path


def write(folder: Path, **content: Any) -> None:
    (folder / "comparison.json").write_text(json.dumps(content))


def test_the_page_has_curves_intervals_and_verdicts(compared: Path) -> None:
    html = write_comparison(compared).read_text()
    assert "&lt;gigpo&gt; is better than grpo by 5.0 points." in html
    assert "<gigpo>" not in html
    assert "50.2%" in html
    assert "55.2%" in html
    assert "+19.0" in html
    assert "0.004" in html
    assert "Line plot of Held-out success by iteration. grpo: " in html
    assert "Forest plot of success after training. grpo: 50.2%" in html
    assert "&lt;gigpo&gt; − grpo: +5.0, from +2.0 to +8.0" in html


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
