"""The search over workflows for a recipe: `palaestra analyze search_workflow`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, RecipeError
from palaestra.evaluation.analyses import analyze

HERE = __name__


class Two(TaskEnv):
    """A reader finds a, a checker that heard a adds b."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", f"question {seed}" + 20 * " word", lambda text: float(text == "a b"), "a b")


class Mute(Two):
    """Knows no right answers."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", f"question {seed}", lambda text: 0.0, None)

    def solved(self, score: float) -> bool | None:
        return None


def script() -> Any:
    def say(request: Request) -> str:
        _, *heard = request.observation.text.split(" | ")
        role = heard.pop() if request.agent == "solver" else request.agent
        if role.startswith("checker") and "a" in heard:
            return "a b"
        return "a" if role.startswith("reader") else heard[-1] if heard else "?"

    return say


def written(folder: Path, **changes: Any) -> Path:
    recipe = {
        "name": "two",
        "env": {"make": f"{HERE}:Two", "workflow": "debate(2)"},
        "policies": {"stub": {"kind": "script", "options": {"script": f"{HERE}:script"}}},
        "team": {"*": "stub"},
        "learn": {"kind": "play"},
    } | changes
    (folder / "two.yaml").write_text(json.dumps(recipe))
    return folder / "two.yaml"


def test_the_best_workflow_of_a_recipe_is_found_and_tested_on_other_tasks(tmp_path) -> None:
    question = "search_workflow({'reader': 'Find.', 'checker': 'Check.'}, 20, tasks=6, most=3, seed=2, trust=True)"
    table = analyze(question, written(tmp_path))
    (best,) = table.filter("best").to_dicts()
    assert best["workflow"] == "one_conversation({'reader': 'Find.', 'checker': 'Check.'})"
    assert (best["accuracy"], best["test"]) == (1.0, 1.0)
    first = table.row(0, named=True)
    assert (first["workflow"], first["accuracy"], first["test"]) == ("chain({'reader': 'Find.'})", 0.0, 0.0)
    assert first["cost"] == 22 + 4 * 1
    assert best["cost"] == pytest.approx(
        25 + 4 * 1 + 4 + 0.1 * 26 + 4 * 2
    )  # "… | reader: Find."; a; "| | checker: Check."; a b
    assert table.filter(~(table["best"] | table["pareto"]) & (table["step"] > 0))["test"].null_count() > 0
    assert not list(tmp_path.glob("two/*"))  # nothing was asked of a model


def test_the_critic_may_be_left_out_and_the_search_may_begin_elsewhere(tmp_path) -> None:
    question = (
        "search_workflow(['reader', 'checker'], 3, tasks=2, critic='none', start=['reader', 'checker'], trust=True)"
    )
    table = analyze(question, written(tmp_path))
    assert table["workflow"][0] == "chain(['reader', 'checker'])"
    assert table["reason"].null_count() == len(table) == 3


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    made = ChatEndpoint()
    yield made
    made.close()


def test_policies_of_the_recipe_play_design_and_review_and_are_not_paid_twice(endpoint, tmp_path) -> None:
    def answer(handler: Any, body: dict[str, Any]) -> None:
        prompt = body["messages"][-1]["content"]
        if body["model"] == "designer":
            assert "Find it." in prompt
            assert "question " in prompt
            said = {"reasoning": "?", "edit": "add checker 2"}
        elif body["model"] == "critic":
            assert "Proposed edit: add checker 2" in prompt
            said = {"reasoning": "It helps.", "verdict": "accept"}
        else:
            assert body["messages"][0]["role"] == "system"
            said = {"reasoning": "", "answer": "a b" if "checker" in str(body["messages"]) else "a"}
        reply(handler, completion(json.dumps(said)))

    endpoint.behave = answer  # type: ignore[method-assign]
    chat = {"base_url": endpoint.url, "api_key_env": None, "wait": 0.0}
    policies = {name: {"kind": "chat", "options": {"model": name, **chat}} for name in ("player", "designer", "critic")}
    recipe = written(tmp_path, policies=policies, team={"*": "player"})
    roles = {"reader": "Find it.", "checker": ""}
    question = f"search_workflow({roles}, 2, tasks=3, designer='designer', critic='critic', trust=True)"
    table = analyze(question, recipe)
    assert table["accuracy"].to_list() == [0.0, 1.0]
    assert table["reason"][1] == "It helps."
    assert table["cost"][0] == 1000 + 4 * 10  # in tokens, as the endpoint says them
    asked = len(endpoint.bodies)
    assert analyze(question, recipe).equals(table)
    assert len(endpoint.bodies) == asked
    assert list((tmp_path / "two").glob("designer-*.sqlite"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("[]", "roles is empty"),
        ("['a'], start=['b']", "'b', which is no role"),
        ("['a'], critic='nobody', trust=True", "no policy 'nobody'"),
        ("['a'], trust=True, policy='nobody'", "no policy 'nobody'"),
        ("['a'], trust=True, instructions={'design': 'x'}", "instructions has 'design'"),
    ],
)
def test_what_cannot_be_searched_is_named(tmp_path, options, said) -> None:
    with pytest.raises(InputError, match=said):
        analyze(f"search_workflow({options})", written(tmp_path))


def test_code_of_a_recipe_runs_only_with_trust_and_success_must_be_known(tmp_path) -> None:
    with pytest.raises(RecipeError, match="names code"):
        analyze("search_workflow(['a'])", written(tmp_path))
    more = {name: {"kind": "script", "options": {"script": f"{HERE}:script"}} for name in ("one", "two")}
    recipe = written(tmp_path, policies=more, team={"*": "one"})
    with pytest.raises(InputError, match="who plays"):
        analyze("search_workflow(['a'], trust=True)", recipe)
    recipe = written(tmp_path, policies={"stub": {"kind": "script", "options": {"script": "kuhn"}}})
    with pytest.raises(InputError, match="all episodes failed"):
        analyze("search_workflow(['a'], trust=True)", recipe)
