"""The HTTP client of endpoints; what it does with answers is in tests/agents/test_chat.py."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from palaestra.agents.backends.endpoint import client_class


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ssl.SSLContext]]:
    """Every context that is made from here on; reading the certificates is what takes its time."""
    client_class()()  # importing what it needs makes some as well
    made: list[ssl.SSLContext] = []
    new = ssl.SSLContext.__new__

    def counted(cls: type[ssl.SSLContext], *given: Any, **options: Any) -> ssl.SSLContext:
        made.append(new(cls, *given, **options))
        return made[-1]

    monkeypatch.setattr(ssl.SSLContext, "__new__", counted)
    client_class.cache_clear()
    yield made
    client_class.cache_clear()


def test_certificates_are_read_once_and_servers_have_to_have_one(contexts: list[ssl.SSLContext]) -> None:
    for _ in range(3):
        asyncio.run(client_class()().aclose())
    (context,) = contexts
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_whoever_brings_certificates_is_heard(contexts: list[ssl.SSLContext]) -> None:
    own = ssl.create_default_context()
    asyncio.run(client_class()(verify=own).aclose())
    assert len(contexts) == 2, "the shared ones and these, and none for the client"
