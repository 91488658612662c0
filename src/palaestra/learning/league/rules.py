"""Rules of a league: with which probability each member is met, and which mixture of members is the league's answer.

One of your own is a class with `draw` and `answer`, and a registration:

    @MATCHMAKING.register("mine")
    class Mine(Rule):
        \"\"\"One line about it.\"\"\"
        def draw(self, standing): ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.evaluation.games.game import Game, marginals
from palaestra.evaluation.games.solvers import read_solver
from palaestra.foundation.registry import Registry
from palaestra.learning.league.payoffs import Payoffs


@dataclass(frozen=True, eq=False)
class Standing:
    """Data: state of a league, given to a matchmaking rule: past selves, pay-offs, share of wins against each member.

    Attributes:
        past: whether a member is a past self rather than a script, bool[members]; past selves are in order of age.
        payoffs: between the members.
        won: share of episodes, draws half, that the learner of now takes from each member, float64[members]: of all
            episodes since the last snapshot and of the matches of that snapshot, with one win and one loss added.
    """

    past: np.ndarray
    payoffs: Payoffs
    won: np.ndarray


class Rule:
    """Base class of matchmaking rules: `draw` gives the weights with which members of a league become opponents.

    LATEST: the opponent is the learner's latest self. SCRIPTS: scripts only.
    PAYOFFS: it reads the pay-offs between members, so every pair has to play.
    """

    LATEST: ClassVar[bool] = False
    SCRIPTS: ClassVar[bool] = False
    PAYOFFS: ClassVar[bool] = False

    def draw(self, standing: Standing) -> np.ndarray:
        """Weights with which members are drawn as opponents, float64[members], not all 0; not called if LATEST."""
        raise NotImplementedError

    def answer(self, standing: Standing) -> np.ndarray:
        """Mixture of past selves that represents the league, float64[members], scripts 0; uniform by default."""
        return np.asarray(standing.past / max(standing.past.sum(), 1))


MATCHMAKING: Registry[Rule] = Registry("matchmaking", home=("palaestra.learning.league.rules",), example="psro(nash)")
"""Rules of a league by the name that `opponents.method` of a recipe takes."""


@MATCHMAKING.register("latest")
class Latest(Rule):
    """Matchmaking rule `latest`: self-play against the learner's latest parameters; with a floor, past selves too.

    Source: arXiv 1912.06680.
    """

    LATEST = True

    def answer(self, standing: Standing) -> np.ndarray:
        """All weight on the youngest past self."""
        found = np.zeros(len(standing.past))
        found[np.flatnonzero(standing.past)[-1:]] = 1.0
        return found


@MATCHMAKING.register("uniform")
class Uniform(Rule):
    """Matchmaking rule `uniform`: fictitious self-play, scripts and the `recent` share of past selves equally likely.

    Source: arXiv 1710.03748.
    """

    def __init__(self, recent: float = 1.0) -> None:
        if not 0 < recent <= 1:
            raise InputError(f"uniform: recent={recent}, a share above 0 and at most 1 is expected")
        self.recent = recent

    def draw(self, standing: Standing) -> np.ndarray:
        """Equal weights of scripts and of the recent past selves."""
        ages = np.flatnonzero(standing.past)
        found = np.where(standing.past, 0.0, 1.0)
        found[ages[len(ages) - int(np.ceil(self.recent * len(ages))) :]] = 1.0
        return found


@MATCHMAKING.register("partners")
class Partners(Rule):
    """Matchmaking rule `partners`: scripts and past selves equally likely, but the oldest past self gets a fixed share.

    For games in which partners must understand each other: the oldest is the one that was taught by people's language,
    and who never meets it again forgets that language (Gupta et al. 2021 [117], a reconstruction).
    oldest: share of groups that meet the oldest past self; the others are drawn uniformly from all members.
    """

    def __init__(self, oldest: float = 0.2) -> None:
        if not 0 <= oldest <= 1:
            raise InputError(f"partners: oldest={oldest}, a share from 0 to 1 is expected")
        self.oldest = oldest

    def draw(self, standing: Standing) -> np.ndarray:
        """Uniform over all members, mixed with the oldest past self."""
        found = np.full(len(standing.past), 1 / len(standing.past))
        if standing.past.any():
            found *= 1 - self.oldest
            found[int(np.argmax(standing.past))] += self.oldest
        return found


@MATCHMAKING.register("pfsp")
class Prioritised(Rule):
    """Matchmaking rule `pfsp`, prioritised fictitious self-play (AlphaStar): weights by the learner's win rate p.

    weighting: hard, (1 - p)^power, or variance, p(1 - p).
    """

    def __init__(self, weighting: Literal["hard", "variance"] = "hard", power: float = 2.0) -> None:
        if weighting not in ("hard", "variance"):
            raise InputError(f"pfsp: weighting={weighting!r}{nearest(str(weighting), ('hard', 'variance'))}")
        if power < 0:
            raise InputError(f"pfsp: power={power}, at least 0 is expected")
        self.weighting, self.power = weighting, power

    def draw(self, standing: Standing) -> np.ndarray:
        """Weights by the learner's share of wins against each member."""
        p = standing.won
        found = np.asarray((1 - p) ** self.power if self.weighting == "hard" else p * (1 - p))
        return found if found.sum() > 0 else np.ones(len(p))


