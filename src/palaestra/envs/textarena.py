"""TextArena games, with every seat left to the team (no built-in opponents).

TextArena seeds and draws from Python's global generator, keeps state from one reset to the next in some games and
lets a player retry a bad move. Here every call that may draw runs on a seed of its own with the global state put back,
every episode starts from a fresh copy of the game, and a move that the game's own rules reject is `valid=False`.
For four games (Nim, TicTacToe, ConnectFour, KuhnPoker) the legal moves are offered as choices and a short text exists;
in all others the action is free text. SimpleNegotiation is in between: `observation="short"`
offers as choices the trades of one kind against another that are fair by the game's base values, and chat models still
read all of the game's text; otherwise its players talk freely. Left out: TextArena's wrappers, renderers, online play.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestra.envs.conversations import TEMPLATES, Conversation, choosing
from palaestra.envs.discrete import NUMPY_RANDOM, isolated, source_mentions
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.replies import read_reply, without_thinking
from palaestra.errors import EnvError, InputError, MissingExtraError, missing_extra, nearest

Text = Literal["full", "last", "short"] | Callable[[Any, int], str]
"""What a player reads. "full": all it was ever told. "last": what is new since its last turn, without the rules and
with the last board only. "short": the position in a few characters. Or a function of (TextArena game, player)."""


class TextArenaEnv:
    """Env of one TextArena game; agents are `player_0`, `player_1` …; actions are texts.

    game: the TextArena object, unwrapped. task: the id and the start of the game (for games without a view here, the
    id and the seed: what they hide at the start cannot be seen from outside).
    """

    def __init__(
        self, name: str, *, players: int = 2, observation: Text = "full", retries: int | None = None, **options: Any
    ) -> None:
        """Build the game.

        Args:
            name: TextArena's id, `"Nim-v0"`.
            players: how many; each game allows its own numbers.
            observation: see `Text`.
            retries: bad moves in a row that a player may repeat before it loses; None keeps the game's own (mostly 1).
            options: parameters of the game, `piles=[1, 2, 3]`.
        """
        self.name = name
        self.agents = tuple(f"player_{player}" for player in range(players))
        self.task = ""
        self._original = _make(name, options)
        self.game = self._original
        blind = not getattr(self.game, "is_open", True)  # ConnectFour can hide its board: a view would show it
        view = None if blind else _VIEWS.get(type(self.game).__name__)
        self._view = None if view is not None and view.only_short and observation != "short" else view
        if observation == "short" and self._view is None:
            games = ", ".join(sorted(game.removesuffix("Env") for game in _VIEWS))
            raise InputError(
                f"observation='short' exists for {games}, not for {name!r}; give a function of (game, player)"
            )
        if isinstance(observation, str) and observation not in ("full", "last", "short"):
            raise InputError(f"observation={observation!r}{nearest(observation, ['full', 'last', 'short'])}")
        self._observation = observation
        self._retries = retries
        package = type(self.game).__module__.removesuffix(".env")
        self._numpy = source_mentions(package, NUMPY_RANDOM)
        self._random = self._numpy or source_mentions(package, r"\brandom\b|textarena\.envs\.utils")
        self._turn: dict[str, Observation] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start a fresh copy of the game on `seed`."""
        self.game = copy.deepcopy(self._original)
        self._seed, self._calls = seed, 0
        try:
            with isolated(seed, numpy=self._numpy):
                self.game.reset(num_players=len(self.agents), seed=seed)
        except AssertionError as error:
            found = f"TextArena's {self.name!r} cannot start with players={len(self.agents)}"
            raise InputError(f"{found}: {error}") from error
        state = self.game.state
        if self._retries is not None:
            state.error_allowance = self._retries
        self._watch(state)
        self._heard: list[list[str]] = [[] for _ in self.agents]
        self._choices = None if self._view is None else self._view.actions(self.game)
        self.task = f"{self.name}:{seed if self._view is None else self._view.start(self.game)}".removesuffix(":")
        return self._observe()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Play the move of whoever was to act."""
        if actions.keys() != self._turn.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._turn)}")
        ((agent, action),) = actions.items()
        text, self._invalid = self._say(action, self._turn[agent])
        self._calls += 1
        guard = isolated(self._seed * 1_000_003 + self._calls, numpy=self._numpy) if self._random else nullcontext()
        with guard:
            done, _ = self.game.step(action=text)
            observations = {} if done else self._observe()
        info: dict[str, Any] = {"valid": {agent: not self._invalid}}
        if not done:
            return StepResult(observations, info=info)
        self._turn = {}
        given = self.game.state.rewards
        rewards = {
            name: None if given is None else float(given.get(player, 0.0)) for player, name in enumerate(self.agents)
        }
        alone = len(self.agents) == 1  # then success is the full reward; among others it is more than a draw
        info["success"] = {
            name: reward is not None and (reward >= 1.0 if alone else reward > 0.0) for name, reward in rewards.items()
        }
        if reason := self.game.state.game_info.get(0, {}).get("reason"):
            info["reason"] = reason
        return StepResult({}, rewards, terminated=True, info=info)

    def _say(self, action: Action, seen: Observation) -> tuple[str, bool]:
        """What the game and the other players are told of an action, and whether it is already known to be illegal."""
        place = seen.index(action) if isinstance(action, str) else action
        if self._choices is not None and place is not None and 0 <= place < len(self._choices):
            return self._choices[place], False
        if not isinstance(action, str) or (self._view is not None and self._view.only_short):
            return "", True  # the game takes any text for a move; here only what was offered is one
        return (without_thinking(action) if self._choices is None else read_reply(action, "action").text), False

    def _watch(self, state: Any) -> None:
        """Notice when the game rejects a move: it always says so to its state."""
        reject = state.set_invalid_move

        def set_invalid_move(*args: Any, **kwargs: Any) -> Any:
            self._invalid = True
            if len(args) == 2 and isinstance(args[1], str) and not isinstance(args[0], str):
                args = args[::-1]  # Countdown, Cryptarithm and Slitherlink give what was reached before the reason
            return reject(*args, **kwargs)

        state.set_invalid_move = set_invalid_move

    def _observe(self) -> dict[str, Observation]:
        player, messages = self.game.get_observation()
        if self._observation == "last":
            self._heard[player] = _lines(_news(messages))
        elif self._observation == "full":
            self._heard[player] += _lines(messages)
        if callable(self._observation):
            text = self._observation(self.game, player)
        elif self._observation == "short":
            assert self._view is not None
            text = self._view.text(self.game, player)
            if self._view.told is not None:
                self._heard[player] += _lines(messages)
        else:
            text = "\n".join(self._heard[player])
        mask = None
        if self._view is not None and self._choices is not None:
            allowed = set(self._view.legal(self.game, player))
            mask = np.array([name in allowed for name in self._choices])
        seen = Observation(text=text, choices=self._choices, mask=mask)
        if self._view is not None and self._view.told is not None:
            heard, standing, legal = "\n".join(self._heard[player]), self._view.told(self.game, player), seen.legal
            talk = Conversation(lambda reader: choosing(f"{heard}\n\n{standing()}", legal, reader))
            seen = dataclasses.replace(seen, messages=talk)
        self._turn = {self.agents[player]: seen}
        return dict(self._turn)


def _lines(messages: Sequence[tuple[int, str, Any]]) -> list[str]:
    """Messages as text; those of players begin with their name (the game's own come from -1, or from no number)."""
    return [
        f"Player {sender}: {str(message).strip()}" if isinstance(sender, int) and sender >= 0 else str(message).strip()
        for sender, message, _ in messages  # some games pass numbers where the others say something
    ]


def _news(messages: Sequence[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    """Without the rules, and with the last board only."""
    last = max((i for i, (_, _, kind) in enumerate(messages) if kind.name == "GAME_BOARD"), default=-1)
    return [
        message
        for i, message in enumerate(messages)
        if message[2].name != "PROMPT" and (message[2].name != "GAME_BOARD" or i == last)
    ]


def _make(name: str, options: Mapping[str, Any]) -> Any:
    textarena = _textarena()
    known = textarena.envs.registration.ENV_REGISTRY
    if name not in known:
        raise InputError(f"TextArena has no game {name!r}{nearest(name, known)}")
    try:
        with isolated(0):
            game = textarena.make(name, **options)
    except Exception as error:  # missing word lists, wrong options: whatever the game's constructor raises
        if lists := dict.fromkeys(re.findall(r"nltk\.download\('([\w.-]+)'\)", str(error))):
            raise MissingExtraError(
                f"TextArena's {name!r} needs data that NLTK downloads: python -m nltk.downloader {' '.join(lists)}"
            ) from error
        first = str(error).strip().split("\n")[0]
        raise InputError(
            f"TextArena cannot make {name!r} with {dict(options)}: {type(error).__name__}: {first}"
        ) from error
    while isinstance(game, textarena.Wrapper):
        game = game.env
    return game


def _textarena() -> Any:
    try:
        with isolated(0):  # importing it draws from the global generator
            import textarena
    except ImportError:
        raise missing_extra("TextArena", "textarena") from None
    return textarena


def textarena(
    name: str, *, players: int = 2, observation: Text = "full", retries: int | None = None, **options: Any
) -> EnvFactory:
    """Env factory of a TextArena game by id; id, options and number of players are checked at once.

    >>> env = textarena("Nim-v0", observation="short", piles=[1, 2])()
    >>> seen = env.reset(seed=0)["player_0"]
    >>> seen.text, seen.legal
    ('1 2', ('[0 1]', '[1 1]', '[1 2]'))
    """
    factory = functools.partial(
        TextArenaEnv, name, players=players, observation=observation, retries=retries, **options
    )
    factory().reset(0)
    return factory


@dataclass(frozen=True)
class View:
    """Data of a short view of one TextArena game: functions that give its text, all actions and the legal ones.

    only_short: the choices are some of what may be said, so they are offered beside the short text alone. told: with
    it, chat models read all that the game told them beside the short text, and behind it what this function returns;
    that is written when they read it.
    """

    text: Callable[[Any, int], str]
    actions: Callable[[Any], tuple[str, ...]]
    legal: Callable[[Any, int], list[str]]
    start: Callable[[Any], str]
    only_short: bool = False
    told: Callable[[Any, int], Callable[[], str]] | None = None


def _nim_moves(piles: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"[{pile} {count}]" for pile, size in enumerate(piles) for count in range(1, size + 1))


def _nim_piles(game: Any) -> str:
    return " ".join(map(str, game.state.game_state["piles"]))


def _own_marks(rows: Sequence[Sequence[str]], mine: str) -> str:
    """`x.o/.../...`: x is the reader, o the other player, whatever the game calls them."""
    return "/".join("".join("." if mark in ("", ".") else "x" if mark == mine else "o" for mark in row) for row in rows)


def _board(game: Any) -> list[list[str]]:
    board: list[list[str]] = game.state.game_state["board"]
    return board


def _kuhn_text(game: Any, player: int) -> str:
    """`Q check|bet 1/3 -1`: own card, what may be done, round, own chips."""
    state = game.state.game_state
    moves = "|".join(state["current_legal_action_tree"])
    chips = state["player_chips"][player]
    return f"{'JQK'[state['player_cards'][player]]} {moves} {state['current_round']}/{game.max_rounds} {chips}"


def _fair_offers(game: Any) -> list[tuple[str, int, str, int]]:
    """(given, how many, asked for, how many) of every pair of kinds, equal by the base values of the game."""
    values = game.base_values
    pairs = [(a, b, math.gcd(values[a], values[b])) for a in values for b in values if a != b]
    return [(a, values[b] // by, b, values[a] // by) for a, b, by in pairs]


def _offer(given: str, many: int, asked: str, much: int) -> str:
    return f"[Offer: {many} {given} -> {much} {asked}]"


def _negotiation_text(game: Any, player: int) -> str:
    """`Wheat 5, Wood 11 … | get 2 Wood give 1 Sheep | 3 left`: own values, the other's offer if any, turns left."""
    state = game.state.game_state
    values = ", ".join(f"{name} {value}" for name, value in state["player_values"][player].items())
    offer = state["current_offer"]
    found = "no offer"
    if offer is not None and offer["to_player"] == player:
        found = " ".join(
            f"{word} {' '.join(f'{many} {name}' for name, many in offer[side].items())}"
            for word, side in (("get", "offered_resources"), ("give", "requested_resources"))
        )
    return f"{values} | {found} | {game.max_turns - game.state.turn} left"


def _negotiation_told(game: Any, player: int) -> Callable[[], str]:
    """Text of what the game's own text leaves out: who wins, what is held now, and which move this is.

    The game ends after `max_turns` + 1 moves, and a denied offer stays open until another is made.
    """
    state = game.state.game_state
    offer = state["current_offer"]
    met = offer is not None and offer["to_player"] == player
    values = {
        "move": game.state.turn + 1,
        "moves": game.max_turns + 1,
        "holds": _items(state["player_resources"][player]),
        "gain": state["inventory_value"][player]["change"],
        "other": 1 - player,
        "offered": _items(offer["offered_resources"]) if met else "",
        "asked": _items(offer["requested_resources"]) if met else "",
    }
    return functools.partial(TEMPLATES.render, "trade", values)


def _items(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{many} {name}" for name, many in counts.items())


def _negotiation_legal(game: Any, player: int) -> list[str]:
    state = game.state.game_state
    own, offer = state["player_resources"][player], state["current_offer"]
    met = offer is not None and offer["to_player"] == player
    able = met and all(own[name] >= many for name, many in offer["requested_resources"].items())
    offers = [_offer(*each) for each in _fair_offers(game) if own[each[0]] >= each[1]]
    return [*(["[Accept]"] if able else []), "[Deny]", *offers]


def best_trade(text: str, legal: Sequence[str]) -> str:
    """Legal action with the largest gain in a short text of the trading game; accepting any gainful offer first.

    >>> best_trade("Wood 9, Ore 35 | get 4 Wood give 1 Ore | 3 left", ["[Accept]", "[Deny]"])
    '[Accept]'
    """
    known, offered, _ = text.split(" | ")
    values = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", known)}

    def worth(items: str) -> int:
        return sum(int(many) * values[name] for many, name in re.findall(r"(\d+) (\w+)", items))

    get, _, give = offered.partition(" give ")
    if "[Accept]" in legal and worth(get) > worth(give):
        return "[Accept]"
    gains = {action: worth(action.partition("->")[2]) - worth(action.partition("->")[0]) for action in legal}
    return max((action for action in legal if action != "[Accept]"), key=gains.__getitem__)


_VIEWS = {
    "NimEnv": View(
        text=lambda game, player: _nim_piles(game),
        actions=lambda game: _nim_moves(game.initial_piles),
        legal=lambda game, player: list(_nim_moves(game.state.game_state["piles"])),
        start=lambda game: _nim_piles(game).replace(" ", "-"),
    ),
    "TicTacToeEnv": View(
        text=lambda game, player: _own_marks(_board(game), "OX"[player]),
        actions=lambda game: tuple(f"[{cell}]" for cell in range(9)),
        legal=lambda game, player: [f"[{cell}]" for cell in range(9) if not _board(game)[cell // 3][cell % 3]],
        start=lambda game: "",
    ),
    "ConnectFourEnv": View(
        text=lambda game, player: _own_marks(_board(game), "XO"[player]),
        actions=lambda game: tuple(f"[col {column}]" for column in range(game.num_cols)),
        legal=lambda game, player: [f"[col {c}]" for c in range(game.num_cols) if _board(game)[0][c] == "."],
        start=lambda game: "",
    ),
    "KuhnPokerEnv": View(
        text=_kuhn_text,
        actions=lambda game: ("[check]", "[bet]", "[call]", "[fold]"),
        legal=lambda game, player: [f"[{move}]" for move in game.state.game_state["current_legal_action_tree"]],
        start=lambda game: "".join("JQK"[game.state.game_state["player_cards"][player]] for player in range(2)),
    ),
    "SimpleNegotiationEnv": View(
        text=_negotiation_text,
        actions=lambda game: ("[Accept]", "[Deny]", *(_offer(*each) for each in _fair_offers(game))),
        legal=_negotiation_legal,
        start=lambda game: "/".join(
            "-".join(
                str(number)
                for part in ("player_resources", "player_values")
                for number in game.state.game_state[part][player].values()
            )
            for player in range(2)
        ),
        only_short=True,
        told=_negotiation_told,
    ),
}
