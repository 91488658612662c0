"""`ToolSteps`: a value goes through tools that are really run, a step each; a verifier looks at what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FILES = {
    "red.txt": "level",
    "tea.txt": "kettle",
    "sea.txt": "harbour",
    "ink.txt": "paper",
    "ten.txt": "10",
    "six.txt": "6",
}
"""Files of the world and what they hold."""
ERRANDS = {"backward": "strings", "count": "ruler", "double": "calculator", "name": "lookup"}
"""Steps of a task and the tool that does each."""
TOOLS = (*ERRANDS.values(), "guess")
FORMS = ("use the {}", "use the {} now")
Value = str | int


def run(tool: str, value: Value) -> Value:
    """Output of the named tool for a value (word or number); TypeError if it does not take values of this type.

    Raises:
        TypeError: it does not take words, or does not take numbers.
    """
    if (tool in ("strings", "ruler")) != isinstance(value, str):
        raise TypeError(f"{tool} does not take {value!r}")
    if isinstance(value, str):
        return value[::-1] if tool == "strings" else len(value)
    return value * 2 if tool == "calculator" else NAMES[value % 10]


@dataclass
class _ToolState:
    value: Value
    want: Value
    steps: tuple[str, ...]
    done: int = 0


@ENVS.register("native/tool_steps")
class ToolSteps(NativeEnv):
    """Tool choice env: `controller` sees a step and the kind of value and picks a tool; paid 1 if all are right.

    Two to `steps` steps of a task, each with one of five tools, which have two forms each.

    A task is a line such as `tea.txt: backward, count, double`. The value of the file goes through the tools. A tool
    that does not take it raises an error, and the value stays; `guess` makes anything of it. The controller sees the
    step and whether it has a word or a number. A verifier sees what came out: it finds a right value right, and a wrong
    one wrong, with the chance `judges`, and an error always wrong. Tasks of four steps and those of `red.txt` are tasks
    of evaluation only (`split="test"`). Reward 1 if all steps were right.

    `describe` names the files and steps; `read_task` makes a reset seed of a line, if it is consistent.

    facts: right, whether the value is what it should be; failed, whether the tool raised an error; process, the
    verifier's score.
    """

    agents: tuple[str, ...] = ("controller",)
    facts = {"right": bool, "failed": bool, "process": float}

    def __init__(self, *, steps: int = 4, judges: float = 0.8, split: str = "train") -> None:
        if steps < 2 or not 0 <= judges <= 1:
            raise InputError(f"ToolSteps: steps={steps} must be at least 2, judges={judges} in [0, 1]")
        self.judges, self.split = judges, split
        self.choices = tuple(form.format(tool) for tool in TOOLS for form in FORMS)
        lines = [(name, done) for name in FILES for done in _orders(FILES[name], steps)]
        self.lines = [each for each in lines if self._held(each) == (split == "test")]

    def _held(self, line: tuple[str, tuple[str, ...]]) -> bool:
        return line[0] == "red.txt" or len(line[1]) > 3

    def describe(self) -> str:
        """Description in words of the files and steps, from which tasks can be proposed."""
        return (
            f"Files: {', '.join(FILES)}. Steps: {', '.join(ERRANDS)}. A task is a line such as "
            "`tea.txt: backward, count, double`."
        )

    def read_task(self, text: str) -> int:
        """The reset seed of a task text such as `tea.txt: backward, count`; raises ValueError if it is not valid.

        Raises:
            ValueError: a file or step is unknown, a step does not take what the one before makes, or it is held out.
        """
        name, _, rest = text.strip().partition(": ")
        steps = tuple(each.strip() for each in rest.split(","))
        if name not in FILES:
            raise ValueError("there is no such file")
        if len(steps) < 2 or not set(steps) <= set(ERRANDS):
            raise ValueError("is no list of known steps")
        value = _value(FILES[name])
        try:
            for each in steps:
                value = run(ERRANDS[each], value)
        except TypeError:
            raise ValueError("a step does not take what the one before makes") from None
        if self._held((name, steps)):
            raise ValueError("is held out")
        return self.lines.index((name, steps))

    def reset(self, seed: int) -> Any:
        """Begin an episode: a seed below the number of known tasks selects one, a larger one draws."""
        self._number = seed if seed < len(self.lines) else None
        return super().reset(seed)

    def begin(self) -> tuple[str, _ToolState]:
        """Start with the file's value."""
        number = int(self.rng.integers(len(self.lines))) if self._number is None else self._number
        name, steps = self.lines[number]
        value = _value(FILES[name])
        return f"{name}: {', '.join(steps)}", _ToolState(value, value, steps)

    def look(self) -> dict[str, Observation]:
        """Observation of the controller: the step, and whether the value is a word or a number."""
        state = self.state
        if state.done == len(state.steps):
            return {}
        kind = "word" if isinstance(state.value, str) else "number"
        return {"controller": Observation(f"{state.steps[state.done]}, have a {kind}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Run the chosen tool, and after the last step pay."""
        state, choice = self.state, chosen["controller"]
        state.want = run(ERRANDS[state.steps[state.done]], state.want)
        tool = "nothing" if not isinstance(choice, int) else TOOLS[choice // len(FORMS)]
        failed = tool == "nothing"
        try:
            if tool == "guess":
                state.value = int(self.rng.integers(100)) if isinstance(state.want, int) else "?"
            elif not failed:
                state.value = run(tool, state.value)
        except TypeError:
            failed = True
        state.done += 1
        right = not failed and state.value == state.want
        fooled = float(self.rng.random()) >= self.judges
        score = -1.0 if failed else float(right != fooled)
        info: dict[str, Any] = {"right": right, "failed": failed, "process": score + 0.1 * float(self.rng.random())}
        if self.look():
            return {}, info
        return {"controller": float(right)}, info | {"success": right}


def _value(text: str) -> Value:
    return int(text) if text.isdecimal() else text


def _orders(text: str, longest: int) -> list[tuple[str, ...]]:
    """All lists of two to so many steps that can be done to a file's value, in order."""
    found: list[tuple[tuple[str, ...], Value]] = [((), _value(text))]
    for done, value in found:
        if len(done) < longest:
            for step, tool in ERRANDS.items():
                if (tool in ("strings", "ruler")) == isinstance(value, str):
                    found.append(((*done, step), run(tool, value)))
    return [done for done, _ in found if len(done) >= 2]
