"""The dialects of servers of weights: what is asked, and which answers can be learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.agents.backends.web import Web

from palaestra.agents.backends import dialects
from palaestra.agents.backends.dialects import VLLM, SGLang, encoded
from palaestra.agents.backends.server import Client, GoneError, ServedModel, ServerError

GOOD = {"model": "m", "choices": [{"token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, -0.5]}}]}


def test_what_vllm_answers() -> None:
    read = VLLM().read(GOOD, ServedModel("m"))
    assert (read.ids.tolist(), read.logprobs.tolist(), read.version) == ([5, 6], [-1.0, -0.5], None)
    assert (read.ids.dtype, read.logprobs.dtype) == (np.int32, np.float32)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"token_ids": None}, "no token_ids"),
        ({"token_ids": [5]}, "1 token ids and 2 log-probabilities"),
        ({"logprobs": None}, "2 token ids and 1 log-probabilities|no numbers"),
        ({"token_ids": [], "logprobs": {"token_logprobs": []}}, "0 token ids"),
        ({"token_ids": [5, -6]}, "impossible"),
        ({"token_ids": ["a", "b"]}, "no numbers"),
        ({"logprobs": {"token_logprobs": [-1.0, float("nan")]}}, "impossible"),
        ({"logprobs": {"token_logprobs": [-1.0, 0.5]}}, "impossible"),
    ],
)
def test_what_nothing_can_be_learned_from(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(ServerError, match=said):
        VLLM().read({"model": "m", "choices": [GOOD["choices"][0] | choice]}, ServedModel("m"))  # type: ignore[operator, index]


def test_an_answer_of_another_model_or_of_none() -> None:
    with pytest.raises(ServerError, match="is of model 'm', not of 'solver-1'"):
        VLLM().read(GOOD, ServedModel("m", "solver-1"))
    for nonsense in (None, [], {"choices": []}, "text"):
        with pytest.raises(ServerError):
            VLLM().read(nonsense, ServedModel("m"))
        with pytest.raises(ServerError, match="no output_token_logprobs"):
            SGLang().read(nonsense, ServedModel("m"))


def test_what_sglang_is_asked_and_answers() -> None:
    call = SGLang().sample(ServedModel("m", "a"), np.array([5, 6]), seed=3, tokens=9, temperature=0.5, ends=[1])
    assert call.body is not None
    assert (call.path, call.body["input_ids"], call.body["lora_path"]) == ("/generate", [5, 6], "a")
    assert call.body["sampling_params"]["sampling_seed"] == 3
    assert "lora_path" not in (
        SGLang().sample(ServedModel("m"), np.array([5]), seed=3, tokens=9, temperature=1, ends=[]).body or {}
    )
    said = {"meta_info": {"output_token_logprobs": [[-1.0, 7, None], [-2.0, 8, "x"]], "weight_version": "3-ab"}}
    read = SGLang().read(said, ServedModel("m"))
    assert (read.ids.tolist(), read.logprobs.tolist(), read.version) == ([7, 8], [-1.0, -2.0], "3-ab")


def test_a_server_that_refuses_weights(web: Web, tmp_path: Any) -> None:
    web.behave = lambda handler: Web.say(handler, {"success": False, "message": "not\nthese"})
    with pytest.raises(ServerError, match="the server refused: not these"):
        SGLang().load(Client(web.url), tmp_path, "1-a")


def test_vllm_goes_on_when_it_could_not_load(web: Web, tmp_path: Any) -> None:
    paths = []

    def behave(handler: Any) -> None:
        paths.append(handler.path)
        Web.say(handler, {"error": {"message": "no such folder"}}, 500 if handler.path == "/collective_rpc" else 200)

    web.behave = behave
    with pytest.raises(ServerError, match="no such folder"):
        VLLM().load(Client(web.url), tmp_path, "1-a")
    assert paths == ["/pause?mode=wait", "/collective_rpc", "/resume"]


def test_vllm_is_not_left_paused_by_a_failure_that_passes(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "RESUMING", (0.0, 0.0))
    paths, fails = [], [2]

    def behave(handler: Any) -> None:
        paths.append(handler.path)
        fails[0] -= handler.path == "/resume"
        Web.say(handler, {}, 500 if handler.path == "/resume" and fails[0] >= 0 else 200)

    web.behave = behave
    VLLM().interrupt(Client(web.url))
    assert paths == ["/pause?mode=abort", "/resume", "/resume", "/resume"]
    fails[0] = 3
    with pytest.raises(GoneError):
        VLLM().interrupt(Client(web.url))
    web.behave = lambda handler: Web.say(handler, {}, 404)
    VLLM().wake(Client(web.url))  # without developer endpoints


def test_where_sglang_says_its_version(web: Web) -> None:
    """0.5.23 answers at both, and warns that the older one will be removed; 0.5.5 has only that one."""
    for path in ("/model_info", "/get_model_info"):
        web.behave = lambda handler, path=path: Web.say(  # type: ignore[misc]
            handler, {"weight_version": "3-ab"}, 200 if handler.path == path else 404
        )
        assert SGLang().version(Client(web.url)) == "3-ab"


def test_a_server_that_does_not_tokenize(web: Web) -> None:
    web.behave = lambda handler: Web.say(handler, {}, 404)
    assert encoded(Client(web.url), "m", "x") is None
    web.behave = lambda handler: Web.say(handler, {"tokens": [1, 2]})
    assert encoded(Client(web.url), "m", "x") == [1, 2]


def test_an_event_of_a_stream() -> None:
    first = GOOD | {"choices": [GOOD["choices"][0] | {"prompt_token_ids": [1], "finish_reason": None}]}  # type: ignore[operator, index]
    assert VLLM().part(first, ServedModel("m")).ids.tolist() == [5, 6]
    last = VLLM().part({"model": "m", "choices": [{"token_ids": [], "finish_reason": "stop"}]}, ServedModel("m"))
    assert (last.ids.tolist(), last.finish) == ([], "stop")
    assert VLLM().part({"choices": [], "usage": {}}, ServedModel("m")).finish is None
    for code, kind in ((500, GoneError), (None, GoneError), (400, ServerError)):
        with pytest.raises(kind, match="the server broke off: no way") as error:
            VLLM().part({"error": {"message": "no\nway", "code": code}}, ServedModel("m"))
        assert type(error.value) is kind
    with pytest.raises(ServerError, match="of model 'm', not of 'n'"):
        VLLM().part(GOOD, ServedModel("n"))


def test_an_event_of_sglang_with_all_tokens_or_with_new_ones() -> None:
    def event(first: int, total: int, finish: Any = None) -> Any:
        tokens = [[-1.0, number, None] for number in range(first, total)]
        return {"meta_info": {"output_token_logprobs": tokens, "completion_tokens": total, "finish_reason": finish}}

    model, part = ServedModel("m"), SGLang().part
    assert part(event(0, 1), model, 0).ids.tolist() == [0]
    assert part(event(0, 3), model, 1).ids.tolist() == part(event(1, 3), model, 1).ids.tolist() == [1, 2]
    for whole in (event(0, 3, {"type": "length"}), event(3, 3, {"type": "length"})):
        last = part(whole, model, 3)
        assert (last.ids.tolist(), last.logprobs.tolist(), last.finish) == ([], [], "length")
    with pytest.raises(ServerError, match="has 1 of 5 tokens after 3 were sent"):
        part(event(4, 5), model, 3)
    with pytest.raises(ServerError, match="the server broke off: no way") as error:
        part({"error": {"message": "no\nway", "type": "invalid_request_error", "code": 400}}, model, 3)
    assert type(error.value) is ServerError
    for code, kind in ((400, ServerError), (503, GoneError)):
        with pytest.raises(ServerError, match="the server broke off: too long") as error:
            part(event(0, 3, {"type": "abort", "status_code": code, "message": "too\nlong"}), model, 1)
        assert type(error.value) is kind
    assert part(event(0, 3, {"type": "abort", "status_code": None}), model, 1).finish == "abort"


def test_an_answer_that_was_aborted_before_its_first_token() -> None:
    nothing = {"model": "m", "choices": [{"token_ids": [], "logprobs": None, "finish_reason": "abort"}]}
    assert VLLM().read(nothing, ServedModel("m")).finish == "abort"
    said = {"meta_info": {"output_token_logprobs": [], "finish_reason": {"type": "abort"}, "weight_version": "3-ab"}}
    read = SGLang().read(said, ServedModel("m"))
    assert (read.ids.tolist(), read.finish, read.version) == ([], "abort", "3-ab")
