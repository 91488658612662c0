"""An auction of plans: all plan, all mark, one works."""

from __future__ import annotations

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra.teams.bids import marks_in, number_in
from palaestra.testing.env import check_env


class Word(TaskEnv):
    """Say yes."""

    def draw(self, seed: int) -> Task:
        """A number that does not matter."""
        return Task(f"{seed}", f"{seed}: say yes", lambda text: float(text == "yes"), "yes")


def say(request):
    _, *heard = request.observation.text.split(" | ")
    if request.agent.startswith("juror"):
        return "3 5 and 99 is no mark"
    if heard:
        return f"done by {request.agent}"
    return "a plan of five words" if request.agent == "bidder-1" else "short plan"


@pytest.mark.parametrize(("weight", "wins"), [(0.0, 2), (0.5, 2), (0.6, 1), (9.0, 1)])  # 6 - .5 w against 10 - 8 w
def test_the_best_plan_for_its_price_is_carried_out(weight, wins):
    env = workflows.strategy_auction(Word, [0.1, 4.0], weight)
    turns = rollout(env, Team(dict.fromkeys(env().agents, ScriptedPolicy(say))), groups=1).frame
    assert turns["agent"].cast(str).to_list() == ["bidder-1", "bidder-2", "juror-1", "juror-2", f"bidder-{wins}"]
    assert turns["answer"][-1] == f"done by bidder-{wins}"


@pytest.mark.parametrize(
    ("said", "marks"),
    [
        ("3, 5", [3, 5]),
        ("3/5 and 5/5", [3, 5]),
        ("bidder-1: 0, bidder-2: 5", [0, 5]),
        ("Bidder-2: 5", [0, 5]),
        ("bidder-2 beats bidder-1, so 3, 5", [3, 5]),
        ("\u22123 5 4", [-3, 5]),
        ("none", []),
    ],
)
def test_marks_are_read_behind_the_names_or_in_order(said, marks):
    assert marks_in(said, ["bidder-1", "bidder-2"]) == marks


def test_of_bids_the_first_number_counts():
    found = [number_in(text) for text in (".5", "I bid 1,000.", "-.5", "8/10", "nothing")]
    assert found == [0.5, 1000.0, -0.5, 8.0, float("-inf")]


def test_it_keeps_the_protocol_and_names_what_is_wrong():
    check_env(workflows.strategy_auction(Word))
    with pytest.raises(InputError, match="at least 0"):
        workflows.strategy_auction(Word, [-1.0, 2.0])
    env = workflows.graph(Word, ["a", "b"], rounds=2, route="awarded([1.0])", aggregate="last()")()
    env.reset(0)
    with pytest.raises(InputError, match="awarded: 1 prices for the bidders"):
        env.step({"a": "x", "b": "y"})
