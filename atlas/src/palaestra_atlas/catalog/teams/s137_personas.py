"""[137] SPP (arXiv 2307.05300): one model names who should be in the room, and plays them.

A stub knows the answers of a domain with .5, with .7 if the domain's persona is in its transcript; it finds that
persona .8 of the time, and any expert helps by .05. Its transcripts are parsed, scored and counted as a model's are. It
shows that the reader does what is asked of it, not what a language model gains. Left out: the released logs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.teamwork import persona_turns, scored_personas
from palaestra_atlas.reproductions import Outcome, reproduction

DOMAINS, QUESTIONS, TEXTS = ("film", "music", "law", "chess", "food"), 5, 200
KNOWS, GENERIC, FITTING, FOUND = 0.5, 0.05, 0.2, 0.8


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
