"""The key of an endpoint never leaves: not in answers, errors, logs, tables or pages."""

from __future__ import annotations

import base64
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from tests.agents.chat import KEY, ask, policy
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy, Team
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError
from palaestra.interface import cli
from palaestra.play.rollout import rollout

FORMS = (KEY, KEY.upper(), quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode())


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("code", [200, 401, 500])
def test_the_key_never_leaves(
    endpoint: ChatEndpoint, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture, code: int, form: int
) -> None:
    """Not in an answer, an error or a header that echoes it, nor in what is logged of them."""
    caplog.set_level("DEBUG")

    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        assert handler.headers["authorization"] == f"Bearer {KEY}"
        said = f"bad key Bearer {FORMS[form]}"
        data = completion(said) if code == 200 else json.dumps({"error": {"message": said}}).encode()
        reply(handler, data, code, headers={"x-echo": FORMS[form]})

    endpoint.behave = behave
    chat = policy(endpoint)
    decision = ask(chat)[0]
    assert "bad key Bearer ***" in (decision.error or decision.action)
    out, err = capfd.readouterr()
    for text in (repr(decision), repr(chat), str(vars(chat)), caplog.text, out, err):
        for secret in FORMS:
            assert secret not in text
            assert secret[3:] not in text


def test_a_key_of_a_file_ends_with_a_line_break(endpoint: ChatEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", f"{KEY}\n")
    assert ask(policy(endpoint))[0].action == "42"
    assert endpoint.headers == [f"Bearer {KEY}"]
    for wrong in (f"{KEY}\n{KEY}", f"{KEY}…"):
        monkeypatch.setenv("TEST_KEY", wrong)
        with pytest.raises(InputError, match="variable TEST_KEY holds what is no key") as error:
            policy(endpoint)
        assert KEY not in str(error.value)
    monkeypatch.setenv("TEST_KEY", " \n")
    with pytest.raises(InputError, match="TEST_KEY is not set"):
        policy(endpoint)


class Echo:
    """One question; what is answered is repeated to whoever reads the metadata."""

    agents, task = ("player",), "echo"

    def reset(self, seed: int) -> dict[str, Observation]:
        return {"player": Observation(f"question {seed}")}

    def step(self, actions: dict) -> StepResult:
        return StepResult({}, {"player": 1.0}, terminated=True, info={"success": True, "heard": actions["player"]})


def test_a_table_of_turns_and_its_page_hold_no_key(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        said = f"0 {handler.headers['authorization']}"
        failed = (json.dumps({"error": {"message": said}}).encode(), 400)
        reply(handler, *(failed if len(endpoint.bodies) % 2 else (completion(said),)))

    endpoint.behave = behave
    turns = rollout(Echo, Team(player=policy(endpoint)), groups=4, group_size=2, retries=0)
    assert turns["error"].null_count() not in (0, len(turns))
    turns.save(tmp_path / "turns.parquet")
    stored = str(pl.read_parquet(tmp_path / "turns.parquet").to_dicts())
    assert "***" in stored
    assert KEY not in stored
    with pytest.raises(SystemExit):
        cli.main(["evaluate", str(tmp_path / "turns.parquet"), "--report", str(tmp_path / "report.html")])
    assert KEY not in (tmp_path / "report.html").read_text()


def test_a_placeholder_is_no_secret(endpoint: ChatEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "EMPTY")
    endpoint.behave = lambda handler, body: reply(handler, completion("the box is empty"))
    assert ask(policy(endpoint))[0].action == "the box is empty"


@pytest.mark.parametrize("given", [f"http://user:{KEY}@127.0.0.1:1/v1", f"https://{KEY}@host/v1"])
def test_credentials_in_an_address_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InputError, match=r"base_url holds credentials: write 'https?://(127|host)") as caught:
        ChatPolicy("m", base_url=given, api_key_env=None)
    assert KEY not in str(caught.value)


def test_errors_do_not_repeat_the_query_of_an_address(endpoint: ChatEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b"{}", 500)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    assert ask(policy(endpoint, base_url=None))[0].error.endswith(f"at {endpoint.url}]")
    error = ask(policy(endpoint, base_url=f"{endpoint.url}?key={KEY}"))[0].error
    assert error.endswith(f"at {endpoint.url}]")
    assert KEY not in error


@pytest.mark.parametrize("given", [KEY, "hf_abcDEF123456", "AIzaSyA-1234", "sk_live_0123", "my key", ""])
def test_a_key_in_place_of_its_name_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InputError, match="NAME of an environment variable") as caught:
        ChatPolicy("m", api_key_env=given)
    assert not given or given not in str(caught.value)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_nobody_else_gets_the_prompt_or_the_key(endpoint: ChatEndpoint, code: int) -> None:
    other = ChatEndpoint()
    try:
        there = {"location": f"{other.url}/chat/completions?key={KEY}"}
        endpoint.behave = lambda handler, body: reply(handler, b"", code, headers=there)
        chat = policy(endpoint)
        error = ask(chat, "a secret prompt")[0].error or ""
        hosts = [each.url.removeprefix("http://").removesuffix("/v1") for each in (endpoint, other)]
        assert f"RedirectedError: {hosts[0]} redirects (HTTP {code}) to {hosts[1]}; redirects are not followed" in error
        assert f"set base_url to '{other.url}'" in error
        assert len(error) <= 300
        assert KEY not in error
        assert other.bodies == []
        assert len(endpoint.bodies) == 1  # asking again would not help
    finally:
        other.close()


@pytest.mark.parametrize("location", ["", "http://[bad"])
def test_a_redirect_to_nowhere_is_an_error(endpoint: ChatEndpoint, location: str) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b"", 302, headers={"location": location})
    assert "RedirectedError: 127.0.0.1" in (ask(policy(endpoint))[0].error or "")
