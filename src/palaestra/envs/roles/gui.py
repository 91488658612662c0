"""`Gui`: screens of named boxes and an instruction for each; the answer is a point, a box, a text or a direction.

What the rewards of grounding and navigation compare is told as facts: `gui_g1_reward()`, `ui_venus_grounding("box",
"target_box")`, `ui_r1_reward("action_type", "gold_type", "point", "target_box")`, `ui_venus_navigation("action_type",
"gold_type", coordinates=stepwise_point("point", "gold_point"), content=content_reward("content", "gold_content"))`.
Left out: pixels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

NAMES = ("save", "open", "print", "close", "search", "share", "undo", "help", "send", "copy")
WORDS = ("hello", "monday", "report", "seven")
DIRECTIONS = ("up", "down")
KINDS = ("click", "type", "scroll")
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Screen:
    """Data of one GUI task screen: boxes (left, top, right, bottom) by name, kind of action, and its target."""

    boxes: dict[str, Box]
    kind: str
    goal: str

    @property
    def text(self) -> str:
        """The screen as text: a line per box, then the instruction."""
        lines = [f"{name} {' '.join(map(str, box))}" for name, box in self.boxes.items()]
        return "\n".join([*lines, f"{self.kind} {self.goal}"])


@dataclass
class _GuiState:
    screens: list[int]
    position: int = 0
    right: int = 0


@ENVS.register("roles/gui")
class Gui(NativeEnv):
    """Env of GUI steps: `user_agent` sees boxes and an instruction and says an action; each right one pays 1 / `steps`.

    It says `click X Y`, `box LEFT TOP RIGHT BOTTOM`, `type WORDS` or `scroll DIRECTION`. A step that is right pays
    1 / steps: a click whose point, or whose box's centre, lies in the named box, or the very words or direction.
    Success: all were right.

    facts: action_type, point, box, content, of what was said, as far as it could be read; gold_type, target_box,
    gold_point, gold_content, of what was asked; image_size; difficulty, 1 - the square root of the target's share of
    the screen; needs_judge, whether words were asked for.
    """

    prompt = "roles/gui"
    agents: tuple[str, ...] = ("user_agent",)
    facts = {
        "action_type": str, "point": list[float], "box": list[float], "content": str,
        "gold_type": str, "gold_point": list[float], "target_box": list[float], "gold_content": str,
        "image_size": list[float], "difficulty": float, "needs_judge": bool,
    }  # fmt: skip

    def __init__(
        self,
        *,
        boxes: int = 4,
        screens: int = 16,
        kinds: Sequence[str] = ("click",),
        steps: int = 1,
        size: tuple[int, int] = (100, 60),
        choices: bool = False,
        draw: int = 0,
    ) -> None:
        """Draw the screens.

        Args:
            boxes: on each of them.
            screens: how many there are, the same in every process, drawn from `draw`.
            kinds: what may be asked: "click", "type", "scroll".
            steps: screens of an episode.
            size: width and height.
            choices: actions are numbered, `click NAME` for each box and, by kind, all words and directions, and there
                are features; so tables and networks can play. Else the action is free text.
            draw: seed of the screens.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise InputError(f"Gui: kinds has {kind!r}{nearest(kind, KINDS)}")
        least = min(size)
        if not (2 <= boxes <= len(NAMES) and screens >= 1 and steps >= 1 and least >= 20 and kinds):
            raise InputError(
                f"Gui: need boxes={boxes} from 2 to {len(NAMES)}, screens={screens} >= 1, steps={steps} >= 1, "
                f"size={tuple(size)} at least 20 each way, and one of the kinds {', '.join(KINDS)}"
            )
        rng = np.random.default_rng(draw)
        self.size, self.steps, self.choices = (int(size[0]), int(size[1])), steps, choices
        self.kinds = tuple(kinds)
        self.screens = [self._draw(rng, boxes) for _ in range(screens)]

    def _draw(self, rng: np.random.Generator, boxes: int) -> Screen:
        width, height = self.size
        placed = {}
        for name in rng.permutation(NAMES)[:boxes].tolist():
            w, h = int(rng.integers(width // 10, width // 3)), int(rng.integers(height // 10, height // 3))
            left, top = int(rng.integers(width - w)), int(rng.integers(height - h))
            placed[name] = (left, top, left + w, top + h)
        kind = self.kinds[rng.integers(len(self.kinds))]
        options = {"click": tuple(placed), "type": WORDS, "scroll": DIRECTIONS}[kind]
        return Screen(placed, kind, options[rng.integers(len(options))])

    def begin(self) -> tuple[str, _GuiState]:
        """Draw the screens of an episode."""
        chosen = self.rng.integers(len(self.screens), size=self.steps).tolist()
        return f"gui:{'-'.join(map(str, chosen))}", _GuiState(chosen)

    def look(self) -> dict[str, Observation]:
        """Observation of the user agent: the screen's size, its boxes and the instruction."""
        if self.state.position == self.steps:
            return {}
        screen = self.screens[self.state.screens[self.state.position]]
        head = "" if self.steps == 1 else f"screen {self.state.position + 1} of {self.steps}, "
        text = f"{head}{self.size[0]} x {self.size[1]}\n{screen.text}"
        if not self.choices:
            return {"user_agent": Observation(text)}
        return {"user_agent": Observation(text, self._choices(screen), None, self._features(screen))}

    def _choices(self, screen: Screen) -> tuple[str, ...]:
        words = [f"type {word}" for word in WORDS] if "type" in self.kinds else []
        ways = [f"scroll {way}" for way in DIRECTIONS] if "scroll" in self.kinds else []
        return (*(f"click {name}" for name in screen.boxes), *words, *ways)

    def _features(self, screen: Screen) -> np.ndarray:
        """Of each choice whether it is what was asked, then the boxes in shares of the screen."""
        asked = [choice == f"{screen.kind} {screen.goal}" for choice in self._choices(screen)]
        places = np.array(list(screen.boxes.values()), float) / np.tile(self.size, 2)
        return np.concatenate([asked, places.ravel()]).astype(np.float32)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the answer of this step and go on to the next screen."""
        state = self.state
        screen = self.screens[state.screens[state.position]]
        action = chosen["user_agent"]
        said = self._choices(screen)[action] if self.choices and isinstance(action, int) else str(action or "")
        told = read_action(said, screen.boxes)
        gold = read_action(f"{screen.kind} {screen.goal}", screen.boxes)
        right = told.get("action_type") == screen.kind and (
            _inside(told["point"], gold["box"]) if screen.kind == "click" else told["content"] == screen.goal
        )
        info: dict[str, Any] = {
            **told,
            "gold_type": screen.kind,
            "image_size": list(self.size),
            "needs_judge": screen.kind == "type",
        }
        if screen.kind == "click":
            left, top, end, bottom = gold["box"]
            share = (end - left) * (bottom - top) / (self.size[0] * self.size[1])
            info |= {"target_box": gold["box"], "gold_point": gold["point"], "difficulty": 1 - share**0.5}
        else:
            info |= {"gold_content": screen.goal}
        if not told:
            info["valid"] = {"user_agent": False}
        state.position, state.right = state.position + 1, state.right + right
        if state.position == self.steps:
            info["success"] = state.right == self.steps
        return {"user_agent": right / self.steps}, info


def read_action(text: str, boxes: dict[str, Box]) -> dict[str, Any]:
    """Parses a GUI action `click X Y`, `click NAME` of `boxes`, `box …`, `type …`, `scroll …` to facts; {} if none.

    >>> read_action("click 3 4", {}), read_action("scroll up", {}), read_action("look", {})
    ({'action_type': 'click', 'point': [3.0, 4.0]}, {'action_type': 'scroll', 'content': 'up'}, {})
    """
    kind, _, rest = " ".join(text.split()).partition(" ")
    if kind in ("type", "scroll") and rest:
        return {"action_type": kind, "content": rest}
    box = boxes.get(rest) if kind == "click" else None
    numbers = [float(each) for each in re.findall(r"(?<![\w.])-?\d{1,6}(?:\.\d{1,6})?(?![\w.])", rest)]
    if box is None and kind == "click" and len(numbers) == 2:
        return {"action_type": "click", "point": numbers}
    if box is None and not (kind == "box" and len(numbers) == 4):
        return {}
    corners = [float(each) for each in box] if box is not None else numbers
    centre = [(corners[0] + corners[2]) / 2, (corners[1] + corners[3]) / 2]
    return {"action_type": "click", "point": centre, "box": corners}


def _inside(point: Sequence[float], box: Sequence[float]) -> bool:
    return bool(box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3])
