"""The team section: it stands on every run with messages, and its numbers are those of the tables."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.interface.report import write_report
from palaestra.interface.report.load import load_run
from palaestra.interface.report.team import team
from palaestra.play.rollout import rollout
from palaestra.teams import workflows


class Coin(TaskEnv):
    """Heads or tails; heads is right."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", "heads or tails?", lambda text: float(text == "heads"), "heads")


def played(env: EnvFactory, say: dict[str, object], system: str) -> Turns:
    """Everybody says the same word, or the words of a list one after the other in each episode."""

    def word(request: object) -> str:
        words = say[request.agent]  # type: ignore[attr-defined]
        if isinstance(words, str):
            return words
        return words[" | " in request.observation.text]  # type: ignore[attr-defined, index]

    turns = rollout(env, Team(dict.fromkeys(env().agents, ScriptedPolicy(word))), groups=4, seed=1)
    return turns.with_column(system=pl.lit(system), tokens_out=pl.lit(2, pl.Int32))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One member was right and is talked out of it; and an agent alone that is right."""
    say = {"debater-1": ["heads", "tails"], "debater-2": "tails", "debater-3": "tails"}
    after = played(workflows.debate(Coin, 3, rounds=2), say, "after")
    single = played(workflows.single(Coin), {"solver": "heads"}, "single")
    (tmp_path / "seed-0").mkdir()
    Turns.concat([after, single]).save(tmp_path / "seed-0" / "evaluation.parquet")
    (tmp_path / "recipe.yaml").write_text("name: coin\n")
    economy = [
        {"system": name, "unit": "tokens", "cost": cost, "value": value, "value_low": value, "value_high": value,
         "cost_low": cost, "cost_high": cost, "cost_of_pass": None, "pass_low": None, "pass_high": None,
         "score_at_cost": 1.0, "cost_at_score": 2.0, "on_frontier": float(value), "frontier": bool(value), "hull": True}
        for name, cost, value in (("after", 12.0, 0.0), ("single", 2.0, 1.0))
    ]  # fmt: skip
    shapley = {f"debater-{n}": {"mean": n / 10, "low": 0.0, "high": 0.5} for n in (1, 2, 3)}
    summary = {"recipe": "coin", "measure": "success", "economy": economy, "shapley": shapley}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return tmp_path


def test_its_numbers_are_those_of_the_tables(run: Path) -> None:
    found = team(load_run(run))
    assert found is not None
    assert (found.system, found.episodes, found.kept) == ("after", 4, (24, 24))
    by = {member.name: member for member in found.members}
    assert [by[name].turns for name in by] == [2, 2, 2]
    assert [by[name].tokens for name in by] == [4, 4, 4]
    assert sum(member.importance for member in found.members) == pytest.approx(2), "1 in each wave"
    assert by["debater-1"].right == 0.5
    assert by["debater-1"].overruled == 4, "it was right once in each episode, and the team was not"
    assert by["debater-2"].overruled == 0
    assert [row["to_wrong"] for row in found.flips] == [4]
    assert found.channels == (1.0, 3.0, "answers"), "in the end all said the same"
    assert found.baseline == "single"
    after = next(row for row in found.coordination if row["system"] == "after")
    assert (after["overhead"], after["density"], after["failure_ratio"]) == (5.0, 1.0, None)
    assert by["debater-3"].shapley is not None
    assert by["debater-3"].shapley.mean == 0.3


def test_an_answer_that_cannot_be_read_is_not_right(run: Path) -> None:
    path = run / "seed-0" / "evaluation.parquet"
    turns = Turns.load(path)
    unread = (pl.col("agent") == "debater-1") & (pl.col("score") == 0)
    Turns(turns.frame.with_columns(score=pl.when(unread).then(None).otherwise(pl.col("score")))).save(path)
    found = team(load_run(run))
    assert found is not None
    assert {member.name: member.right for member in found.members}["debater-1"] == 0.5


def test_the_page_has_the_graph_and_the_frontier(run: Path) -> None:
    page = write_report(run).read_text()
    assert "<h2>The team</h2>" in page
    assert 'aria-label="Graph of messages. Per episode: debater-2 to debater-1: 2' in page
    assert "single: cost 2, 100.0\u00a0%, Pareto-optimal" in page
    assert "What coordination costs" in page
    assert "Right answer, team still failed" in page
    assert "Changes of mind" in page


def test_a_run_that_was_stopped_shows_the_newest_training_turns(run: Path) -> None:
    turns = Turns.load(run / "seed-0" / "evaluation.parquet")
    (run / "seed-0" / "evaluation.parquet").unlink()
    (run / "seed-0" / "turns").mkdir()
    newest = turns.filter(pl.col("system") == "after").frame.drop("system")
    Turns(newest).save(run / "seed-0" / "turns" / "iteration-000002.parquet")
    found = team(load_run(run))
    assert found is not None
    assert (found.system, len(found.members), found.coordination) == ("in training", 3, [])


def test_a_run_in_which_nobody_hears_anybody_has_no_such_section(run: Path) -> None:
    turns = Turns.load(run / "seed-0" / "evaluation.parquet")
    turns.filter(pl.col("system") == "single").save(run / "seed-0" / "evaluation.parquet")
    assert team(load_run(run)) is None
    Turns(turns.frame.drop("heard")).save(run / "seed-0" / "evaluation.parquet")
    assert team(load_run(run)) is None
    assert "<h2>The team</h2>" not in write_report(run).read_text()
