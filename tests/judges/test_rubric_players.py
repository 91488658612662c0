"""Players of a rubric game that are policies: what they are asked, what can be read, and a recipe that names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy
from palaestra.errors import InputError, PolicyError
from palaestra.judges.rubric_game import RubricGame
from palaestra.judges.rubric_players import PolicyPlayers
from palaestra.learning.stages import STAGES
from palaestra.runs import build
from palaestra.runs.inline import learn
from palaestra.runs.recipe import validate

LABELLED = [("It is 42.", True), ("It is 41.", False)]
ADDED = "- No wrong sums.\n- No rudeness."


def player(request: Any) -> str:
    """Both sides of a game on sums: rudeness is planted, and only its rule finds it."""
    text = str(request.observation.text)
    answer = text.split("=\n")[1] if "=\n" in text else ""
    if "ANSWER:" in text:
        return f"ANSWER: It is 42,\nyou fool {request.rng.integers(10**6)}.\nFLAW: It is rude."
    if text.startswith("Rules:"):
        return "- Be subtle." if "avoid it" in text else ADDED if "wrong" in text or "rude" in text else "?"
    if "In truth" in text:
        return "Of course.\nADVICE: Add a rule against wrong sums."
    rude, wrong = "fool" in answer and "No rudeness" in text, "41" in answer and "No wrong sums" in text
    return "FLAW: rude\nVERDICT: no" if rude else "FLAW: wrong\nVERDICT: no" if wrong else "VERDICT: yes"


def test_rules_in_words_are_written_in_play() -> None:
    asked: list[str] = []

    def heard(request: Any) -> str:
        asked.append(str(request.observation.text))
        return player(request)

    players = PolicyPlayers("What is 6 times 7?")
    players.bind(ScriptedPolicy(heard), ScriptedPolicy(heard))
    game = RubricGame(players, LABELLED, queries=2)
    rules, history = game.run(2, np.random.default_rng(0))
    assert rules == ("No wrong sums.", "No rudeness.")
    assert game.hide == ("Be subtle.",)
    assert history["accuracy"].to_list() == [1.0, 1.0]
    assert history["missed"].to_list() == [1, 0]
    assert all("What is 6 times 7?" in each for each in asked if not each.startswith("Rules:"))
    assert len({each for each in asked if "VERDICT" in each}) == len([each for each in asked if "VERDICT" in each])
    assert sum("ANSWER:" in each for each in asked) == 4, "each planted answer is asked for anew"


@pytest.mark.parametrize(
    "said", ["", "ANSWER: It is 42.", "FLAW: It is rude.", "VERDICT: perhaps", "I think\nADVICE:", "rules: be good"]
)
def test_what_cannot_be_read_leaves_the_rules_as_they_are(said: str) -> None:
    players = PolicyPlayers()
    players.bind(ScriptedPolicy(lambda request: said), ScriptedPolicy(lambda request: said))
    game = RubricGame(players, LABELLED, ("Be right.",))
    rules, history = game.run(1, np.random.default_rng(0))
    assert rules == ("Be right.",)
    assert history["accuracy"].to_list() == [None]


def test_an_answer_cannot_close_its_fence_and_rules_may_end() -> None:
    players, rng = PolicyPlayers(), np.random.default_rng(0)
    with pytest.raises(PolicyError, match="call bind first"):
        players.judge((), "It is 42.", rng)
    policy = ScriptedPolicy(lambda request: "- none" if "Advice" in request.observation.text else "VERDICT: no")
    players.bind(policy, policy)
    assert players.judge((), "It is 42.", rng) == (False, None)
    assert players.rewrite(("Be right.",), "drop it", rng) == []


RECIPE: dict[str, Any] = {
    "name": "sums",
    "env": {"make": "native/answers"},
    "policies": {
        "player": {"kind": "tabular"},
        "critic": {"kind": "script", "options": {"script": f"{__name__}:critic"}},
        "forger": {"kind": "script", "options": {"script": f"{__name__}:critic"}},
    },
    "team": {"*": "player"},
    "train": {"iterations": 2, "groups": 2, "group_size": 2},
}


def critic() -> Any:
    """A script that plays both sides."""
    return player


@pytest.mark.parametrize("players", ["'critic'", "{'writer': 'forger', 'judge': 'critic'}"])
def test_players_are_named_in_a_recipe(players: str) -> None:
    stages = [f"rubric_game('action', label='success', players={players}, queries=1, checked=2, task='Say a number.')"]
    learned = learn(RECIPE | {"stages": stages, "reward": 'col("verdict")'}, trust=True)
    told = learned.lines[-1]["stages"]["rubric_game"]
    assert told["rules"] >= 1
    assert told["calls"] >= 1
    assert learned.stages is not None
    state = learned.stages.state_dict()
    learned.stages.load_state_dict(state)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rubric_game(players={'writter': 'critic', 'judge': 'critic'})", "did you mean 'writer'"),
        ("rubric_game(players={'judge': 'critic'})", "no writer; name a policy for each of writer, judge"),
        ("rubric_game(task='Sum.')", "for players that are policies"),
        ("rubric_game(players='critic', flaws=3)", "none with players of your own"),
    ],
)
def test_wrong_players_are_named(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        STAGES.build(text)


def test_a_policy_that_the_recipe_lacks_is_named() -> None:
    recipe = validate(RECIPE | {"stages": ["rubric_game('action', label='success', players='critik')"]}, trust=True)
    with pytest.raises(InputError, match="critik"):
        build.check(build.resolve(recipe))
