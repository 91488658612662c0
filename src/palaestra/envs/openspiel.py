"""OpenSpiel games: turn-based and simultaneous, with chance drawn from the reset seed.

The observation is the game's own information state in one short line, `p0` in front. In games of perfect information
the board says all that matters, so it is shown instead of the move list. A game that only has observation strings
(Hanabi, Pig) shows those: they are not complete histories. Left out: mean-field games and games with sampled chance
(four of them; their randomness has its own seed inside the game), which are refused by name.
"""

from __future__ import annotations

import copy
import functools
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.envs.discrete import Illegal, Slips, check_illegal, read_turn
from palaestra.envs.lazy import LazyObservation
from palaestra.envs.openspiel_states import CHANCE, MOST, SIMULTANEOUS, Moves, Node, Tree
from palaestra.envs.openspiel_together import Together
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import InputError, missing_extra, nearest
from palaestra.foundation.generators import generator

Text = Callable[[Any, int], str]
"""(pyspiel state, player) -> what that player reads."""

SMALL = 512
"""States of games with no more features than this are remembered."""
FEW_ACTIONS = 64
"""Up to this many, OpenSpiel's own list of all is the quicker way to a mask than the list of the legal ones."""
_TREES: dict[str, Tree] = {}
LONGEST_NAMED_SPACE = 512
"""Action spaces up to this size have all their names computed once; in larger ones illegal actions are called `#id`."""


