from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.agents.backends.web import Web


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.http.shutdown()
    made.http.server_close()
