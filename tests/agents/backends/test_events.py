"""Server-sent events, cut anywhere."""

from __future__ import annotations

import json

import pytest

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.endpoint import UnusableAnswerError
from palaestra.agents.backends.events import Events


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_come_whole_wherever_they_are_cut(size: int) -> None:
    said = [{"text": "naïve\n漢字", "n": n} for n in range(5)]
    stream = b"".join(f"data: {json.dumps(each, ensure_ascii=False)}\r\n\r\n".encode() for each in said)
    stream = b": hello\n\nevent: token\n" + stream + b"data: [DONE]\n\n"
    events, found = Events(), []
    assert not events.any
    for start in range(0, len(stream), size):
        found += events.read(stream[start : start + size])
    assert found == said
    assert events.any


def test_what_is_no_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableAnswerError, match="an event of the stream is no JSON: b'<html>'"):
        Events().read(b"data: <html>\n")
    monkeypatch.setattr(endpoint, "LARGEST", 100)
    with pytest.raises(UnusableAnswerError, match="an event of the stream is longer than"):
        Events().read(b"data: " + b"1" * 200)