class OpenSpielEnv:
    """Env of one OpenSpiel game; agents are `player_0`, `player_1` …; chance outcomes follow from the seed.

    game: the pyspiel game.
    task: the name of the game, followed by the chance outcomes before the first decision (the deal).
    """

    def __init__(
        self, name: str, *, illegal: Illegal = "lose", text: Text | None = None, success: float | None = None
    ) -> None:
        """Load the game.

        Args:
            name: OpenSpiel's name, parameters included: `"kuhn_poker(players=3)"`.
            illegal: "lose" ends the episode: the offender's return becomes the game's minimum; in constant-sum games
                the others share what is then missing from the sum (if everyone offended, everyone gets the minimum),
                in games with one common payoff everyone gets the minimum, else the others keep what they have.
                "random" plays a random legal action instead.
            text: replaces the text of the observations.
            success: an agent succeeds if its return reaches this number. Default: the maximum in games with one
                common payoff, more than an equal share in constant-sum games, not reported in others.
        """
        check_illegal(illegal)
        self.name = name
        self.game = _load(name)
        self._illegal = illegal
        self._success = success
        kind = self.game.get_type()
        self._players = self.game.num_players()
        self._actions = self.game.num_distinct_actions()
        self._sum = self.game.utility_sum()
        self._common = kind.utility == kind.utility.IDENTICAL
        self._text = text or _text_of(kind)
        self._tensor = _tensor_of(kind)
        self.agents = tuple(f"player_{player}" for player in range(self._players))
        self._nothing: dict[str, float | None] = dict.fromkeys(self.agents, 0.0)
        self._turn: dict[str, Observation] = {}
        self.task = ""
        self._seed = 0
        self._chance: np.random.Generator | None = None
        start = self.game.new_initial_state()
        self._observer = _observer_of(self.game, kind, self._tensor)
        self._observing = threading.Lock() if self._observer else None  # it has one place for all that it writes
        self._makers = {
            "text": self._text,
            "choices": self._choices_of,
            "mask": self._mask_of,
            "array": self._array_of,
        }
        self._tree = self._states(start)
        self._node = self._tree.root
        self._names = [_action_names(start, player, self._actions) for player in range(self._players)]

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Deal with `seed` and show the first decision."""
        self._seed, self._chance = seed, None  # a generator takes longer to make than a turn of most games
        self._slips = Slips(seed)
        observations, node = self._observe(self._tree.root), self._node
        if node.deal is None:
            node.deal = ",".join(map(str, node.state.history()))
        self.task = f"{self.name}:{node.deal}" if node.deal else self.name
        self._returns = self._worth(node)
        return observations

    @property
    def state(self) -> Any:
        """A copy of the current pyspiel state."""
        return self._node.state.clone()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Play the agents' actions, then any chance moves that follow."""
        chosen = read_turn(actions, self._turn)
        moves: dict[str, Any] = chosen
        offenders = None in chosen.values()
        if offenders and self._illegal == "lose":
            totals, observations = self._forfeit([agent for agent, action in chosen.items() if action is None]), {}
            self._turn = {}
        else:
            if offenders:
                moves = {
                    agent: self._slips.legal(self._turn[agent]) if action is None else action
                    for agent, action in chosen.items()
                }
            key: Moves
            if self._node.player == SIMULTANEOUS:
                key = tuple([moves.get(agent, 0) for agent in self.agents])
            else:
                (key,) = moves.values()
            observations = self._observe(self._tree.after(self._node, key))
            totals = self._worth(self._node)
        rewards: dict[str, float | None]
        if totals == self._returns:  # in most games until the last turn
            rewards = self._nothing.copy()
        else:
            rewards = {
                agent: now - before for agent, now, before in zip(self.agents, totals, self._returns, strict=True)
            }
        self._returns = totals
        info: dict[str, Any] = {
            "valid": {agent: action is not None for agent, action in chosen.items()}
            if offenders
            else dict.fromkeys(chosen, True)
        }
        if not observations and (success := self._succeeded(totals)) is not None:
            info["success"] = success
        return StepResult(observations, rewards, not observations, False, info)

    def snapshot(self) -> Any:
        """Snapshot of the episode, for `restore`."""
        chance = self._seed, *copy.deepcopy((self._chance, self._slips))
        return self._node, list(self._returns), self.task, chance

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        """Restore a snapshot of this game; seed: draw future chance moves anew."""
        node, returns, self.task, chance = snapshot
        self._returns = list(returns)
        self._seed, self._chance, self._slips = copy.deepcopy(chance)
        if seed is not None:
            self._seed, self._chance, self._slips = seed, None, Slips(seed)
        return self._observe(node)

    def look(self, state: Any, player: int) -> Observation:
        """Observation of `player` in a state of this game, or of its turn-based form; ends the current episode."""
        here = state.clone()
        if state.get_game().get_type().short_name != self.game.get_type().short_name:
            here = state.simultaneous_game_state()  # exact measures walk a simultaneous game in turns
        if not here.legal_actions(player):
            raise InputError(f"{self.name}: player {player} has nothing to decide in this state")
        self._node = Node(here)
        return self._see(self._node, player)

    def _states(self, start: Any) -> Tree:
        """The tree that all envs of the game share; if the text is another, or the game large, one without memory."""
        if self._text not in (_seat, _observation, _information, _leduc):
            return Tree(start, 0)
        try:
            features = getattr(self.game, f"{self._tensor}_size")() if self._tensor else 0
        except RuntimeError:  # OpenSpiel has not said how many
            return Tree(start, 0)
        small = max(features, self._actions) <= SMALL
        return _TREES.setdefault(self.name, Tree(start, MOST)) if small else Tree(start, 0)

    def _observe(self, node: Node) -> dict[str, Observation]:
        """Draw chance outcomes until somebody has to decide, and show the decision."""
        while (player := node.player) == CHANCE:
            if self._chance is None:
                self._chance = generator(self._seed)
            if node.outcomes is None:
                node.outcomes = node.state.chance_outcomes()
            left = self._chance.random()
            for outcome, probability in node.outcomes:  # noqa: B007  (the outcome is used after the loop)
                left -= probability
                if left < 0:
                    break
            node = self._tree.after(node, outcome)
        self._node = node
        if player >= 0:
            self._turn = {self.agents[player]: self._see(node, player)}
        elif player == SIMULTANEOUS:  # some players may have nothing to decide
            deciding = (each for each in range(self._players) if node.state.legal_actions(each))
            self._turn = {self.agents[each]: self._see(node, each) for each in deciding}
        else:
            self._turn = {}
        return self._turn.copy()

    def _see(self, node: Node, player: int) -> Observation:
        """Observation of a player who has something to decide, made when it is read; of a kept state once for all."""
        if node.observations is None:
            return LazyObservation.of(functools.partial(self._part, node.state, player))
        found = node.observations.get(player)
        if found is None:
            made = LazyObservation.of(functools.partial(self._kept, node.state, player))
            found = node.observations[player] = made
        return found

    def _part(self, state: Any, player: int, name: str) -> Any:
        """One field of an observation: `text`, `choices`, `mask` or `array`."""
        return self._makers[name](state, player)

    def _kept(self, state: Any, player: int, name: str) -> Any:
        """The field for an observation that many episodes share: its arrays cannot be written to."""
        found = self._makers[name](state, player)
        if isinstance(found, np.ndarray):
            found.flags.writeable = False
        return found

    def _worth(self, node: Node) -> list[float]:
        """Returns of all players so far."""
        if node.returns is None:
            node.returns = node.state.returns()
        return node.returns

    def _choices_of(self, state: Any, player: int) -> tuple[str, ...]:
        """Names of all actions."""
        names, legal = self._names[player], state.legal_actions(player)
        called = [state.action_to_string(player, action).strip() for action in legal]
        if called == [names[action] for action in legal]:
            return names
        return _names_here(tuple(legal), tuple(called), self._actions)

    def _mask_of(self, state: Any, player: int) -> np.ndarray:
        if self._actions <= FEW_ACTIONS:
            return np.frombuffer(bytearray(state.legal_actions_mask(player)), np.bool_)
        mask = np.zeros(self._actions, dtype=bool)
        mask[state.legal_actions(player)] = True
        return mask

    def _array_of(self, state: Any, player: int) -> np.ndarray | None:
        """The features."""
        if self._observing is not None:
            with self._observing:
                self._observer.set_from(state, player)
                found: np.ndarray = self._observer.tensor.copy()
            return found
        return np.array(getattr(state, self._tensor)(player), dtype=np.float32) if self._tensor else None

    def _forfeit(self, offenders: Sequence[str]) -> list[float]:
        """Returns of all players after the offenders lost; see `illegal`."""
        low = self.game.min_utility()
        if self._common or len(offenders) == self._players:
            return [low] * self._players
        others = self._players - len(offenders)
        share = None if self._sum is None else (self._sum - low * len(offenders)) / others
        return [
            low if agent in offenders else kept if share is None else share
            for agent, kept in zip(self.agents, self._returns, strict=True)
        ]

    def _succeeded(self, totals: Sequence[float]) -> dict[str, bool] | None:
        least = self._success
        if least is None and self._common:
            least = self.game.max_utility()
        if least is not None:
            return {agent: total >= least for agent, total in zip(self.agents, totals, strict=True)}
        if self._sum is None:
            return None
        fair = self._sum / self._players
        return {agent: total > fair for agent, total in zip(self.agents, totals, strict=True)}


