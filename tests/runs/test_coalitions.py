"""Shapley values of a trained team: exact, and they add up to what training gained."""

from __future__ import annotations

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import RecipeError
from palaestra.evaluation import trials
from palaestra.play.executors import Local, Plan
from palaestra.runs import coalitions
from palaestra.runs.config import EvaluationPart
from palaestra.runs.scripts import make as make_script
from palaestra.teams import WORKFLOWS


class Copied(ScriptedPolicy):
    """A script that can be copied, as policies that learn can: before and after training have one name."""

    def frozen_copy(self) -> Copied:
        """Another with the same name."""
        return Copied(self.function, name=self.name)


def readers(accuracy: dict[str, float]) -> Team:
    """Readers of pages with the accuracy of each."""
    return Team({
        agent: Copied(make_script("cups", {"accuracy": share}), name=agent) for agent, share in accuracy.items()
    })  # fmt: skip


def chain() -> EnvFactory:
    return WORKFLOWS.find("chain")(make("native/cups", pages=3), 3, reads="part")


def test_whoever_learned_is_paid_and_all_are_paid_what_training_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Team, "learnable", property(lambda team: team.policies))
    links = ("link-1", "link-2", "link-3")
    before = readers({"link-1": 0.3, "link-2": 0.3, "link-3": 1.0})
    after = readers(dict.fromkeys(links, 1.0))
    worth = coalitions.worth(24, chain(), before, after, seed=0)
    assert worth["link-3"] == pytest.approx(0), "it was perfect before"
    assert min(worth["link-1"], worth["link-2"]) > 0.1
    assert sum(worth.values()) == pytest.approx(1 - value(before))


def value(team: Team) -> float:
    """What it achieves on the same tasks."""
    played = trials(Local().play(chain(), team, Plan(24, seed=0, stream="eval")))
    return float(played["success"].cast(float).mean())  # type: ignore[arg-type]


def test_too_many_members_are_refused() -> None:
    with pytest.raises(RecipeError, match="13 members have 8,192 coalitions; at most 12"):
        coalitions.check(EvaluationPart(coalitions=24), tuple("abcdefghijklm"))
    coalitions.check(EvaluationPart(), tuple("abcdefghijklm"))
