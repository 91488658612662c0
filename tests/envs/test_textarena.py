from __future__ import annotations

import random
from typing import Any

import pytest
from tests.installed import needs

from palaestra.envs.textarena import best_trade, textarena
from palaestra.errors import EnvError, InputError, MissingExtraError
from palaestra.testing.env import check_env

needs("textarena")


def transcript(name: str, moves: list[str], **options: Any) -> tuple[str, list[tuple[str, str, str, bool]], Any]:
    """The task, (agent, text, move, valid) of every turn, and the last result."""
    env = textarena(name, **options)()
    observations, turns = env.reset(7), []
    for move in moves:
        ((agent, seen),) = observations.items()
        result = env.step({agent: move})
        turns.append((agent, seen.text, move, result.info["valid"][agent]))
        observations = result.observations
    return env.task, turns, result


@pytest.mark.parametrize("observation", ["full", "last", "short"])
@pytest.mark.parametrize(
    ("game", "varied"), [("Nim-v0", False), ("TicTacToe-v0", False), ("ConnectFour-v0", False), ("KuhnPoker-v0", True)]
)
def test_games_with_choices_keep_the_protocol(game, varied, observation):
    check_env(textarena(game, observation=observation), varied=varied)


def test_a_short_negotiation_offers_fair_trades_and_keeps_the_protocol():
    check_env(textarena("SimpleNegotiation-v0", observation="short", max_turns=4), varied=True)
    env = textarena("SimpleNegotiation-v0", observation="short", max_turns=4)()
    first = env.reset(3)["player_0"]
    assert first.text == "Wheat 5, Wood 11, Sheep 14, Brick 28, Ore 35 | no offer | 4 left"
    assert "[Accept]" not in first.legal
    second = env.step({"player_0": "[Offer: 1 Ore -> 4 Wood]"}).observations["player_1"]
    assert second.text.endswith("| get 1 Ore give 4 Wood | 3 left")
    assert second.text.startswith("Wheat 5, Wood 11, Sheep 16, Brick 28, Ore 39")  # an ore for 39, four of wood for 44
    assert best_trade(second.text, second.legal).startswith("[Offer")
    assert "made the following offer" in second.conversation()[-1]["content"]


def test_a_chat_model_is_told_where_the_negotiation_stands_and_who_wins():
    env = textarena("SimpleNegotiation-v0", observation="short", max_turns=2)()
    first = env.reset(2)["player_0"]
    second = env.step({"player_0": "[Offer: 3 Ore -> 8 Sheep]"}).observations["player_1"]
    third = env.step({"player_1": "[Accept]"}).observations["player_0"]
    said = [str(each.conversation()[-1]["content"]) for each in (first, second, third)]  # read once all were made
    assert "move 1 of 3" in said[0]
    assert "no offer that you could accept" in said[0]
    assert "that is as much as at the start" in said[0]
    assert "move 2 of 3" in said[1]
    assert "Player 0 offers you 3 Ore and asks for 8 Sheep." in said[1]
    assert "You now hold 6 Wheat, 7 Wood, 15 Sheep, 16 Brick, 7 Ore. By your values that is 22 more" in said[2]
    assert "This is the last move" in said[2]
    assert "last move" not in said[1]
    assert all("gain more value by the end wins" in each for each in said)
    assert env.step({"player_0": "[Deny]"}).terminated


def roll_or_hold(seen, rng):
    return ("[roll]", "[hold]")[rng.integers(2)]


@pytest.mark.parametrize(
    ("game", "players", "play", "varied"),
    [
        ("PigDice-v0", 2, roll_or_hold, True),
        ("LiarsDice-v0", 3, None, True),
        ("IteratedPrisonersDilemma-v0", 2, None, False),
        ("SimpleNegotiation-v0", 2, None, True),
        ("GuessTheNumber-v0", 1, None, False),
    ],
)
def test_games_of_free_text_keep_the_protocol(game, players, play, varied):
    check_env(textarena(game, players=players), varied=varied, seeds=(0, 2**64 - 2), play=play)


def test_golden_nim():
    task, turns, last = transcript(
        "Nim-v0", ["[2 2]", "[1 1]", "[0 9]", "[0 3]", "[1 3]", "[2 3]"], observation="short"
    )
    assert task == "Nim-v0:3-4-5"
    assert turns == [
        ("player_0", "3 4 5", "[2 2]", True),
        ("player_1", "3 4 3", "[1 1]", True),
        ("player_0", "3 3 3", "[0 9]", False),
        ("player_0", "3 3 3", "[0 3]", True),
        ("player_1", "0 3 3", "[1 3]", True),
        ("player_0", "0 0 3", "[2 3]", True),
    ]
    assert last.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert last.info["success"] == {"player_0": True, "player_1": False}
    assert last.info["reason"] == "Player 0 took the last object(s)!"