def _load(name: str) -> Any:
    try:
        import pyspiel
    except ImportError:
        raise missing_extra("OpenSpiel", "openspiel") from None
    known = pyspiel.registered_names()
    if (short := name.split("(")[0]) not in known:
        raise InputError(f"OpenSpiel has no game {short!r}{nearest(short, known)}")
    if name != short and (died := _dies(name)):
        raise InputError(f"OpenSpiel cannot load {name!r}, and would end Python: {died}")
    try:
        game = pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise InputError(f"OpenSpiel cannot load {name!r}: {error}") from None
    kind = game.get_type()
    if kind.dynamics == kind.dynamics.MEAN_FIELD or kind.chance_mode == kind.chance_mode.SAMPLED_STOCHASTIC:
        what = (
            "is a mean-field game"
            if kind.dynamics == kind.dynamics.MEAN_FIELD
            else "samples chance by a seed of its own"
        )
        raise InputError(f"OpenSpiel's {name!r} {what}, which this adapter does not support; choose another game")
    return game


_TRIAL = """
import sys, pyspiel
try:
    pyspiel.load_game(sys.argv[1]).new_initial_state()
except Exception:
    pass
print("alive")
"""


@functools.cache
def _dies(name: str) -> str | None:
    """Error of a game whose C++ code exits when it is loaded with these parameters, as Hanabi's does; None if it loads.

    So it is loaded in another process first, once.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL, name], capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if "alive" in done.stdout else " ".join(done.stderr.split())[-300:] or f"exit {done.returncode}"


def _action_names(state: Any, player: int, count: int) -> tuple[str, ...]:
    """Names as the game gives them at the start; `#id` where they depend on the position or clash."""
    fallback = tuple(f"#{action}" for action in range(count))
    if count > LONGEST_NAMED_SPACE:
        return fallback
    try:
        names = tuple(state.action_to_string(player, action).strip() for action in range(count))
    except RuntimeError:
        return fallback
    return names if len({name.casefold() for name in names}) == count else fallback


@functools.lru_cache(4096)
def _names_here(legal: tuple[int, ...], called: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Names of actions for games that name them by the position.

    Two legal ones that differ in case only (chess: `bxc4` and `Bxc4`) get their id behind the name, and no other action
    shares a name with them.
    """
    often = Counter(name.casefold() for name in called)
    names = [f"#{action}" for action in range(count)]
    for action, name in zip(legal, called, strict=True):
        names[action] = name if often[name.casefold()] == 1 else f"{name} #{action}"
    return tuple(names)


def _text_of(kind: Any) -> Text:
    """The shortest text of this kind of game that still tells a player all it knows."""
    if kind.short_name == "leduc_poker":
        return _leduc
    if kind.information == kind.information.ONE_SHOT:
        return _seat
    perfect = kind.information == kind.information.PERFECT_INFORMATION
    if kind.provides_observation_string and (perfect or not kind.provides_information_state_string):
        return _observation
    if kind.provides_information_state_string:
        return _information
    raise InputError(f"OpenSpiel's {kind.short_name!r} has no observation or information state text; give text=")


