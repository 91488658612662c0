"""[137] SPP (arXiv 2307.05300): one model names who should be in the room, and plays them.

A stub knows the answers of a domain with .5, with .7 if the domain's persona is in its transcript; it finds that
persona .8 of the time, and any expert helps by .05. Its transcripts are parsed, scored and counted as a model's are. It
shows that the reader does what is asked of it, not what a language model gains. Left out: the released logs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.analyses import ANALYSES
from palaestra.evaluation.teamwork import contains_any, persona_turns, scored_personas, set_recall, transcript
from palaestra.evaluation.teamwork.personas import LEADER
from palaestra.play.rollout import rollout
from palaestra.teams import personas
from palaestra_atlas.reproductions import Outcome, exact, reproduction

DOMAINS, QUESTIONS, TEXTS = ("film", "music", "law", "chess", "food"), 5, 200
KNOWS, GENERIC, FITTING, FOUND = 0.5, 0.05, 0.2, 0.8


CANNED = """Participants: AI Assistant (you); Film Expert; Chess Expert

AI Assistant (you): A first draft: final words are not here yet.
Film Expert: The director is wrong.
It was Fritz Lang.
Chess Expert: Looks good to me.
AI Assistant (you): Revised: Fritz Lang.
Film Expert: Better.
AI Assistant (you): Revised again.
Finish collaboration!

Final answer: Fritz Lang, Emanuel Lasker."""
"""A transcript with three personas, a draft and two revisions."""


@exact
def canned_transcript() -> None:
    """Three agents, a draft and two revisions in one completion, each of which hears what was said before it."""
    found = transcript(CANNED)
    assert found.participants == ("AI Assistant (you)", "Film Expert", "Chess Expert")
    turns = persona_turns([CANNED]).frame
    assert turns["agent"].n_unique() == 3
    assert turns["episode"].n_unique() == 1
    assert (turns["agent"] == "AI Assistant (you)").sum() == 3
    assert turns["heard_turn"].to_list() == [list(range(at)) for at in range(6)]
    assert turns["action"][1] == "The director is wrong.\nIt was Fritz Lang."


@exact
def after_its_mark() -> None:
    """What stands behind the last mark is the answer; without a mark all of it is, and that is flagged."""
    found = transcript(CANNED)
    assert (found.answer, found.unparsed) == ("Fritz Lang, Emanuel Lasker.", False)
    assert transcript("final ANSWER : 3\nNo. Final answer: 4").answer == "4"
    assert transcript("It is 4.")[2:] == ("It is 4.", True)
    wrong_first = "Participants: Film Expert\nFilm Expert: Orson Welles?\nFinal answer: Fritz Lang"
    rows = pl.DataFrame({"text": [wrong_first, "no idea"], "right": [[["Orson Welles"]], [["Fritz Lang"]]]})
    with tempfile.TemporaryDirectory() as folder:
        rows.write_parquet(Path(folder) / "personas.parquet")
        (scored,) = ANALYSES.build("personas")(Path(folder) / "personas.parquet").to_dicts()
    assert (scored["score"], scored["unparsed"]) == (0.0, 1)


@exact
def scorers() -> None:
    """Any alias in any case; a guess that is named twice counts once; an exact answer but for a full stop."""
    assert contains_any("It rained in new york.", [["New York", "NYC"], ["Paris"]]) == 0.5
    assert set_recall("Moon, MOON; star.", ["moon", "sun"]) == 0.5
    rows = pl.DataFrame({"text": ["Final answer: 3.", "Final answer: 13"], "right": ["3", "3"]})
    assert scored_personas(rows)["score"].to_list() == [0.5]


class Facts(TaskEnv):
    """Name a fact of each of five domains; the score is the share of them that the answer has."""

    def draw(self, seed: int) -> Task:
        """Domains in some order."""
        domains = np.random.default_rng(seed).choice(DOMAINS, 3, replace=False).tolist()
        return Task(
            f"{seed}", " ".join(domains), lambda text: contains_any(text, [[f"{each} fact"] for each in domains]), None
        )


def model() -> Callable[[Request], str]:
    """A stub that does what its system prompt says, and nothing that it does not say.

    It knows a domain's fact half of the time, a little oftener with an expert beside it, and oftener still with one of
    that domain, whose criticism the leader takes up.
    """

    def say(request: Request) -> str:
        prompt = str((request.observation.messages or [{"content": ""}])[0]["content"])
        domains = request.observation.text.split()
        named: list[str] = []
        if "participants that fit" in prompt:
            named = [f"{each} expert" if request.rng.random() < FOUND else f"{each} fan" for each in domains]
        elif "; Expert" in prompt:
            named = ["Expert"]
        discussed = "criticise" in prompt
        facts = []
        for domain in domains:
            help = FITTING if f"{domain} expert" in named else GENERIC if named else 0.0
            facts.append(f"{domain} fact" if request.rng.random() < KNOWS + discussed * help else "nothing")
        lines = [f"Participants: {LEADER}; {'; '.join(named)}"] if named else []
        if discussed:
            lines += [f"{LEADER}: a draft", *(f"{name}: better so" for name in named), f"{LEADER}: revised"]
            lines += ["Finish collaboration!"]
        return "\n".join([*lines, f"Final answer: {', '.join(facts)}"])

    return say


def asked(*arguments: Any, groups: int = 40, **options: Any) -> pl.DataFrame:
    """Turns of the stub under the prompt of `personas`."""
    env, stub = personas(Facts, *arguments, **options), ScriptedPolicy(model(), name="stub")
    return rollout(env, Team(solver=stub), groups=groups, seed=0, timeout=None).frame


@exact
def personas_of_the_task() -> None:
    """The prompt asks for participants that fit: they are those of the question's domains, and differ between tasks."""
    frame = asked()
    for question, names in frame.select("observation", "participants").iter_rows():
        assert [name.split()[0] for name in names[1:]] == question.split()
    assert frame["participants"].list.join(";").n_unique() > 20
    general = asked("expert")["participants"].list.join(";")
    assert general.unique().to_list() == [f"{LEADER};Expert"]


