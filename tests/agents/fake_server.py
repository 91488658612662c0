"""A server that speaks vLLM's or SGLang's words, in this process: a tiny model behind HTTP, with faults to order."""

from __future__ import annotations

import base64
import io
import json
import pickle
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.agents import LMPolicy
from palaestra.agents.backends.sampling import evaluate, sample

_ONE_AT_A_TIME = threading.Lock()
ABORTED = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
"""Finish reason of SGLang 0.5.23 for an answer that it was told to break off."""


class Unpickler(pickle.Unpickler):
    """Knows what a tensor is made of and nothing else, of what SGLang 0.5.23 allows."""

    ALLOWED = ("torch._utils._rebuild_tensor_v2", "torch.storage._load_from_bytes", "collections.OrderedDict")

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self.ALLOWED:
            raise RuntimeError(f"Blocked unsafe global ({module}.{name}) during pickle deserialization")
        return super().find_class(module, name)


def loaded(folder: Any) -> LMPolicy:
    """The model of a folder; transformers loads with settings of the whole process, so never two at a time."""
    with _ONE_AT_A_TIME:
        return LMPolicy.from_pretrained(folder)


class FakeServer:
    """Serves what is in `folder`. Faults are attributes that a test sets.

    stale_head: keeps its head when it reloads. raw: log-probabilities of temperature 1. silent: seconds of sleep before
    an answer. mute: answers lack token ids. down: every connection is closed. foreign: another tokenizer. old: restarts
    with the weights of its start after so many answers. streams: events of a token each, where they are asked for.
    breaks: what befalls the next answers, one each, as (kind, after how many tokens). tokens: sampled so far. pace:
    seconds that a token takes. paced: tokens that took so long. holds: answers stop after so many tokens of a stream
    until they are aborted, or until it was told so as often as `until` says; not those that compare weights. stood:
    answers that stopped so. deaf: does not abort answers that it is told to.
    transfers: it has the weight-transfer API, of vLLM with the engine for shared memory; refuses: the path at which it
    answers 500 (SGLang: 400); loses: tensors of these names do not arrive. updates: what it was sent. ranks, groups: of
    SGLang, tensor-parallel and data-parallel ones. paused: it is not to answer. restless: how often it cannot drop
    prefixes yet. disjoint: events of SGLang's streams have new tokens only.
    """

    def __init__(self, folder: Path, *, lora: bool = False, port: int = 0, host: str = "127.0.0.1") -> None:
        self.folder, self.lora = folder, lora
        self.stale_head = self.raw = self.mute = self.down = self.foreign = False
        self.silent, self.old = 0.0, 0
        self.streams, self.tokens, self.pace, self.disjoint = False, 0, 0.0, False
        self.deaf, self.aborts, self.paced = False, 0, 0
        self.holds = self.until = self.stood = 0
        self.breaks: list[tuple[str, int]] = []
        self.transfers, self.refuses, self.loses = False, "", ""
        self.ranks, self.groups, self.paused, self.restless = 1, 1, False, 0
        self.updates: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self.most = self.now = 0
        self.lock, self.closed = threading.Lock(), threading.Event()
        self.start()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}"))

            def answer(self, body: Any) -> None:
                if fake.down:
                    self.close_connection = True
                    self.connection.close()
                    return
                if "mode=abort" in self.path or self.path == "/abort_request":
                    fake.aborts += not fake.deaf
                self.aborts = fake.aborts
                code, found = fake.reply(self.path.partition("?")[0], body)
                fault = found.pop("fault", None) if isinstance(found, dict) else None
                if isinstance(body, dict) and body.get("stream") and fake.streams and code == 200:
                    self.compares = body.get("sampling_params", body)["ignore_eos"]
                    self.stream(found, fault)
                    return
                if fault in ("cut", "die", "old"):
                    self.broken(fault)
                    return
                if fault == "stall":
                    fake.closed.wait(30)
                data = found.encode() if isinstance(found, str) else json.dumps(found).encode()
                self.send_response(code)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def broken(self, fault: str) -> None:
                fake.down = fake.down or fault == "die"
                if fault == "old":
                    fake.start()
                self.close_connection = True
                self.connection.close()

            def stream(self, found: Any, fault: str | None) -> None:
                """As vLLM does: an event for each token, the last one with the reason, and [DONE]."""
                self.send_response(200)
                self.send_header("content-type", "text/event-stream; charset=utf-8")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                if "meta_info" in found:
                    self.stream_sglang(found, fault)
                    return
                choice = found["choices"][0]
                ids, logprobs = choice.get("token_ids"), choice["logprobs"]["token_logprobs"]
                for i, value in enumerate(logprobs):
                    self.stand(i)
                    fake.take_time()
                    if fake.aborts > self.aborts:
                        with fake.lock:
                            fake.tokens -= len(logprobs) - i
                        choice["finish_reason"] = "abort"
                        break
                    each = {"logprobs": {"token_logprobs": [value]}, "finish_reason": None}
                    self.event(
                        {"model": found["model"], "choices": [each | ({} if ids is None else {"token_ids": [ids[i]]})]}
                    )
                if fault in ("cut", "die", "old"):
                    self.broken(fault)
                    return
                if fault == "stall":
                    fake.closed.wait(30)
                if fault == "error":
                    self.event({"error": {"message": "EngineCore encountered an issue", "code": 500}})
                elif fault != "ends":
                    last = {"token_ids": [], "logprobs": {"token_logprobs": []}}
                    self.event(
                        {
                            "model": found["model"],
                            "choices": [last | {"finish_reason": choice.get("finish_reason") or "stop"}],
                        }
                    )
                self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

            def stream_sglang(self, found: Any, fault: str | None) -> None:
                """As SGLang 0.5.23 does: each event has all tokens so far, or the new ones; and [DONE]."""
                told = found["meta_info"]
                said = told["output_token_logprobs"]
                for i in range(len(said)):
                    self.stand(i)
                    fake.take_time()
                    whole = i + 1 == len(said) and fault is None
                    if fake.aborts > self.aborts:
                        with fake.lock:
                            fake.tokens -= len(said) - i - 1
                        told["finish_reason"], whole = ABORTED, True
                    each = {"completion_tokens": i + 1, "finish_reason": told["finish_reason"] if whole else None}
                    each["output_token_logprobs"] = said[i if fake.disjoint else 0 : i + 1]
                    self.event({"text": "", "meta_info": told | each})
                    if fake.aborts > self.aborts:
                        break
                if fault in ("cut", "die", "old"):
                    self.broken(fault)
                    return
                if fault == "stall":
                    fake.closed.wait(30)
                if fault == "error":
                    self.event({"error": {"message": "EngineCore encountered an issue", "code": 500}})
                if fault == "abort":
                    new = [] if fake.disjoint else said
                    each = {"completion_tokens": len(said), "output_token_logprobs": new, "finish_reason": ABORTED}
                    self.event({"text": "", "meta_info": told | each})
                self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

            def stand(self, said: int) -> None:
                if said == fake.holds and not self.compares and fake.aborts < fake.until:
                    with fake.lock:
                        fake.stood += 1
                    until(lambda: fake.aborts > self.aborts or fake.aborts >= fake.until)

            def event(self, what: Any) -> None:
                data = f"data: {json.dumps(what)}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        self.http = ThreadingHTTPServer((host, port), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://{host}:{self.http.server_port}/v1"

    def start(self) -> None:
        """As it comes up: the weights of its folder, no adapters, no version."""
        self.version, self.answered = "default", 0
        self.adapters: dict[str, LMPolicy] = {}
        self.policy = loaded(self.folder)
        self.updating = False

    def close(self) -> None:
        self.closed.set()
        self.http.shutdown()
        self.http.server_close()

    def load(self, folder: str) -> None:
        before = self.policy.model.lm_head.weight.detach().clone()
        self.policy = loaded(folder)
        if self.stale_head:
            self.policy.model.lm_head.weight = torch.nn.Parameter(before)

    def update(self, path: str, body: Any) -> None:
        """As vLLM 0.32 says what is out of order; an engine without any transfer refuses all of it."""
        if not self.transfers or path == self.refuses:
            self.updating = False
            raise RuntimeError("Weight transfer not configured.")
        match path:
            case "/init_weight_transfer_engine":
                pass
            case "/start_weight_update":
                if self.updating:
                    raise RuntimeError("start_weight_update called while a weight update is already active.")
                self.updating = True
            case "/update_weights":
                if not self.updating:
                    raise RuntimeError("start_weight_update must be called before update_weights.")
                self.updates.append(body["update_info"])
                self.received(body["update_info"])
            case _:
                if not self.updating:
                    raise RuntimeError("finish_weight_update called without a matching start_weight_update.")
                self.updating = False
                self.version = body.get("weight_version") or self.version

    def received(self, info: dict[str, Any]) -> None:
        with open(f"/proc/{info['process']}/fd/{info['descriptor']}", "rb") as file:
            data = file.read()
        assert len(data) == info["size"]
        assert data.startswith(bytes.fromhex(info["key"]))
        state = {
            name: torch.frombuffer(
                bytearray(data[at:]), dtype=getattr(torch, dtype), count=int(np.prod(shape))
            ).reshape(shape)
            for name, dtype, shape, at in zip(
                info["names"], info["dtype_names"], info["shapes"], info["offsets"], strict=True
            )
            if not (self.loses and self.loses in name)
        }  # fmt: skip
        self.policy = loaded(self.folder)
        head = self.policy.model.lm_head
        head.weight = torch.nn.Parameter(head.weight.detach().clone())  # what is served has a head of its own
        self.policy.model.load_state_dict(state, strict=not self.loses)

    def take(self, path: str, body: Any) -> None:
        """As SGLang 0.5.23: within an update, each rank reads a copy of its own; a failed one stays open."""
        if path == self.refuses:
            raise RuntimeError("Failed to update parameter online.")
        if self.updating == (path == "/begin_weight_update"):
            raise RuntimeError("a weight-update session is already open" if self.updating else "no session is open")
        match path:
            case "/begin_weight_update":
                assert self.paused
                self.updating, head = True, self.policy.model.lm_head
                head.weight = torch.nn.Parameter(head.weight.detach().clone())  # it has a head of its own
            case "/update_weights_from_tensor":
                if body["flush_cache"] and self.restless:
                    raise RuntimeError("the cache was not flushed")
                copies = body["serialized_named_tensors"]
                each = [Unpickler(io.BytesIO(base64.b64decode(copies[rank]))).load() for rank in range(self.ranks)]
                self.updates.append({"tensors": dict(each[-1]), "bytes": len(copies[-1]), "flush": body["flush_cache"]})
                state = self.policy.model.state_dict()
                for name, tensor in each[-1]:
                    if not (self.loses and self.loses in name):
                        state[name].copy_(tensor)
            case _:
                self.updating = False

    def reply(self, path: str, body: Any) -> tuple[int, Any]:
        self.paths.append(path)
        match path:
            case ("/init_weight_transfer_engine" | "/start_weight_update" | "/update_weights"
                  | "/finish_weight_update"):  # fmt: skip
                try:
                    self.update(path, body)
                except Exception as error:
                    return 500, {"error": {"message": str(error)}}
                return 200, {"message": "done"}
            case "/begin_weight_update" | "/update_weights_from_tensor" | "/end_weight_update" if self.transfers:
                try:
                    self.take(path, body)
                except Exception as error:
                    return 400, {"success": False, "message": str(error)}
                return 200, {"success": True, "message": "Success"}
            case "/flush_cache":
                self.restless -= self.restless > 0
                return (400, "at work") if self.restless else (200, "Cache flushed.")
            case "/server_info":
                return 200, {"tp_size": self.ranks, "dp_size": self.groups}
            case "/pause_generation" | "/continue_generation":
                self.paused = path == "/pause_generation"
                return 200, {"status": "ok"}
            case "/v1/models":
                return 200, {"data": [{"id": "policy"}, *({"id": name} for name in self.adapters)]}
            case "/weight_info" | "/model_info":
                return 200, {"weight_version": self.version}
            case "/update_weight_version":
                self.version = body["new_version"]
                return 200, {"success": True}
            case "/collective_rpc":
                self.load(body["kwargs"]["weights_path"])
                return 200, {"results": [None]}
            case "/update_weights_from_disk" if self.restless:
                return 400, {"success": False, "message": "the cache was not flushed"}
            case "/update_weights_from_disk":
                self.load(body["model_path"])
                self.version = body["weight_version"]
                return 200, {"success": True, "message": "ok"}
            case "/v1/load_lora_adapter" | "/load_lora_adapter" if self.lora:
                self.policy.tokenizer.save_pretrained(body["lora_path"])  # a real one takes that of its base
                self.adapters[body["lora_name"]] = loaded(body["lora_path"])
                return 200, "Success: it is there."
            case "/v1/unload_lora_adapter" | "/unload_lora_adapter":
                del self.adapters[body["lora_name"]]
                return 200, "Success: it is gone."
            case "/tokenize":
                ids = self.policy.tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]
                return 200, {"tokens": [each + 1 for each in ids] if self.foreign else ids}
            case "/pause" | "/resume" | "/abort_request":
                return 200, {"status": path[1:]}
            case "/v1/completions":
                return self.completion(body)
            case "/generate":
                return self.generate(body)
        return 404, {"detail": "Not Found"}

    def sampled(self, prompt: list[int], seed: int, tokens: int, temperature: float, ends: list[int], name: str) -> Any:
        with self.lock:
            self.answered += 1
            if self.old and self.answered == self.old:
                self.start()
                self.old = 0
            self.now += 1
            self.most = max(self.most, self.now)
        self.closed.wait(self.silent)
        policy = self.adapters.get(name, self.policy)
        ids, logprobs, _ = sample(
            policy.forward, [np.array(prompt, np.int32)], np.random.default_rng(seed).random((1, tokens)),
            ends=np.array(ends, np.int64), temperature=temperature, batch_size=1,
        )  # fmt: skip
        stop = np.isin(ids[0], ends)
        length = int(stop.argmax()) + 1 if stop.any() else tokens
        ids, logprobs = ids[:, :length], logprobs[:, :length]
        if self.raw:
            with torch.no_grad():
                logprobs = evaluate(
                    policy.forward, [np.array(prompt, np.int32)], [ids[0]], temperature=1.0
                ).logprobs.numpy()
        with self.lock:
            self.now -= 1
        return ids[0].tolist(), [float(each) for each in logprobs[0]]

    def completion(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.seen.append(body)
        if body["model"] not in ("policy", *self.adapters):
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        ids, logprobs = self.sampled(
            body["prompt"], body["seed"], body["max_tokens"], body["temperature"],
            [] if body["ignore_eos"] else body["stop_token_ids"], body["model"],
        )  # fmt: skip
        ids, logprobs, fault = self.befallen(ids, logprobs, whole=not (self.streams and body.get("stream")))
        choice = {"text": "", "logprobs": {"token_logprobs": logprobs}} | ({} if self.mute else {"token_ids": ids})
        choice |= {"finish_reason": "abort"} if fault == "abort" else {}
        return 200, {"model": body["model"], "choices": [choice]} | ({} if fault is None else {"fault": fault})

    def take_time(self) -> None:
        time.sleep(self.pace)
        self.paced += self.pace > 0

    def befallen(
        self, ids: list[int], logprobs: list[float], *, whole: bool = True
    ) -> tuple[list[int], list[float], str | None]:
        """What is said of an answer until its fault, if it has one."""
        with self.lock:
            fault, after = self.breaks.pop(0) if self.breaks else (None, len(ids))
            aborts = self.aborts
        for i in range(len(ids) if whole and self.pace else 0):
            self.take_time()
            if self.aborts > aborts:
                fault, after = "abort", i
                break
        with self.lock:
            self.tokens += min(after, len(ids))
        return ids[:after], logprobs[:after], fault

    def generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.seen.append(body)
        how = body["sampling_params"]
        ids, logprobs = self.sampled(
            body["input_ids"], how["sampling_seed"], how["max_new_tokens"], how["temperature"],
            [] if how["ignore_eos"] else how["stop_token_ids"], body.get("lora_path", ""),
        )  # fmt: skip
        ids, logprobs, fault = self.befallen(ids, logprobs, whole=not (self.streams and body.get("stream")))
        said = [[value, number, None] for value, number in zip(logprobs, ids, strict=True)]
        ended = ids[-1:] in ([each] for each in how["stop_token_ids"])
        finish = {"type": "stop", "matched": ids[-1]} if ended else {"type": "length", "length": len(ids)}
        told: dict[str, Any] = {
            "id": f"{self.answered}", "finish_reason": ABORTED if fault == "abort" else finish,
            "prompt_tokens": len(body["input_ids"]), "completion_tokens": len(ids), "weight_version": self.version,
            "output_token_logprobs": said,
        }  # fmt: skip
        answer: dict[str, Any] = {"text": "", "output_ids": ids, "meta_info": told}
        return 200, answer | ({} if fault is None else {"fault": fault})


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until it is so."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.002)


def tiny(folder: Path) -> Path:
    """A model whose head is tied to its embeddings, saved."""
    LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm").save(folder)
    return folder
