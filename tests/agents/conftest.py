from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.agents.chat import KEY
from tests.chat_endpoint import ChatEndpoint

from palaestra.agents import Request
from palaestra.envs.protocol import Observation

TEXTS = ("bet or pass?", "Your card is 7. The pot is 12.\nWhat is 3 + 4 + 5?", "x", "a rather long story about " * 3)


@pytest.fixture
def requests() -> Callable[..., list[Request]]:
    """Requests with fresh generators: the same texts and seed always ask for the same draw."""

    def make(texts: Sequence[str] = TEXTS, seed: int = 0) -> list[Request]:
        return [Request(Observation(t), "player", np.random.default_rng([seed, i])) for i, t in enumerate(texts)]

    return make


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny model with a tokenizer, as servers load it."""
    import torch
    from tests.agents import fake_server

    torch.set_num_threads(1)
    return fake_server.tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatEndpoint]:
    """A chat endpoint, whose key is in the environment."""
    monkeypatch.setenv("TEST_KEY", KEY)
    made = ChatEndpoint()
    yield made
    made.close()