@exact
def criticised_and_revised() -> None:
    """The prompt asks for criticism and revision: the leader speaks again, and experts mend answers."""
    frame, hurried = asked(groups=80), asked(groups=80, revise=False)
    assert (frame["revisions"] == 1).all()
    assert (hurried["revisions"] == 0).all()
    assert frame["score"].mean() > hurried["score"].mean() + 0.05  # type: ignore[operator]


@exact
def one_call() -> None:
    """All personas speak in one turn of one agent."""
    frame = asked(groups=5)
    assert len(frame) == frame["group"].n_unique() == 5
    assert frame["agent"].cast(str).unique().to_list() == ["solver"]
    assert frame["marked"].all()


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a stub that follows its prompt, `facts.yaml`."""
    here = __name__
    made = {
        "name": "facts",
        "env": {"make": f"{here}:Facts"},
        "policies": {"stub": {"kind": "script", "options": {"script": f"{here}:model"}}},
        "team": {"*": "stub"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 400, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "facts.yaml").write_text(json.dumps(made))


def completion(method: str, domains: Sequence[str], rng: np.random.Generator) -> str:
    """A draft, what the personas say of it, and the final answer."""
    listed: list[str] = []
    if method == "expert":
        listed = ["Expert"]
    elif method == "spp":
        listed = [f"{domain} expert" if rng.random() < FOUND else f"{domain} fan" for domain in dict.fromkeys(domains)]
    said = []
    for number, domain in enumerate(domains):
        chance = KNOWS + (FITTING if f"{domain} expert" in listed else GENERIC if listed else 0.0)
        said.append(f"fact-{number}" if rng.random() < chance else "nothing")
    answer = f"Final answer: {', '.join(said)}"
    if not listed:
        return answer
    lines = [f"Participants: AI Assistant (you); {'; '.join(listed)}", "AI Assistant (you): a draft"]
    return "\n".join([*lines, *(f"{name}: better so" for name in listed), "Finish collaboration!", answer])


@reproduction(
    137,
    claim="Personas that fit the question bring what they know; a generic expert brings less.",
    baseline="one completion without personas; one generic expert",
    criterion="scores of the parsed completions are .50, .55 and .67 to 0.03 in the mean over seeds, personas ahead of "
    "the expert by 0.05, nothing unparsed, and as many personas are read as were written",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three methods, read as logs are."""
    rows: list[dict[str, object]] = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for method in ("standard", "expert", "spp"):
            for _ in range(TEXTS):
                domains = rng.permutation(DOMAINS)[:QUESTIONS].tolist()
                right = [[f"fact-{number}"] for number in range(QUESTIONS)]
                rows.append({"method": method, "text": completion(method, domains, rng), "right": right})
    found = {row["method"]: row for row in scored_personas(pl.DataFrame(rows)).iter_rows(named=True)}
    scores = {method: float(each["score"]) for method, each in found.items()}
    turns = persona_turns([str(row["text"]) for row in rows if row["method"] == "spp"])
    members = turns.frame.group_by("episode").agg(pl.col("agent").n_unique())["agent"].unique().to_list()
    near = all(abs(scores[m] - v) <= 0.03 for m, v in (("standard", 0.5), ("expert", 0.55), ("spp", 0.67)))
    parsed = members == [1 + QUESTIONS] and all(each["unparsed"] == 0 for each in found.values())
    return Outcome(scores, near and parsed and scores["spp"] >= scores["expert"] + 0.05)
