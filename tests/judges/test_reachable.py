"""Every kind of judge from the text of a recipe: whom it asks, and what it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES
from palaestra.judges.judged import Asker, PolicyAsker
from palaestra.judges.scorers import build
from palaestra.testing.endpoint import StubEndpoint

ROWS = pl.DataFrame(
    {"prompt": ["2 + 2?", "3 + 3?"], "response": ["4", "7"], "answer": ["4", "6"], "reward": [1.0, 0.0]}
)
JUDGED = 'judged(question="Is it right?", policy="judge")'
SECOND = 'judged(question="Is it right?", policy="second")'


def bound(text: str, seen: list[tuple[str, str]]) -> Any:
    """A scorer whose policies answer, and what they are sent."""

    def asker(name: str) -> Asker:
        def say(request: Any) -> str:
            seen.append((name, request.observation.text))
            return "VERDICT: A" if "Answer A" in request.observation.text else "VERDICT: yes"

        return PolicyAsker(ScriptedPolicy(say, name=name))

    made = build(text)
    made.bind(asker)
    return made


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        (f"vote({JUDGED}, n=3)", {"judge": 6}),
        (f"correct({JUDGED}, {SECOND})", {"judge": 2, "second": 2}),
        (f'debate({JUDGED}, risk="pro", safe="con", rounds=1, votes=2)', {"pro": 2, "con": 2, "judge": 4}),
        (f"ensemble([{JUDGED}, verifier('reward')])", {"judge": 2}),
        (f'tooled({JUDGED}, {JUDGED}, "tests.judges.test_reachable:tool")', {"judge": 2}),
    ],
)
def test_a_recipe_reaches_it(text: str, asks: dict[str, int]) -> None:
    seen: list[tuple[str, str]] = []
    assert bound(text, seen).score(ROWS).null_count() == 0
    names = [name for name, _ in seen]
    assert {name: names.count(name) for name in dict.fromkeys(names)} == asks


def tool(row: Any) -> str:
    return f"the tool says {row['answer']}"


def test_a_cascade_asks_its_judge_for_the_rest_only() -> None:
    seen: list[tuple[str, str]] = []
    rows = ROWS.with_columns(reward=pl.Series([1.0, None]))
    assert bound(f"cascade([verifier('reward'), {JUDGED}])", seen).score(rows).to_list() == [1.0, 1.0]
    assert len(seen) == 1


def test_advocates_of_a_debate_are_policies_of_the_recipe() -> None:
    made = build(f'debate({JUDGED}, risk="pro", safe="con")')
    assert made.asks == ("judge", "pro", "con")
    with pytest.raises(InputError, match="policy 'pro' is not here"):
        made.score(ROWS)


def test_instructions_are_a_template_of_every_question(tmp_path: Path) -> None:
    file = tmp_path / "strict.j2"
    file.write_text("Be strict.\n{% if second %}Compare {{ first }} and {{ second }}\n{% endif %}{{ default }}")
    seen: list[tuple[str, str]] = []
    text = f'judged(question="Is it right?", policy="judge", instructions="{file}")'
    made = bound(text, seen)
    made.score(ROWS)
    assert seen[0][1].startswith("Be strict.\nYou judge one criterion")
    made.score(ROWS, reference=ROWS.select(response="answer"))
    assert seen[-1][1].startswith("Be strict.\nCompare =====")
    with pytest.raises(InputError, match=r"there is no .*qestion"):
        build('judged(question="?", policy="judge", instructions="{{ qestion }}")')


def test_metrics_are_induced_at_an_endpoint_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        if "List what the feedback" in text:
            return '[{"behaviour": "greets", "comment": "polite", "sign": 1}]'
        if "Group the aspects" in text:
            return '[{"name": "polite", "definition": "Is it polite?", "good": "greets", "bad": "rude"}]'
        return "VERDICT: 1"

    file = tmp_path / "feedback.csv"
    pl.DataFrame({"transcript": ["hi", "hello", "hey"], "feedback": ["kind"] * 3}).write_csv(file)
    with StubEndpoint(answer) as stub:
        ledger = tmp_path / "calls.sqlite"
        text = f'induce_metrics(model="m", base_url="{stub.url}", api_key_env=None, ledger="{ledger}")'
        first = ANALYSES.build(text)(file)
        asked = len(stub.paid)
        assert first["coverage"].to_list() == [1.0]
        assert ANALYSES.build(text)(file).equals(first)
        assert len(stub.paid) == asked > 5