def _seat(state: Any, player: int) -> str:
    return f"p{player}"


def _information(state: Any, player: int) -> str:
    return _one_line(state.information_state_string(player), player)


def _observation(state: Any, player: int) -> str:
    return _one_line(state.observation_string(player), player)


def _one_line(text: str, player: int) -> str:
    """`p0 xo./.x./...`: rows joined by `/`, with the seat in front unless the text already begins with it."""
    line = "/".join(" ".join(row.split()) for row in text.strip().split("\n"))
    return line if line.startswith(f"p{player}") else f"p{player} {line}".rstrip()


_LEDUC = re.compile(r"\[Private: (\d+)\].*?(?:\[Public: (\d+)\])?\[Round1: ([\d ]*)\]\[Round2: ([\d ]*)\]")
_LEDUC_MOVES = str.maketrans("012", "fcr", " ")


def _leduc(state: Any, player: int) -> str:
    """`p0 3 5 cr|c`: own card, public card (`-` before it is dealt), the moves of both rounds (fold, call, raise)."""
    found = _LEDUC.search(state.information_state_string(player))
    assert found is not None, "OpenSpiel changed the text of leduc_poker"
    private, public, first, second = found.groups()
    return f"p{player} {private} {public or '-'} {first.translate(_LEDUC_MOVES)}|{second.translate(_LEDUC_MOVES)}"


def _tensor_of(kind: Any) -> str | None:
    """The method of the state that gives the features of what `_text_of` shows."""
    perfect = kind.information == kind.information.PERFECT_INFORMATION
    if kind.provides_observation_tensor and (perfect or not kind.provides_information_state_tensor):
        return "observation_tensor"
    return "information_state_tensor" if kind.provides_information_state_tensor else None


def _observer_of(game: Any, kind: Any, tensor: str | None) -> Any:
    """OpenSpiel's own writer of the same features, which makes no Python list of them; None where it has none."""
    import pyspiel
    from open_spiel.python.observation import make_observation

    if tensor is None or kind.dynamics != kind.dynamics.SEQUENTIAL:
        return None
    recall = pyspiel.IIGObservationType(perfect_recall=True) if tensor == "information_state_tensor" else None
    try:
        observer, state = make_observation(game, recall), game.new_initial_state()
        while state.is_chance_node():
            state.apply_action(state.chance_outcomes()[0][0])
        for _ in range(4):  # the game's features by default are what its state says, or it is not used
            if state.is_terminal() or state.is_chance_node():
                break
            player = state.current_player()
            observer.set_from(state, player)
            if observer.tensor.dtype != np.float32 or not np.array_equal(
                observer.tensor, np.array(getattr(state, tensor)(player), np.float32)
            ):
                return None
            state.apply_action(state.legal_actions()[0])
    except (RuntimeError, ValueError, AttributeError, TypeError):
        return None
    return observer


class OpenSpielTogether(Together, OpenSpielEnv):
    """Env of a turn-based OpenSpiel game that asks all players every turn; those not to move can only pass."""


def openspiel(
    name: str,
    *,
    illegal: Illegal = "lose",
    text: Text | None = None,
    success: float | None = None,
    everyone: bool = False,
) -> EnvFactory:
    """Env factory of an OpenSpiel game by name; the game and its options are checked at once.

    Args:
        name: OpenSpiel's name, parameters included: `"kuhn_poker(players=3)"`.
        illegal: "lose" ends the episode of an illegal action, "random" plays a random one; see `OpenSpielEnv`.
        text: replaces the text of the observations.
        success: an agent succeeds if its return reaches this number; see `OpenSpielEnv`.
        everyone: all players are shown every turn and those who do not act can only pass, for methods that need what
            all see (MAPPO, VDN, QMIX).

    >>> env = openspiel("tiny_hanabi")()
    >>> seen = env.reset(seed=0)["player_0"]
    >>> seen.text, seen.legal
    ('p0:d1', ('p0a0', 'p0a1', 'p0a2'))
    >>> {agent: seen.legal for agent, seen in openspiel("tiny_hanabi", everyone=True)().reset(seed=0).items()}
    {'player_0': ('p0a0', 'p0a1', 'p0a2'), 'player_1': ('pass',)}
    """
    made = OpenSpielTogether if everyone else OpenSpielEnv
    factory = functools.partial(made, name, illegal=illegal, text=text, success=success)
    try:
        for seen in factory().reset(0).values():
            repr(seen)  # which reads all of it
    except RuntimeError as error:
        raise InputError(f"OpenSpiel's {name!r} cannot be played by numbered actions: {error}") from error
    return factory
