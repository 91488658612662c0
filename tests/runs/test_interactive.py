"""An episode that is told, and one in which a person has a seat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from signalling import Signalling, mumbler

from palaestra.agents import ScriptedPolicy, Team, fixed
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import EnvError, InputError, PolicyError
from palaestra.runs.interactive import episode

TEAM = Team(
    guide=ScriptedPolicy(mumbler(1.0), name="guide"),
    seeker=ScriptedPolicy(mumbler(1.0), name="seeker"),
)


def told(team: Team = TEAM, factory=Signalling, human: str | None = None, typed: tuple[str, ...] = (), **options):
    lines: list[str] = []
    answers: Iterator[str] = iter(typed)

    def ask(prompt: str) -> str | None:
        lines.append(prompt)
        return next(answers, None)

    return episode(factory, team, say=lines.append, human=human, ask=ask, **options), "\n".join(lines)


def test_who_sees_does_and_receives_what() -> None:
    received, text = told(seed=3)
    assert received == {"guide": 1.0, "seeker": 1.0}
    first, second = text.split("[turn 1]")
    assert "[turn 0] guide sees:\nsee " in first
    assert "guide does: " in first
    assert "seeker sees:\nhear " in second
    assert "guide receives 1\nseeker receives 1" in second
    assert second.endswith("over after 2 turns, success: True; guide: 1, seeker: 1")
    assert told(seed=3) == (received, text)


def test_a_person_sees_one_seat_and_is_asked_again() -> None:
    _, text = told(human="seeker", typed=("purple", "", " Blue "))
    assert "guide" not in text.split("over after")[0]
    assert "legal: 0 red, 1 green, 2 blue" in text
    assert "'purple' is not legal" in text
    assert text.count("seeker> ") == 3
    by_name, by_number = (told(human="seeker", typed=(typed,))[0] for typed in ("blue", "2"))
    assert by_name == by_number
    with pytest.raises(InputError, match="the input ended before the episode did; seeker had to act"):
        told(human="seeker", typed=("purple",))
    with pytest.raises(InputError, match=r"no such agent; did you mean 'seeker'"):
        told(human="seker")


class Letters:
    """Free text; another agent fails."""

    agents = ("writer", "reader")
    task = "letters"

    def reset(self, seed: int) -> dict[str, Observation]:
        return {"writer": Observation("write")}

    def step(self, actions: dict) -> StepResult:
        if actions["writer"] == "bomb":
            raise KeyError("bomb")
        return StepResult({}, {"writer": len(actions["writer"]), "reader": None}, terminated=True)


class Silence(Letters):
    """Names nobody's reward, or none that it knows."""

    def step(self, actions: dict) -> StepResult:
        return StepResult({}, dict.fromkeys(self.agents) if actions["writer"] == "ask" else {}, terminated=True)


def test_who_is_not_named_received_nothing_and_a_missing_score_is_not_said() -> None:
    for wrote, received, end in (("hm", {"writer": 0.0, "reader": 0.0}, "; writer: 0, reader: 0"), ("ask", {}, "")):
        found, text = told(Team(writer=fixed(wrote), reader=fixed("x", name="reader")), Silence)
        assert found == received
        assert text.endswith(f"over after 1 turns{end}")


def test_free_text_and_what_breaks() -> None:
    team = Team(writer=fixed("bomb"), reader=fixed("x", name="reader"))
    assert told(team, Letters, human="writer", typed=("", "dear"))[0] == {"writer": 4.0}
    with pytest.raises(EnvError, match="env: KeyError: 'bomb'"):
        told(team, Letters)

    def sulk(request):
        raise ValueError("no")

    with pytest.raises(PolicyError, match=r"writer \(sulky\): ValueError: no"):
        told(Team(writer=ScriptedPolicy(sulk, name="sulky")), Letters)
