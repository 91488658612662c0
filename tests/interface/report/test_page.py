from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from markupsafe import Markup

from palaestra.errors import InputError, StorageError
from palaestra.evaluation import comparison_table, verdict
from palaestra.interface.report import plots, write_report

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Balance(HTMLParser):
    """Fails if an element is closed that is not open, or left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data.split()


def render(run_dir: Path) -> tuple[str, str]:
    """The page and its visible words."""
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    html = path.read_text()
    return html, " ".join(Balance(html).words)


@pytest.fixture(scope="module")
def whole_run(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run; not to be changed."""
    return build(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def page(whole_run: Path) -> tuple[str, str]:
    """The page of a complete run, and its words."""
    return render(whole_run)


def test_the_page_says_it_all(page: tuple[str, str]) -> None:
    html, words = page
    assert "The trained team solves 22.8 points more" in words
    assert re.search(
        r"before 31\.2 % 29\.1 to 33\.3 % → after 54\.0 % 51\.6 to 56\.4 % .* \+22\.8 \+19\.4 to \+26\.2", words
    )
    for heading in (
        "What was run", "Learning curves", "By policy", "Comparison", "Share of each term", "10 episodes to read",
        "Errors and alarms", "What this run cannot say",
    ):  # fmt: skip
        assert heading in words
    assert "workflow: solver_checker" in words
    assert "CPU time until the gain was significant 47.0 s (3 of 3 seeds)" in words
    assert all(part in words for part in OPTIONAL.values())
    assert "random 2.0 %" in words
    assert "+12.8 +9.4 to +16.2" in words
    claim = "Against single (One agent with the token budget of both roles): the trained team is better by +10.0 points"
    assert claim in words.partition("What was run")[0], "what is claimed stands above everything else"
    assert words.index("workflow: solver_checker") > words.index("Errors and alarms"), "the recipe comes last"
    assert set(re.findall('href="#([a-z]+)"', html)) <= set(re.findall('<section[^>]* id="([a-z]+)"', html))
    for plot in (
        "Held-out success",
        "Training reward",
        "Exploitability",
        "Entropy",
        "KL to the",
        "Illegal",
        "Zero credit",
    ):
        assert f'aria-label="Line plot of {plot}' in html
    assert html.count('aria-label="Forest plot') == 2
    assert html.count('aria-label="Dot plot') == 2
    assert html.count('<details class="episode"') == 10


def test_the_page_needs_nothing_but_itself(page: tuple[str, str]) -> None:
    html, _ = page
    links = re.findall(r'(?:src|href|action|srcset|data)\s*=\s*"([^"]*)"', html)
    assert {link for link in links if not link.startswith("#")} == {"data:,"}
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert "@import" not in html
    assert "<script" not in html
    assert "default-src 'none'" in html


def test_whatever_a_transcript_or_a_name_contains_is_shown_and_not_run(run_dir: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&${{7*7}}"
    for path in run_dir.glob("seed-*/**/*.parquet"):
        columns = {c: pl.lit(evil) for c in ("observation", "action", "task", "policy", "agent")}
        frame = pl.read_parquet(path).with_columns(**columns)
        frame = frame.with_columns(error=pl.when(pl.col("error").is_not_null()).then(pl.lit(f"env: {evil}")))
        frame.write_parquet(path)
    summary = json.loads((run_dir / "summary.json").read_text())
    for field in ("recipe", "description", "verdict"):
        summary[field] = evil
    summary["table"][2] |= {"system": evil, "verdict": evil}
    summary["controls"] = {evil: {"mean": 0.1, "low": 0.0, "high": 0.2, "verdict": evil, "note": evil}}
    summary["metrics"] = {evil: [{"seed": evil, "before": 1, "after": 2}]}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    (run_dir / "recipe.yaml").write_text(evil)
    (run_dir / "environment.json").write_text(json.dumps({evil: evil}))
    (run_dir / "seed-0" / "contributions.json").write_text(json.dumps({evil: 1.0}))
    metrics = run_dir / "seed-0" / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    for row in rows:
        row["policies"] = {evil: next(iter(row["policies"].values()))}
        row |= {"alarms": [evil], "errors": {evil: 1}, "metrics": {evil: 1.0}}
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    html, words = render(run_dir)
    assert "<script" not in html
    assert "<img" not in html
    assert "49" not in re.findall(r"\$\{?\{?(\d+)", html)
    assert words.count("<script>alert(1)</script><img src=x onerror=alert(2)>\"'&${{7*7}}") > 20


OPTIONAL = {
    "recipe.yaml": "Recipe, resolved",
    "environment.json": "torch",
    "summary.json": "Comparison",
    "seed-*/metrics.jsonl": "Learning curves",
    "seed-*/evaluation.parquet": "before · seed",
    "seed-*/turns/*": "training, iteration",
    "seed-*/contributions.json": "Share of each term",
}


@pytest.mark.parametrize(("pattern", "gone"), OPTIONAL.items())
def test_without_a_file_the_report_is_smaller(
    run_dir: Path, pattern: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "_svg", lambda _, words: Markup('<svg aria-label="{}"></svg>').format(words))
    for path in run_dir.glob(pattern):
        path.unlink()
    words = render(run_dir)[1]
    assert gone not in words
    assert "What this run cannot say" in words


def test_claims_against_controls_are_sentences_and_only_who_learned_is_untuned(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    path = build(tmp_path / "run", seeds=0) / "summary.json"
    summary = json.loads(path.read_text()) | {"table": [], "metrics": {}}  # nothing to draw
    summary["controls"]["random"]["verdict"] = "cannot tell: the interval contains 0"
    for spent in ({"after": {}}, {"after": {}, "single": {}}):
        path.write_text(json.dumps(summary | {"spent": spent}))
        words = render(path.parent)[1]
        assert ("one against untuned rivals" in words) is ("single" in spent)
        assert "Against random (Random digits): cannot tell: the interval contains 0" in words
        assert "both roles): the trained team is better by" in words
    tuned = {"after": {"found": {"learn.lr": 0.1}, "value": 0.25, "trials": 4, "cpu_seconds": 2.0}}
    path.write_text(json.dumps(summary | {"controls": {}, "tuning": tuned}))
    assert "Settings searched for" in render(path.parent)[1]  # for the team alone, too


def test_a_run_that_was_stopped_claims_nothing(run_dir: Path) -> None:
    (run_dir / "summary.json").unlink()
    shutil.rmtree(run_dir / "seed-2")
    _, words = render(run_dir)
    assert "This run has no final comparison" in words
    assert "that is no proof of improvement" in words
    assert "At the last periodic evaluation, iteration 29, held-out success was" in words


def test_a_recipe_alone_gives_a_page(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("name: x\n")
    assert "name: x" in render(tmp_path)[1]


def test_another_measure_than_success_is_not_a_percentage(run_dir: Path) -> None:
    summary = json.loads((run_dir / "summary.json").read_text())
    summary |= {
        "measure": "exploitability",
        "before": {"mean": 0.39, "low": 0.35, "high": 0.41},
        "after": {"mean": 0.08, "low": 0.06, "high": 0.11},
        "difference": {"mean": -0.31, "low": -0.34, "high": -0.27},
        "table": [],
        "per_seed": [{"seed": n, "before": 0.39, "after": 0.08, "difference": -0.31} for n in (0, 1)],
    }
    (run_dir / "summary.json").write_text(json.dumps(summary))
    html, words = render(run_dir)
    assert "before 0.39 0.35 to 0.41 → after 0.08 0.06 to 0.11 difference −0.31 −0.34 to −0.27" in words
    assert 'aria-label="Dot plot of exploitability before and after per seed. seed 0: 0.39 before, 0.08 after' in html


def test_the_table_may_be_that_of_the_evaluation_and_its_measure_a_score(run_dir: Path) -> None:
    outcomes = {"before": (4.0, 5.0, 6.0, 7.0), "after": (6.0, 7.5, 8.0, 9.5)}
    trials = pl.DataFrame(
        [
            {"run": "0", "system": name, "task": f"t{i % 4}", "trial": i // 4, "success": None, "score": scores[i % 4],
             "error": None, "turns": 2, "tokens_in": None, "tokens_out": None, "cost": None}
            for name, scores in outcomes.items()
            for i in range(8)
        ],
        schema_overrides={"success": pl.Boolean, "error": pl.String, "cost": pl.Float64}
        | dict.fromkeys(("tokens_in", "tokens_out"), pl.Int32),
    )  # fmt: skip
    table = comparison_table(trials, value="score", resamples=200)
    summary = {"recipe": "hanabi", "table": [row.to_dict() | {"verdict": verdict(row)} for row in table]}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    html, words = render(run_dir)
    assert 'aria-label="Forest plot of score by system. before: 5.5' in html
    assert "System Score Difference p (Holm) Tasks × trials Errors" in words
    assert re.search(r"after 7\.75 .* \+2\.25 ", words)
    assert "4 × 2" in words
    assert "a true difference below about" in words


def test_rendering_twice_gives_the_same_page(whole_run: Path, page: tuple[str, str]) -> None:
    assert render(whole_run) == page


def test_what_cannot_be_read_or_written_has_a_type(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write_report(tmp_path / "absent")
    (run_dir / "report.html").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*report\.html"):
        write_report(run_dir)
    assert not list(run_dir.glob(".*tmp"))