def test_golden_tic_tac_toe_is_shown_from_the_readers_side():
    task, turns, last = transcript(
        "TicTacToe-v0", ["[4]", "[0]", "[4]", "[8]", "[2]", "[6]", "[3]"], observation="short"
    )
    assert task == "TicTacToe-v0"
    assert turns == [
        ("player_0", ".../.../...", "[4]", True),
        ("player_1", ".../.o./...", "[0]", True),
        ("player_0", "o../.x./...", "[4]", False),
        ("player_0", "o../.x./...", "[8]", True),
        ("player_1", "x../.o./..o", "[2]", True),
        ("player_0", "o.o/.x./..x", "[6]", True),
        ("player_1", "x.x/.o./o.o", "[3]", True),
    ]
    assert last.observations["player_0"].legal == ("[1]", "[5]", "[7]")
    assert not last.rewards


def test_golden_connect_four():
    task, turns, last = transcript("ConnectFour-v0", ["[col 3]", "[col 2]"] * 3 + ["[col 3]"], observation="short")
    assert task == "ConnectFour-v0"
    assert [text for _, text, _, _ in turns] == [
        "......./......./......./......./......./.......",
        "......./......./......./......./......./...o...",
        "......./......./......./......./......./..ox...",
        "......./......./......./......./...o.../..xo...",
        "......./......./......./......./..ox.../..ox...",
        "......./......./......./...o.../..xo.../..xo...",
        "......./......./......./..ox.../..ox.../..ox...",
    ]
    assert last.rewards == {"player_0": 1.0, "player_1": -1.0}


def test_golden_kuhn_poker():
    moves = ["[check]", "[bet]", "[fold]", "[call]", "[bet]", "[call]", "[check]", "[check]"]
    task, turns, last = transcript("KuhnPoker-v0", moves, observation="short")
    assert task == "KuhnPoker-v0:KJ"
    assert turns == [
        ("player_1", "J check|bet 1/3 -1", "[check]", True),
        ("player_0", "K check|bet 1/3 -1", "[bet]", True),
        ("player_1", "J fold|call 1/3 -1", "[fold]", True),
        ("player_0", "J check|bet 2/3 0", "[call]", False),
        ("player_0", "J check|bet 2/3 0", "[bet]", True),
        ("player_1", "K fold|call 2/3 -2", "[call]", True),
        ("player_1", "K check|bet 3/3 -1", "[check]", True),
        ("player_0", "Q check|bet 3/3 -1", "[check]", True),
    ]
    assert last.rewards == {"player_0": -1.0, "player_1": 1.0}


RULES = (
    "Welcome to Nim, Player 0!\nRules:\n- On your turn, remove at least one object from exactly one pile.\n"
    "- Remove objects with the format '[pile quantity]', e.g. '[0 3]'.\n- Whoever takes the last object(s) wins!\n"
)


def test_full_text_grows_and_last_text_is_news_only():
    _, turns, last = transcript("Nim-v0", ["[1 1]", "[1 1]"], piles=[1, 2])
    first, third = turns[0][1], last.observations["player_0"].text
    assert first == RULES + "Current Pile:\n  pile 0: 1\n  pile 1: 2"
    assert third == first + (
        "\nPlayer 0: [1 1]\nPlayer 0 removes 1 from pile 1.\nCurrent Pile:\n  pile 0: 1\n  pile 1: 1"
        "\nPlayer 1: [1 1]\nPlayer 1 removes 1 from pile 1.\nCurrent Pile:\n  pile 0: 1\n  pile 1: 0"
    )
    _, turns, _ = transcript("Nim-v0", ["[1 1]", "[1 1]"], piles=[1, 2], observation="last")
    assert turns[0][1] == "Current Pile:\n  pile 0: 1\n  pile 1: 2"
    assert turns[1][1] == "Player 0: [1 1]\nPlayer 0 removes 1 from pile 1.\nCurrent Pile:\n  pile 0: 1\n  pile 1: 1"


def test_a_function_may_write_the_text():
    env = textarena("Nim-v0", observation=lambda game, player: f"{player} {sum(game.state.game_state['piles'])}")()
    assert env.reset(0)["player_0"].text == "0 12"


def test_retries_are_the_games_own_or_as_told():
    _, turns, last = transcript("Nim-v0", ["[9 9]", "nonsense"])
    assert [valid for *_, valid in turns] == [False, False]
    assert last.rewards == {"player_0": -1.0, "player_1": 1.0}
    _, _, last = transcript("Nim-v0", ["[9 9]"], retries=0)
    assert last.terminated
    assert last.rewards == {"player_0": -1.0, "player_1": 1.0}
    _, _, last = transcript("Nim-v0", ["[9 9]"] * 4, retries=4)
    assert not last.terminated


