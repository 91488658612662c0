"""A run that asks judge models: what was answered is paid once whatever kills it, and silence is said last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import palaestra
from palaestra.interface import cli
from palaestra.runs.unjudged import Silence, silence, unjudged
from palaestra.testing.endpoint import StubEndpoint

RECIPE = """
name: judged
env: {{make: native/answers}}
policies:
  answerer: {{kind: tabular, options: {{capacity: 64}}}}
  judge:
    kind: chat
    options: {{model: m, base_url: "{url}", api_key_env: null, concurrency: 2, patience: 0, wait: 0}}
team: {{answerer: answerer}}
stages: ['score("good", ''{scorer}'')']
reward: col("score.good")
train: {{iterations: 2, groups: 4, group_size: 4, checkpoint_every: 2}}
evaluation: {{tasks: 2, trials: 1, look_tasks: 2, look_trials: 1}}
seeds: 1
"""
BY_POLICY = 'judged(question="Is it right?", policy="judge", votes=2)'


def recipe(folder: Path, url: str, scorer: str = BY_POLICY) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(url=url, scorer=scorer))
    return path


def answers(body: dict[str, Any]) -> str:
    return "VERDICT: yes" if body["seed"] % 3 else "VERDICT: no"


def stages(run: Path) -> list[dict[str, Any]]:
    lines = (run / "seed-0" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["stages"]["score"] for line in lines]


@pytest.mark.parametrize("scorer", [BY_POLICY, 'judged(question="Is it right?", model="m", base_url="{url}", votes=2)'])
def test_a_run_that_was_killed_while_it_judged_pays_for_no_answer_twice(tmp_path: Path, scorer: str) -> None:
    code = "import sys, palaestra; palaestra.train(sys.argv[1], sys.argv[2])"
    with StubEndpoint(answers, latency=0.1) as stub:
        options = scorer.format(url=stub.url).replace("votes=2", "votes=2, api_key_env=None, concurrency=2")
        path = recipe(tmp_path, stub.url, scorer if scorer == BY_POLICY else options)
        run = tmp_path / "run"
        first = subprocess.Popen([sys.executable, "-c", code, str(path), str(run)], stderr=subprocess.DEVNULL)
        while len(stub.paid) < 8 and first.poll() is None:
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        time.sleep(0.5)
        before = len(stub.paid)
        stub.latency = 0.0
        palaestra.train(str(path), run, resume=True)
        asked = {json.dumps(each, sort_keys=True) for each in stub.paid}
        assert 8 <= before < len(asked)
        assert len(stub.paid) - len(asked) <= 2  # those that were under way
    assert sum(each.get("known", 0) for each in stages(run)) >= before - 2
    assert all(each["calls"] > 0 for each in stages(run))


def test_nothing_is_kept_if_one_says_so(tmp_path: Path) -> None:
    with StubEndpoint(answers) as stub:
        palaestra.train(str(recipe(tmp_path, stub.url)), tmp_path / "run", overrides=["train.keep_calls=0"])
    assert not (tmp_path / "run" / "seed-0" / "judge-calls").exists()


def test_a_column_is_the_reference_of_a_stage(tmp_path: Path) -> None:
    with StubEndpoint(lambda body: "VERDICT: A") as stub:
        path = recipe(tmp_path, stub.url)
        path.write_text(path.read_text().replace("'')']", "'', reference=\"task\")']"))
        palaestra.train(str(path), tmp_path / "run")
    assert stub.paid
    assert all("Answer B:" in body["messages"][0]["content"] for body in stub.paid)


def test_the_last_line_says_that_nothing_was_learned_because_the_judge_was_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path, "http://127.0.0.1:9/v1")
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", str(path), "--out", str(tmp_path / "run")])
    assert ended.value.code == 0
    last = capsys.readouterr().err.rstrip().split("\n")[-1]
    assert last.startswith("NOTHING WAS LEARNED: ")
    assert "in 2 of 2 iterations no turn had a reward" in last
    assert "Connection" in last
    assert stages(tmp_path / "run")[0]["failed"] == stages(tmp_path / "run")[0]["calls"] > 0


def silent(failed: int, unpaid: int) -> Silence:
    return Silence(asked=10, failed=failed, unpaid=unpaid, iterations=4, why="Timeout")


def test_a_run_is_silent_about_judges_that_answered_most() -> None:
    assert unjudged([]) is None
    assert unjudged([silent(4, 0)]) is None
    assert (unjudged([silent(10, 4), silent(2, 0)]) or "").startswith("LITTLE CAN HAVE BEEN LEARNED: 12 of 20")


def test_what_else_a_stage_counts_as_failed_is_no_silence_of_a_judge() -> None:
    lines = [{"reward": 0.5, "stages": {"failure_tasks": {"failed": 7.0, "calls": 0}, "keep": {"failed": 2.0}}}]
    assert unjudged([silence(lines)]) is None
    told = [{"reward": None, "stages": {"judge": {"calls": 4, "failed": 4.0}}}]
    assert "it said nothing" in str(unjudged([silence(told)]))
