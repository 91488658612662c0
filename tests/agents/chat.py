"""A `ChatPolicy` of an endpoint on this machine, with a key."""

from __future__ import annotations

import numpy as np
from tests.chat_endpoint import ChatEndpoint

from palaestra.agents import ChatPolicy, Request
from palaestra.envs.protocol import Observation

KEY = "sk-very-secret-0123456789"


def policy(endpoint: ChatEndpoint, **options: object) -> ChatPolicy:
    settings = {"base_url": endpoint.url, "api_key_env": "TEST_KEY", "wait": 0.001, "longest_wait": 0.01, "retries": 2}
    return ChatPolicy("m", **settings | options)  # type: ignore[arg-type]


def ask(chat: ChatPolicy, *texts: str) -> list:
    return chat.act(
        [Request(Observation(t), "player", np.random.default_rng(i)) for i, t in enumerate(texts or ("hi",))]
    )
