"""[194] RLVER (arXiv 2507.03112): a policy learns what a simulated user needs from the user's emotion alone.

The user of `roles/user` has one of six needs, which can be heard in what it says; the right kind of reply pleases, any
other hurts. Three turns, a table of logits, GRPO on the emotion at the end by the recipe `world`, three difficulties.
Left out: language, thinking before speaking, 500 personas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.roles import ModelUser, SimulatedUser
from palaestra.envs.roles.user import DIFFICULTIES, NEEDS
from palaestra.rewards import emotion, rlver_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ARMS: dict[str, dict[str, Any]] = {
    difficulty: {
        "env": {"make": "roles/user", "options": {"user": difficulty, "turns": 3}},
        "reward": 'rlver_reward("delta")',
        "train": {"iterations": 50},
    }
    for difficulty in DIFFICULTIES
}


@dataclass(frozen=True)
class Moved:
    """A user who says how much the reply "+60" or "-8" moves it."""

    profiles: tuple[str, ...] = ("any",)
    replies: None = None

    def appraise(self, profile: str, dialogue: Sequence[str], emotion: int) -> int:
        """The number that was said."""
        return int(dialogue[-1])

    def reply(self, profile: str, dialogue: Sequence[str], emotion: int) -> str:
        """Always the same."""
        return "go on"


def felt(env: SimulatedUser, *replies: str, seed: int = 0) -> list[int]:
    """Emotions after each reply, until the user leaves."""
    found, seen = [], env.reset(seed)
    for said in replies:
        if seen:
            result = env.step({"helper": said})
            found.append(int(result.info["emotion"]))
            seen = result.observations
    return found


def dialogue(*changes: float) -> Turns:
    """A dialogue of these changes."""
    number = len(changes)
    return Turns({"episode": [0] * number, "turn": range(number), "agent": ["a"] * number, "delta": list(changes)})


@exact
def needs_decide() -> None:
    """For each of six needs and three difficulties: what is needed pleases, each other reply hurts."""
    for difficulty, (up, down) in DIFFICULTIES.items():
        env = SimulatedUser(difficulty)
        for seed in range(12):
            env.reset(seed)
            need = env.state.profile
            other = next(each for each in NEEDS if each != need)
            assert felt(env, need, other, seed=seed) == [40 + up, 40 + up + down]


@exact
def changes_are_clipped() -> None:
    """A reply worth +60 or -60 moves by ten, in the env as in the signal."""
    assert felt(SimulatedUser(Moved()), "+60", "-60") == [50, 40]
    np.testing.assert_allclose(np.asarray(emotion("delta").evaluate(dialogue(60, -60))), [50, 40])
    np.testing.assert_allclose(np.asarray(rlver_reward("delta").evaluate(dialogue(60))), [0.5])


@exact
def emotion_is_bounded() -> None:
    """From 40 six times +10 is full, five times -10 is empty, and nothing goes beyond."""
    assert felt(SimulatedUser(Moved()), *["+9"] * 7)[-1] == 100
    assert felt(SimulatedUser(Moved()), *["-9"] * 5)[-1] == 0
    up, down = (np.asarray(emotion("delta").evaluate(dialogue(*[change] * 8))) for change in (10, -10))
    np.testing.assert_allclose(up, [50, 60, 70, 80, 90, 100, 100, 100])
    np.testing.assert_allclose(down, [30, 20, 10, 0, 0, 0, 0, 0])


@exact
def the_user_leaves() -> None:
    """The dialogue is over once the user is content or has had enough, else after eight replies."""
    assert [len(felt(SimulatedUser(Moved()), *[said] * 9)) for said in ("+10", "-10", "0")] == [6, 4, 8]


@exact
def the_end_is_paid() -> None:
    """40, 50, 45 pays .45 at the end and nothing before; turn by turn it pays the changes."""
    np.testing.assert_allclose(np.asarray(rlver_reward("delta").evaluate(dialogue(0, 10, -5))), [0, 0, 0.45])
    changes = np.asarray(rlver_reward("delta", turnwise=True).evaluate(dialogue(0, 10, -5)))
    np.testing.assert_allclose(changes, [0, 0.1, -0.05], atol=1e-12)


@exact
def from_another_start() -> None:
    """Whoever begins at 70 is at 80 after +10, in the env, as the reward at the end, and as 0.1 turn by turn."""
    env = SimulatedUser(Moved(), start=70)
    assert felt(env, "+10") == [80]
    for turnwise, paid in ((False, 0.8), (True, 0.1)):
        signal = rlver_reward("delta", start=70.0, turnwise=turnwise)
        np.testing.assert_allclose(np.asarray(signal.evaluate(dialogue(10))), [paid])


@exact
def same_dialogue_same_score() -> None:
    """The same replies to the same profile end at the same emotion, whatever is drawn."""
    env, found = SimulatedUser("moderate"), dict[str, list[int]]()
    for seed in range(30):
        env.reset(seed)
        profile = env.state.profile
        emotions = felt(env, "listen", "comfort", "ask", seed=seed)
        assert emotions == found.setdefault(profile, emotions)
    assert len(found) == len(NEEDS)
    asked = ModelUser(lambda prompts: ["It helps: +7" if "end with a whole number" in prompts[0] else "and?"], ("a",))
    assert felt(SimulatedUser(asked), "I am here.", "Tell me.") == [47, 54]


@reproduction(
    194,
    claim="The emotion of a simulated user at the end of the dialogue is enough to learn what it needs; harder users "
    "teach less.",
    baseline="the same policy before training",
    criterion="final emotion of the moderate above the hard above the harder user in the mean, "
    "and above its start with each in every seed (held on the fresh seed and the fresh block tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three users."""
    paid: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        paid[arm].append(float(turns["reward"].sum() / turns.codes("episode").size))

    def nothing(learned: TrainingResult) -> dict[str, float]:
        return {}

    train_arms("world", ARMS, seeds, nothing, on_turns=watch)
    curves = {name: np.reshape(values, (len(seeds), -1)) for name, values in paid.items()}
    before, after = ({name: curve[:, part].mean(axis=1) for name, curve in curves.items()}
                     for part in (slice(3), slice(-5, None)))  # fmt: skip
    measured: dict[str, float] = {}
    for name in ARMS:
        measured |= {f"before_{name}": float(before[name].mean()), f"after_{name}": float(after[name].mean())}
    order = [measured[f"after_{name}"] for name in ("moderate", "hard", "harder")]
    better = all((after[name] > before[name]).all() for name in ARMS)
    return Outcome(measured, bool(order[0] > order[1] > order[2] and better))