@MATCHMAKING.register("psro")
class Psro(Rule):
    """Matchmaking rule `psro`: opponents by the meta-strategy of the empirical game (PSRO, arXiv 1711.00832).

    train: whose mixture is met. evaluate: whose mixture is the league's answer; None: the same. With nash it is a
    double oracle, with uniform fictitious play.
    """

    PAYOFFS = True

    def __init__(self, train: str = "nash", evaluate: str | None = None) -> None:
        self.train, self.evaluate = read_solver(train), read_solver(evaluate or train)
        self.names = train, evaluate or train

    def draw(self, standing: Standing) -> np.ndarray:
        """The opponents' mixture in the solved game."""
        return meta_strategy(standing.payoffs.game(), self.train, self.names[0])[1]

    def answer(self, standing: Standing) -> np.ndarray:
        """The learner's mixture in the solved game; 0 of a past self who has not met all."""
        found = np.zeros(len(standing.past))
        found[standing.payoffs.complete()] = meta_strategy(standing.payoffs.game(), self.evaluate, self.names[1])[0]
        return found


@MATCHMAKING.register("scripts")
class Scripts(Rule):
    """Matchmaking rule `scripts`: all scripts are equally likely opponents, past selves never."""

    SCRIPTS = True

    def draw(self, standing: Standing) -> np.ndarray:
        """Equal weights of scripts, 0 for past selves."""
        return np.where(standing.past, 0.0, 1.0)


def meta_strategy(game: Game, solver: object, name: str) -> tuple[np.ndarray, ...]:
    """Tuple of the players' mixed strategies in a game by a solver; a joint distribution is replaced by its marginals.

    Values below 0 are cut off.

    Raises:
        InputError: the solver does not take this game; says which do.
    """
    assert callable(solver)
    try:
        found = solver(game)
    except InputError as error:
        raise InputError(
            f"opponents.method: psro({name}): {error}; solvers of any game: alpha_rank, replicator, qre, uniform"
        ) from error
    mixtures = marginals(found) if isinstance(found, np.ndarray) and found.shape == game.shape else found
    cut = [np.maximum(np.asarray(x, float), 0.0) for x in mixtures]
    return tuple(x / x.sum() for x in cut)


def read_rule(text: str) -> Rule:
    """Matchmaking rule parsed from text: `latest`, `uniform(recent=.5)`, `pfsp(hard)`, `psro(alpha_rank)`.

    Raises:
        ExpressionError: there is none of this name, or it does not take these options.
        InputError: it names a solver that is not there.
    """
    return MATCHMAKING.build(re.sub(_WORDS, lambda found: _quoted(found[0], found[1]), text))


_WORDS = r"""'[^']*'|"[^"]*"|(?<=[(,=])\s*([A-Za-z_]\w*)\s*(?=[,)])"""


def _quoted(whole: str, word: str | None) -> str:
    return whole if word in (None, "True", "False", "None") else repr(word)
