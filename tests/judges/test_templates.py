"""What judges are sent: shipped templates byte for byte as in `prompts.json`, and a user's own in their place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents.scripted import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES
from palaestra.judges import MessageLabels, rubric
from palaestra.judges.argued import Argued
from palaestra.judges.asking import Reply
from palaestra.judges.best_of import judge_forms
from palaestra.judges.critics import PolicyCritic
from palaestra.judges.judged import Judged
from palaestra.judges.listed import Listed
from palaestra.judges.metrics import Metric, cluster, ground, match
from palaestra.judges.panels import Debate
from palaestra.judges.prompts import Brief, repair_prompt, revise_prompt
from palaestra.judges.rubric import Item
from palaestra.judges.rubric_players import PolicyPlayers
from palaestra.judges.scorers import build
from palaestra.judges.templates import KNOWN, own_prompts, write_prompt
from palaestra.learning.stages.stage import build as build_stages

FROZEN = Path(__file__).with_name("prompts.json")
ITEMS = [Item("right", "Is it right?"), Item("kind", "Is it kind?", "it thanks", "it shouts {loud}", scale=(0.0, 5.0))]
ROWS = pl.DataFrame({"prompt": ["6 * 7?", "", "6 * 7?"], "response": ["42 & <b>{{ x }}</b>", "", "43\n"]})
EPISODE = Turns({"group": [0, 0], "episode": [0, 0], "turn": [0, 1], "agent": ["a", "b"], "action": ["x", "y"]})
ISSUE = "reward: it is never positive"


class Recording:
    """An asker that notes what it is asked and says always the same."""

    name = "recording"

    def __init__(self, text: str = "VERDICT: 1") -> None:
        self.text, self.asked = text, list[str]()

    def ask(self, prompts: Sequence[tuple[str, int]]) -> list[Reply]:
        self.asked += [prompt for prompt, _ in prompts]
        return [Reply(self.text)] * len(prompts)


def recording(said: str) -> tuple[ScriptedPolicy, list[str]]:
    """A policy that says always the same, and the list of what it was asked."""
    asked: list[str] = []
    return ScriptedPolicy(lambda request: (asked.append(request.observation.text), said)[1], name="p"), asked


def sent() -> dict[str, list[str]]:
    """All prompts that the modules of judges send, by what sends them."""
    found: dict[str, list[str]] = {}
    told = pl.DataFrame({"told": ["Be strict.", None, ""]})
    found["judged"] = [text for text, _ in Judged(ITEMS, Recording()).questions(ROWS)[0]]
    found["judged, told"] = [text for text, _ in Judged(ITEMS, Recording()).questions(ROWS, condition=told)[0]]
    pairs = Judged(ITEMS, Recording()).questions(ROWS, reference=ROWS.reverse(), condition=told)[0]
    found["compared"] = [text for text, _ in pairs]
    for name, reference in (("listed", None), ("listed, reference", ROWS.reverse())):
        asker = Recording("ORDER: 1 > 2")
        Listed("Which is shorter?", asker).score(ROWS, reference=reference)
        Listed("Which is shorter?", asker).score(
            pl.DataFrame({"response": ["a", "b"]}), reference=None if reference is None else ROWS.head(2)
        )
        found[name] = asker.asked
    found["forms"] = forms()
    found["argued"] = reviewed()
    policy, found["debate"] = recording("It is wrong.")
    Debate(Judged(ITEMS[:1], Recording()), [policy, policy], seed=3).debates(ROWS)
    critic, asker = PolicyCritic("critic"), Recording("THINKING: better")
    critic.bind(lambda name: asker)
    critic("6 * 7?", "six {sevens}", "42")
    found["critic"] = asker.asked
    found["metrics"] = metrics()
    policy, found["messages"] = recording("LABEL: 1")
    labels = MessageLabels("open the door")
    labels.get(["You see a door.", "{nothing}"])
    labels.work(policy)
    found["players"] = players()
    found["programs"] = programs()
    policy, found["rubric"] = recording("VERDICT: 1")
    rubric.judge(EPISODE, ITEMS, policy)
    return found


def forms(own: dict[str, str] | None = None) -> list[str]:
    asker = Recording()
    rows = [
        {"prompt": "6 * 7?", "chosen": ["42"], "rejected": ["41", "{43}"], "subset": "Math", "id": "0"},
        {"prompt": "6 * 7?", "chosen": ["42"], "rejected": ["41"], "subset": "Ties", "id": "ref:0"},
        {"prompt": "Above 41?", "chosen": ["42", "43"], "rejected": ["41"], "subset": "Ties", "id": "tied:0"},
    ]
    judge_forms(pl.DataFrame(rows), asker, own=own)
    return asker.asked


def reviewed(own: dict[str, str] | None = None) -> list[str]:
    asker = Recording("VERDICT: 0")
    examples = pl.DataFrame({"prompt": ["6 * 7 = ?", "5?"], "response": ["It is 42.", "{5}"]})
    Argued(asker, examples=examples, shown=1, instructions=own).score(ROWS)
    asker.text = ""  # a list without anything
    Argued(asker, instructions=own).score(ROWS)
    return asker.asked


def metrics(own: dict[str, str] | None = None) -> list[str]:
    asked = []
    for text in ('[{"behaviour": "it adds", "comment": "rightly", "sign": 1}]', "[]"):
        asker = Recording(text)
        aspects = ground(["6 * 7 = 42", "?"], ["well done", "{bad}"], asker, own=own)
        known = [Metric("speed", "Is it fast?"), Metric("care", "Is it careful?")]
        for some in (known, []):
            cluster(aspects, some, asker, own=own)
        ratings = pl.DataFrame({"episode": [0, 0], "metric": ["speed", "care"], "rating": [1, 1]})
        match(aspects, ratings.with_columns(pl.col("episode").cast(pl.Int32)), asker, own=own)
        asked += asker.asked
    return asked


def players(own: dict[str, str] | None = None) -> list[str]:
    policy, asked = recording("?")
    made = PolicyPlayers("Answer {this}.", most=4, instructions=own)
    made.bind(policy, policy)
    rng = np.random.default_rng(0)
    for rules in ((), ("Nothing is made up.", "It is short.")):
        made.write(rules, rng)
        made.judge(rules, "an <answer>", rng)
        made.reflect(rules, "an <answer>", True, rng)
        made.reflect(rules, "an <answer>", False, rng)
        made.rewrite(rules, "be brief", rng)
    return asked


def programs() -> list[str]:
    found = []
    for brief in (
        Brief("Open {it}.", "class Turn: ..."),
        Brief("Open it.", "class Turn: ...", ["be short", "be kind"]),
    ):
        found += [brief.auto_mc(), brief.step(["reward"]), brief.step(["dense", "sparse"]), brief.factors()]
        found += [brief.text2reward(), brief.text2reward([("push", "return 1"), ("pull", "return {2}")])]
    found += [repair_prompt(found[0], "x = {1}", [ISSUE, "no"]), revise_prompt(found[0], "x = 1", "it {fell}")]  # type: ignore[list-item]
    return found


def test_every_prompt_is_what_it_was() -> None:
    assert sent() == json.loads(FROZEN.read_text("utf-8"))


def test_a_user_replaces_every_prompt_and_has_the_shipped_text(tmp_path: Path) -> None:
    """Each place that sends prompts takes a template, or its file, in which `{{ default }}` is what was sent before."""
    before = json.loads(FROZEN.read_text("utf-8"))
    (tmp_path / "own.j2").write_text("Own: {{ default }}")
    own = str(tmp_path / "own.j2")
    found: dict[str, list[str]] = {}
    found["judged"] = [text for text, _ in Judged(ITEMS, Recording(), instructions=own).questions(ROWS)[0]]
    told = pl.DataFrame({"told": ["Be strict.", None, ""]})
    judge = Judged(ITEMS, Recording(), instructions=own)
    found["compared"] = [text for text, _ in judge.questions(ROWS, reference=ROWS.reverse(), condition=told)[0]]
    asker = Recording("ORDER: 1 > 2")
    Listed("Which is shorter?", asker, instructions=own).score(ROWS)
    found["listed"] = asker.asked
    policy, found["debate"] = recording("It is wrong.")
    Debate(Judged(ITEMS[:1], Recording()), [policy, policy], seed=3, instructions=own).debates(ROWS)
    critic, asker = PolicyCritic("critic", instructions=own), Recording("THINKING: better")
    critic.bind(lambda name: asker)
    critic("6 * 7?", "six {sevens}", "42")
    found["critic"] = asker.asked
    policy, found["messages"] = recording("LABEL: 1")
    labels = MessageLabels("open the door", instructions=own)
    labels.get(["You see a door.", "{nothing}"])
    labels.work(policy)
    found["players"] = players(dict.fromkeys(("plant", "find", "reflect", "rewrite"), own))
    found["forms"] = forms(dict.fromkeys(("best", "rated"), "Own: {{ default }}"))
    found["argued"] = reviewed(dict.fromkeys(("merits", "flaws", "strict", "overturn"), own))
    found["metrics"] = metrics(dict.fromkeys(("ground", "cluster", "match"), "Own: {{ default }}"))
    policy, found["rubric"] = recording("VERDICT: 1")
    rubric.judge(EPISODE, ITEMS, policy, instructions=own)
    for name, texts in found.items():
        assert texts, name
        assert texts == [f"Own: {text}" for text in before[name]][: len(texts)], name
    brief = Brief(
        "Open {it}.", "class Turn: ...", own={"program": "{{ task }} {{ functions|join(' ') }}: {{ default }}"}
    )
    assert brief.step(["one", "two"]) == f"Open {{it}}. one two: {Brief(brief.task, brief.seen).step(['one', 'two'])}"


def test_every_prompt_that_can_be_replaced_ships_and_has_these_variables() -> None:
    forms = {"program": "dense_program"}
    given: dict[str, Any] = {name: "text" for names in KNOWN.values() for name in names} | {"nothing": "(nothing)"}
    given |= {name: ["one"] for name in ("answers", "known", "metrics", "rules", "hints", "functions", "tried")} | {
        "examples": [],
        "archive": [{"name": "finder", "helped": 0.5, "instances": 2}],
        "refused": [{"name": "fixer", "why": "helped too seldom"}],
    }
    for name, variables in KNOWN.items():
        values = {each: given[each] for each in (*variables, *(["nothing"] if name == "judged" else []))}
        assert write_prompt(name, values, shipped=forms.get(name, "")), name
        assert own_prompts("".join(f"{{{{ {each} }}}}" for each in variables), (name,), "x").keys() == {name}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Listed("?", instructions="{{ taks }}"),
            "listed: instructions: there is no {{ taks }}; did you mean 'task'",
        ),
        (lambda: Listed("?", instructions="gone.j2"), "listed: instructions: there is no such file as gone.j2"),
        (lambda: Debate(Judged(ITEMS), instructions="{% if %}"), "debate: instructions: line 1 is no Jinja template"),
        (lambda: PolicyPlayers(instructions={"plan": ""}), "instructions has 'plan'; did you mean 'plant'"),
        (lambda: build_stages(["rubric_game(instructions={'find': ''})"]), "are for players that are policies"),
        (
            lambda: ANALYSES.build("induce_metrics(model='m', instructions={'match': '{{ x }}'})"),
            "induce_metrics: instr",
        ),
        (lambda: ANALYSES.build("judge_forms(model='m', instructions={'rate': ''})"), "'rate'; did you mean 'rated'"),
        (lambda: build("debate(judged(question='?', policy='a'), 'b', 'c', instructions='{{ x }}')"), "debate: instr"),
        (lambda: build("argued(policy='a', instructions={'flaws': '{{ x }}'})"), "argued: instructions"),
        (lambda: build("listed(policy='a', instructions='{{ x }}')"), "listed: instructions"),
    ],
)
def test_what_is_no_template_of_these_variables_is_refused_where_it_is_named(make: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        make()
    assert message in str(raised.value)


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(sent(), indent=1, ensure_ascii=False) + "\n", "utf-8")
