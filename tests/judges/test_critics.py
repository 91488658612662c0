"""A critic that is a policy of a recipe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.judges.asking import Reply
from palaestra.judges.metering import Meter
from palaestra.judges.planning import SEARCHES


def test_a_critic_may_be_a_policy_of_the_recipe() -> None:
    """It is shown question, thinking and answer as data; what stands behind its mark is thought from then on."""
    asked: list[str] = []

    class Model:
        name = "critic"

        def ask(self, prompts: Any) -> list[Reply]:
            asked.extend(text for text, _ in prompts)
            return [Reply(None if len(asked) == 2 else "too short\nTHINKING: 7\n")]

    def answers(request: Any) -> str:
        return f"{request.observation.text.partition(chr(10))[2] or '0'}</think>said"

    search = SEARCHES.build("refined('critic', rounds=3)")
    assert search.asks == ("critic",)
    policy = search.around(ScriptedPolicy(answers, name="thinker"), Meter())
    request = Request(Observation("how many?"), "thinker", np.random.default_rng(0))
    with pytest.raises(InputError, match="'critic' is a policy of a recipe"):
        policy.act([request])
    search.bind(lambda name: Model())
    assert policy.act([request])[0].action == "7</think>said"  # the second reply could not be had
    assert all(each in asked[0] for each in ("how many?", "\n0\n", "0</think>said"))


def test_a_chat_model_is_sent_the_thinking() -> None:
    """Models that read messages do not read the observation's text."""
    talk = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "how many?"})
    sent: list[Any] = []

    def answers(request: Any) -> str:
        sent.append(request.observation.conversation())
        return "0</think>said"

    policy = SEARCHES.build(f"refined('{__name__}:better', rounds=2)").around(
        ScriptedPolicy(answers, name="x"), Meter()
    )
    policy.act([Request(Observation("how many?", messages=talk), "x", np.random.default_rng(0))])
    assert sent == [talk, (talk[0], {"role": "user", "content": "how many?\nbetter"})]


def better(question: str, thought: str, said: str) -> str:
    return "better"