def test_a_number_names_a_choice_and_text_around_a_move_does_no_harm():
    _, turns, last = transcript("Nim-v0", [0, "I take [1 4], good luck"], observation="short")  # type: ignore[list-item]
    assert [valid for *_, valid in turns] == [True, True]
    assert last.observations["player_0"].text == "2 0 5"
    _, turns, _ = transcript("IteratedPrisonersDilemma-v0", [3])  # type: ignore[list-item]
    assert turns[0][3] is False, "there are no choices to name"


def test_a_second_reset_does_not_remember_the_first():
    """TextArena's Kuhn poker shuffles a deck that it keeps from game to game."""
    env = textarena("KuhnPoker-v0")()
    tasks = [env.reset(seed) and env.task for seed in (3, 8, 3, 5, 3)]
    assert tasks[0] == tasks[2] == tasks[4]
    assert len({env.reset(seed) and env.task for seed in range(40)}) == 6


def test_dice_depend_on_the_seed_and_not_on_the_world():
    def rolls(seed: int) -> str:
        env = textarena("PigDice-v0", observation="last")()
        observations = env.reset(seed)
        for _ in range(6):
            ((agent, seen),) = observations.items()
            random.seed(seed + random.randrange(1000))
            observations = env.step({agent: "[roll]"}).observations
        return seen.text

    assert rolls(1) == rolls(1)
    assert len({rolls(seed) for seed in range(5)}) > 1


def test_the_order_of_turns_is_enforced():
    env = textarena("Nim-v0")()
    env.reset(0)
    with pytest.raises(EnvError, match="player_0"):
        env.step({"player_1": "[0 1]"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Nimm-v0", {}, "did you mean 'Nim-v0'"),
        ("Nim-v0", {"pils": [1]}, "pils"),
        ("Nim-v0", {"players": 3}, "players=3"),
        ("PigDice-v0", {"observation": "short"}, "short.*Nim"),
        ("Nim-v0", {"observation": "fulll"}, "'full'"),
        ("ConnectFour-v0-blind", {"observation": "short"}, "ConnectFour-v0-blind"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(name, options, message):
    with pytest.raises(InputError, match=message):
        textarena(name, **options)


@pytest.mark.parametrize("name", ["Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0"])
def test_games_that_give_progress_before_the_reason_are_understood(name):
    """They call TextArena's `set_invalid_move(reason, reward)` the other way round."""
    env = textarena(name, players=1, retries=1)()
    env.reset(0)
    result = env.step({"player_0": "[0]"})
    assert "Reason: " in result.observations["player_0"].text
    assert "Reason: 0" not in result.observations["player_0"].text
    assert result.info["valid"] == {"player_0": False}
    result = env.step({"player_0": "[0]"})
    assert result.terminated
    assert 0 <= result.rewards["player_0"] < 1
    assert result.info["reason"].startswith("Invalid Move: ")


@pytest.mark.parametrize("name", ["Wordle-v0", "Hangman-v0", "WordLadder-v0"])
def test_the_download_that_is_missing_is_named_in_one_line(name, monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk, "download", lambda *_, **__: False)
    with pytest.raises(MissingExtraError, match=r"needs data that NLTK downloads: python -m nltk.downloader words$"):
        textarena(name, players=1)


REASONED = '{"reasoning": "[0] is a corner, but the centre is better.", "action": "[4]"}'


@pytest.mark.parametrize("said", [REASONED, "<think>[0] or [4]?</think>\n[4]", "Not [0].\nAction: [4]"])
def test_a_move_is_the_action_of_a_reply_and_the_other_reads_nothing_else(said):
    env = textarena("TicTacToe-v0")()
    env.reset(7)
    seen = env.step({"player_0": said}).observations["player_1"]
    assert seen.legal == tuple(f"[{cell}]" for cell in range(9) if cell != 4)
    assert "Player 0: [4]\n" in seen.text
    assert "[0] " not in seen.text


@pytest.mark.parametrize("said", ['{"reasoning": "No.", "action": "[Deny]"}', "I refuse.\nAction: [Deny]"])
def test_a_short_negotiation_takes_the_replies_that_it_asks_for(said):
    env = textarena("SimpleNegotiation-v0", observation="short", max_turns=2)()
    env.reset(2)
    assert env.step({"player_0": said}).info["valid"] == {"player_0": True}


def test_free_speech_is_heard_without_its_thinking():
    env = textarena("SimpleNegotiation-v0", max_turns=2)()
    env.reset(2)
    seen = env.step({"player_0": "<think>Ore is worth 50 to me.</think>\nNo deal yet. [Deny]"}).observations["player_1"]
    assert "Player 0: No deal yet. [Deny]" in seen.text
    assert "50 to me" not in seen.text
