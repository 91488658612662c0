"""Designer and critic of a search over workflows as chat models, and a search that they make over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy
from palaestra.judges.workflow_seats import model_critic, model_designer, read_verdict
from palaestra.teams.workflow_edits import WorkflowDesign
from palaestra.teams.workflow_search import search_workflows

ROLES = {"reader": "Find the facts.", "checker": "", "poet": "Rhyme."}
START = WorkflowDesign("chain", ("reader",))


def worth(design: WorkflowDesign) -> tuple[float, float]:
    return 0.5 + 0.4 * (design.roles[-1] == "checker"), 10.0 * len(design.roles)


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    made = ChatEndpoint()
    yield made
    made.close()


def behave(endpoint: ChatEndpoint, said: Callable[[str, dict[str, Any]], str]) -> None:
    endpoint.behave = lambda handler, body: reply(  # type: ignore[method-assign]
        handler, completion(said(body["messages"][-1]["content"], body))
    )


def searched(endpoint: ChatEndpoint, budget: int = 3, **options: Any):
    policy = ChatPolicy("m", base_url=endpoint.url, api_key_env=None, wait=0.0)
    return search_workflows(
        START, worth, list(ROLES), budget=budget, rng=np.random.default_rng(0),
        designer=model_designer(policy, ROLES, task="What is {{ x }}?", **options),
        critic=model_critic(policy, **options),
    )  # fmt: skip


def test_models_design_and_review_in_structured_replies(endpoint) -> None:
    def said(prompt: str, body: dict[str, Any]) -> str:
        schema = body["response_format"]["json_schema"]["schema"]
        field = schema["required"][-1]
        if prompt.startswith("You review"):
            assert field == "verdict"
            poem = "Proposed edit: add poet 1\nIt makes: chain(['poet', 'reader'])" in prompt
            assert poem or "Proposed edit: add checker 2\nIt makes: chain(['reader', 'checker'])" in prompt
            return json.dumps({"reasoning": "Poems cost.", "verdict": "reject" if poem else "accept"})
        assert field == "edit"
        assert "- reader: Find the facts.\n- checker\n- poet: Rhyme.\n" in prompt
        assert "What is {{ x }}?" in prompt
        if "turned down: add poet 1" in prompt:
            return json.dumps({"reasoning": "It should be checked.", "edit": "Add checker at 2"})
        return json.dumps({"reasoning": "", "edit": "add poet 1"})

    behave(endpoint, said)
    table = searched(endpoint, budget=2)
    assert table["status"].to_list() == ["evaluated", "rejected", "evaluated"]
    assert table["edit"].to_list() == [None, "add poet 1", "add checker 2"]
    assert table["reason"].to_list() == [None, "Poems cost.", "Poems cost."]
    assert table["tokens"].to_list() == [None, 2020, 2020]
    assert table.filter("best")["workflow"].item() == "chain(['reader', 'checker'])"
    asked = [prompt for prompt in endpoint.prompts if prompt.startswith("You design")]
    assert "accuracy 0.5, cost 10, reward 0.4" in asked[0]
    assert "Workflows so far" not in asked[0]


def test_lines_are_read_where_an_endpoint_knows_no_schema(endpoint) -> None:
    def answer(handler: Any, body: dict[str, Any]) -> None:
        if "response_format" in body:
            reply(handler, b'{"error": {"message": "response_format is not supported"}}', 400)
        elif body["messages"][-1]["content"].startswith("You review"):
            reply(handler, completion("It checks.\n**Verdict:** Accept."))
        else:
            reply(handler, completion("Somebody should check.\nEdit: `add the checker at position 2`"))

    endpoint.behave = answer  # type: ignore[method-assign]
    table = searched(endpoint, budget=2)
    assert table["edit"].to_list() == [None, "add checker 2"]
    assert table["reason"].to_list() == [None, "It checks."]


@pytest.mark.parametrize(("who", "said"), [("designer", "You design"), ("critic", "You review")])
def test_what_cannot_be_read_is_asked_for_once_more_and_is_a_row(endpoint, who, said) -> None:
    good = {"You design": "Edit: add checker 2", "You review": "Verdict: accept"}
    behave(endpoint, lambda prompt, body: "I am not sure." if prompt.startswith(said) else good[prompt[:10]])
    table = searched(endpoint, budget=2)
    assert table["status"].to_list() == ["evaluated", *["unread"] * 5]
    assert set(table["reason"][1:]) == {f"{who}: I am not sure."}
    assert sum(prompt.startswith(said) for prompt in endpoint.prompts) == 2 * 5
    assert (table["tokens"][1:] >= 2020).all()


def test_an_endpoint_that_fails_is_a_row_with_its_error(endpoint) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b'{"error": {"message": "no such model"}}', 404)  # type: ignore[method-assign]
    table = searched(endpoint, budget=2)
    assert table["status"].to_list() == ["evaluated", *["unread"] * 5]
    assert "no such model" in table["reason"][1]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ('{"reasoning": "Twice the same.", "verdict": "reject"}', (False, "Twice the same.")),
        ("Why not.\n> Verdict: **accept**", (True, "Why not.")),
        ("<think>Verdict: reject</think>Verdict: accept", (True, "")),
        ("Verdict: maybe", None),
        ("accept", None),
        ("", None),
    ],
)
def test_verdicts_are_read_and_never_guessed(said, read) -> None:
    assert read_verdict(said) == read


def test_templates_of_ones_own_stand_in_place_of_the_shipped_ones(endpoint) -> None:
    behave(endpoint, lambda prompt, body: "Edit: add checker 2" if prompt.startswith("E ") else "Verdict: accept")
    own = {"edit_workflow": "E {{ workflow }} {{ roles | length }}", "review_edit": "R {{ edited }}"}
    searched(endpoint, budget=2, own=own)
    assert endpoint.prompts == ["E chain(['reader']) 3", "R chain(['reader', 'checker'])"]
