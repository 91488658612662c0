"""One agent that plays several people, and a chain that one agent plays as one conversation."""

from __future__ import annotations

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import one_conversation, personas
from palaestra.testing.env import check_env


class Sum(TaskEnv):
    """3 + 4."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", "3 + 4 =", lambda text: float(int(text) == 7), "7")


REPLY = """Participants: AI Assistant (you); Counter
AI Assistant (you): 8
Counter: one less
AI Assistant (you): 7
Finish collaboration!
Final answer: 7"""


def test_a_transcript_is_one_turn_whose_final_answer_counts() -> None:
    env = personas(Sum)
    turns = rollout(env, Team(solver=ScriptedPolicy(lambda request: REPLY, name="s")), groups=1, timeout=None).frame
    assert len(turns) == 1
    row = turns.row(0, named=True)
    assert (row["success"], row["revisions"], row["marked"]) == (True, 1, True)
    assert row["participants"] == ["AI Assistant (you)", "Counter"]


def test_the_prompt_asks_for_what_the_options_say() -> None:
    def prompt(*arguments: str, **options: bool) -> str:
        (seen,) = personas(Sum, *arguments, **options)().reset(0).values()  # type: ignore[arg-type]
        return str((seen.messages or [])[0]["content"])

    assert "participants that fit this task" in prompt()
    assert "; Expert" in prompt("expert")
    assert "criticise" in prompt()
    assert "criticise" not in prompt(revise=False)
    with pytest.raises(InputError, match="did you mean 'expert'"):
        personas(Sum, "experts")  # type: ignore[arg-type]
    check_env(personas(Sum), varied=False)


def test_a_chain_is_one_conversation_of_one_agent() -> None:
    env = one_conversation(Sum, {"reader": "read it", "writer": ""})()
    (seen,) = env.reset(0).values()
    assert seen.text == "3 + 4 = | reader: read it"
    (seen,) = env.step({"solver": "8"}).observations.values()
    assert seen.text == "3 + 4 = | 8 | writer"
    said = [str(message["content"]) for message in seen.messages or ()]
    assert "reader: read it" in said[1]
    assert "8" in said[2]
    result = env.step({"solver": "7"})
    assert result.info["success"] is True
    check_env(one_conversation(Sum, 2), varied=False)
