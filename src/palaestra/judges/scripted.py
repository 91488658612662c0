"""Judges and writers without a model: what tests, recipes and CI ask. Each makes a function of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from palaestra.agents.policy import Request

Play = Callable[[Request], str]


def said(errs: float = 0.0) -> Play:
    """Makes a scripted judge (request -> text) of transcripts that end with "time to X" and an action: yes if it is X.

    errs: share of transcripts that it judges wrong; drawn from the request's stream, so the same one always.
    """

    def play(request: Request) -> str:
        told = re.findall(r"time to ([\w ]+)\n(?:.*?action: ([\w ]+))?", request.observation.text)
        right = bool(told) and told[-1][0].strip() == told[-1][1].strip()
        return f"VERDICT: {'yes' if right ^ (request.rng.random() < errs) else 'no'}"

    return play


def mentions(words: Sequence[str], tag: str = "LABEL", errs: float = 0.0, silent: float = 0.0) -> Play:
    """Makes a scripted judge: "LABEL: 1" if the text after the last "Message:" or "Transcript:" has one of `words`.

    Else "LABEL: 0".

    errs, silent: shares of what it is asked on which it says the opposite, or nothing; drawn from the request's stream.
    """

    def play(request: Request) -> str:
        text = re.split(r"(?:Message|Transcript):", request.observation.text)[-1]
        text = re.sub(r"^={5} \d+ ={5}$", "", re.split(r"\n(?:Does|End of)", text)[0], flags=re.MULTILINE)  # the fence
        luck, said = request.rng.random(2), any(word in text for word in words)
        return "" if luck[1] < silent else f"{tag}: {int(said ^ (luck[0] < errs))}"

    return play


def scripted_writer(*answers: str) -> Play:
    """Makes a scripted writer (request -> text): gives these answers in order, then the last one again and again."""
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


NEARER = """
def sparse(turn, memory):
    return turn["goal"]


def dense(turn, memory):
    # nearer is better, lava is worse than anything
    return -100.0 if turn["lava"] else turn["before"] - turn["distance"]
"""


def taught() -> Play:
    """Makes a scripted writer of [34]'s pair of reward programs, which improves them by hints in the prompt.

    At first it reads a column that is not there, then it pays all turns the same, then for coming nearer; and it
    punishes lava once it is told that failed episodes ended in it.
    """

    def play(request: Request) -> str:
        text = request.observation.text
        dense = '-turn["dist"]'
        if "unknown column: " in text:
            dense = "1.0"
        elif "constant: " in text or "the trained agent did this" in text:
            dense = 'turn["before"] - turn["distance"]'
        if re.search(r"at their end: .*\blava in [1-9]", text):
            dense = f'-100.0 if turn["lava"] else {dense}'
        return f'def sparse(turn, memory):\n    return turn["goal"]\n\n\ndef dense(turn, memory):\n    return {dense}\n'

    return play


STAGED = """
def compute_dense_reward(turn):
    if turn["door"]:
        return 5.0
    # stage 1: fetch the key; stage 2: bring it to the door
    if turn["key"]:
        return 1.0 * turn["key_picked"] - 0.02 * turn["door_distance"]
    return -0.1 - 0.02 * turn["key_distance"]
"""


def staged() -> Play:
    """Makes a scripted writer of [216]'s staged reward program for a key and a door, in the prompt's general names.

    It pays picking the key up, until it is told that the key is dropped.
    """

    def play(request: Request) -> str:
        text = request.observation.text
        if not set(re.findall(r'turn\["(\w+)"\]', STAGED)) <= set(re.findall(r"^ +(\w+): ", text, re.MULTILINE)):
            return STAGED.replace("key_distance", "distance_to_key")
        dropped = re.search(r"key_dropped (\d+\.\d)", text)
        if dropped and float(dropped[1]) > 0:
            return STAGED.replace("    # stage 1", '    if turn["key_dropped"]:\n        return -2.0\n    # stage 1')
        return STAGED

    return play


def nearer() -> Play:
    """Makes a scripted writer of [34]'s pair of reward programs for a lava map: first a constant, then a useful one."""
    return scripted_writer(
        NEARER.replace('-100.0 if turn["lava"] else turn["before"] - turn["distance"]', "1.0"), NEARER
    )


def reviewer(most: int = 2, errs: float = 0.0) -> Play:
    """Makes a scripted reviewer (request -> text) of AutoLibra's [149] four prompts: rules, with random errors `errs`.

    Transcripts have lines "NAME: well" or "NAME: badly", feedback says "NAME was good" or "NAME was bad".
    most: metrics that it proposes at once, of what is spoken of most. errs: share of aspects that it matches wrongly.
    """

    def play(request: Request) -> str:
        text = request.observation.text
        if "List what the feedback praises" in text:
            said = re.findall(r"(\w+) was (good|bad)", text.partition("Feedback:")[2])
            told = [{"behaviour": name, "comment": how, "sign": 1 if how == "good" else -1} for name, how in said]
            return json.dumps(told)
        if "Group the aspects" in text:
            known = set(re.findall(r"\w+", text.partition("Known metrics:")[2].partition(".")[0]))
            names = [name for name in re.findall(r"^[+-] (\w+):", text, re.MULTILINE) if name not in known]
            order = sorted(set(names), key=lambda name: (-names.count(name), name))[:most]
            return json.dumps([{"name": name, "definition": f"Does it {name}?"} for name in order])
        if "Which of these metrics" in text:
            about = re.findall(r"^[+-] (\w+):", text, re.MULTILINE)[0]
            options = re.findall(r"^\d+\. ([\w ]+)$", text, re.MULTILINE)
            right = options.index(about) if about in options else 0
            wrong = int(request.rng.integers(len(options)))
            return f"VERDICT: {wrong if request.rng.random() < errs else right}"
        name = re.findall(r"Does it (\w+)\?", text)[-1]
        return f"VERDICT: {1 if f'{name}: well' in text else -1 if f'{name}: badly' in text else 0}"

    return play
