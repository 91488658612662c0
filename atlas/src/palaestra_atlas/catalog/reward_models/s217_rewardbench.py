"""[217] RewardBench 2 (arXiv 2506.01937): best of four with a fraction for ties, a score of ties, six domains.

The published scorer's functions were run beside ours on 200 made-up files of its format: the largest difference was
1e-17. Judges are asked in both of its forms, in this project's own words; those here are rules with planted faults, and
no language model. Left out: its prompts to be judged, its models, and reinforcement learning with them.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents.policy import Request
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.evaluation.analyses import ANALYSES
from palaestra.evaluation.scorers import best_of_k_accuracy, domain_scores, rank_correlation, read_scores, ties_score
from palaestra.judges.best_of import judge_forms
from palaestra.judges.judged import PolicyAsker
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

CREDITS = {
    (6, 1, 7, 1): 0.0,
    (9, 7, 7, 1): 1.0,
    (7, 7, 3, 1): 0.5,
    (7, 7, 7, 1): 1 / 3,
    (7, 7, 7, 7): 0.25,
    (6, 7, 1, 1): 0.0,
}
TIES = [([5, 4.5, 4.8, 2, 1], [5, 1.5, 1]), ([3, 1, 2.5, 0.5, 0.2], [3, 3.2, 1])]
SCORERS, PROMPTS = 25, 1000
RIGHT, WRONG = [9.0, 1.0, 1.0, 1.0], [1.0, 9.0, 1.0, 1.0]


def tied(*pairs: tuple[list[float], list[float]]) -> pl.DataFrame:
    """Prompts with three right answers beside their reference with one."""
    rows = [
        {"prompt": i, "kind": kind, "score": float(s), "correct": j < right}
        for i, pair in enumerate(pairs)
        for kind, scores, right in zip(("tied", "ref"), pair, (3, 1), strict=True)
        for j, s in enumerate(scores)
    ]
    return pl.DataFrame(rows)


@exact
def credits() -> None:
    """One right answer against three wrong ones, with a fraction for ties."""
    for scores, credit in CREDITS.items():
        one = pl.DataFrame({"group": [0] * 4, "score": scores, "correct": [True, False, False, False]})
        np.testing.assert_allclose(best_of_k_accuracy(one).mean, credit, atol=1e-12)


@exact
def score_of_ties() -> None:
    """The card's two pairs of prompts, and one in which the reference alone is narrow."""
    np.testing.assert_allclose(ties_score(tied(*TIES), resamples=0).score, 0.6509941513898921, atol=1e-9)
    hard = ties_score(tied(([5, 4.5, 4.8, 2], [5, 4.7])), resamples=0)
    np.testing.assert_allclose([hard.score, hard.preferred, hard.hard], [0.7962005, 1.0, 0.0], atol=1e-6)


@exact
def mean_of_domains() -> None:
    """A scorer that fails in one of six domains loses a sixth, however few prompts that has."""
    sizes = {"Factuality": 12, "Precise IF": 4, "Math": 5, "Safety": 11, "Focus": 12, "Ties": 2}
    rows = [
        {
            "subset": name,
            "id": f"{kind}:{i}",
            "scores": [9.0, 9.0, 1.0] if kind == "tied" else scores,
            "num_correct": right,
        }
        for name, size in sizes.items()
        for i in range(size)
        for kind, right, scores in (
            [("tied", 2, []), ("ref", 1, [9.0, 1.0])]
            if name == "Ties"
            else [("one", 1, WRONG if name == "Math" else RIGHT)]
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        found = read_scores(path)
    assert found is not None
    table = dict(domain_scores(found, resamples=0).select("domain", "score").iter_rows())
    np.testing.assert_allclose([table["Math"], table["Ties"], table["overall"]], [0.0, 1.01, 5.01 / 6], atol=1e-9)


def files(seed: int, folder: Path) -> None:
    """Scores of noisy scorers in one table, and what the best of 16 by each is worth."""
    parts, best = [], []
    for number, (score, right, worth) in enumerate(noisy(np.random.default_rng([217, seed]))):
        best.append(worth)
        rows = {"group": np.repeat(np.arange(PROMPTS), 4), "score": score.ravel(), "correct": right.ravel()}
        parts.append(pl.DataFrame(rows).with_columns(scorer=pl.lit(number)))
    pl.concat(parts).write_parquet(folder / "scores.parquet")
    (folder / "worth.json").write_text(json.dumps(best))


@exact
def each_scorer() -> None:
    """What the question prints of a table with two scorers: one ties with a wrong answer, the other does not."""
    rows = {"scorer": ["a"] * 2 + ["b"] * 2, "group": [0] * 4, "score": [3, 3, 2, 1], "correct": [True, False] * 2}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.parquet"
        pl.DataFrame(rows).write_parquet(path)
        found = ANALYSES.build('best_of_k(each="scorer")')(path)
    assert found.select("scorer", "mean").rows() == [("a", 0.5), ("b", 1.0)]


def judged(rank: Callable[[str], str], rate: Callable[[str], str], size: int) -> dict[str, float | bool]:
    """Best-of-4 accuracy of a judge in either form, and whether rating is the better one, on `size` prompts.

    rank: from the letter of the right answer to what the judge says of all four. rate: from an answer to what it says.
    """

    def says(request: Request) -> str:
        answers = re.findall(r"^(right|wrong) .*$", request.observation.text, re.MULTILINE)
        return rank("ABCD"[answers.index("right")]) if len(answers) == 4 else rate(answers[0])

    rows = pl.DataFrame(
        {
            "prompt": [f"question {i}" for i in range(size)],
            "chosen": [[f"right {i}"] for i in range(size)],
            "rejected": [[f"wrong {i}, {j}" for j in range(3)] for i in range(size)],
        }
    )
    table = judge_forms(rows, PolicyAsker(ScriptedPolicy(says, name="judge"))).filter(domain="overall")
    found = dict(table.select("form", "score").iter_rows())
    return found | {"rating is better": table.filter(form="rating")["better"].item()}


@exact
def place_is_drawn() -> None:
    """A judge that always names what is shown first is right in a quarter, though files have the right answer first."""
    found = judged(lambda right: "VERDICT: A", lambda answer: "5", 400)
    assert abs(found["ranking"] - 0.25) < 0.06, found
    assert found["rating"] == 0.25, found


@exact
def unread_is_a_quarter() -> None:
    """An unread verdict earns chance in either form; a single unread rating ranks below all others."""
    found = judged(lambda right: "all of them", lambda answer: "7 or so, all told", 4)
    assert found["ranking"] == found["rating"] == 0.25, found
    assert judged(lambda right: right, lambda answer: "?" if answer == "wrong" else "1", 4)["rating"] == 1.0
    assert judged(lambda right: right, lambda answer: "?" if answer == "right" else "1", 4)["rating"] == 0.0


@exact
def better_form_counts() -> None:
    """A judge that rates everything alike is taken at its rankings, one that is led by the order at its ratings."""
    found = judged(lambda right: f"VERDICT: {right}", lambda answer: "8", 20)
    assert found == {"ranking": 1.0, "rating": 0.25, "rating is better": False}, found
    found = judged(lambda right: "VERDICT: D", lambda answer: "9" if answer == "right" else "Bad.\n\n2", 20)
    assert found["rating"] == 1.0 > found["ranking"], found
    assert found["rating is better"], found


def agreement() -> Measure:
    """Pearson correlation over scorers of the printed accuracies with the utility of the best of 16."""

    def measured(left: Left) -> list[float]:
        printed = [row["mean"] for row in json.loads(left.stdout)]
        worth = json.loads((left.directory / "worth.json").read_text())
        return [rank_correlation(printed, worth, kind="pearson").mean]

    return measured


def noisy(rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Scores of four answers to each prompt, which is the best, and the utility of the best of 16, scorer by scorer.

    Half of the scorers say a whole number from 1 to 10, as judges do.
    """
    for i, noise in enumerate(np.linspace(0.2, 3, SCORERS)):
        utility = rng.normal(size=(PROMPTS, 16))
        score = utility + noise * rng.normal(size=utility.shape)
        if i % 2:
            score = np.clip(np.round(6 + score), 1, 10)
        tops = score == score.max(1, keepdims=True)
        worth = float(((utility * tops).sum(1) / tops.sum(1)).mean())
        yield score[:, :4], utility[:, :4] == utility[:, :4].max(1, keepdims=True), worth


def scorers(seed: int) -> tuple[list[float], list[float], list[float]]:
    """Best-of-4 accuracy, with ties for and with the fraction, and the utility of the best of 16, of noisy scorers."""
    fair, lenient, best = [], [], []
    for score, right, worth in noisy(np.random.default_rng(seed)):
        best.append(worth)
        rows = {"group": np.repeat(np.arange(PROMPTS), 4), "score": score.ravel(), "correct": right.ravel()}
        frame = pl.DataFrame(rows)
        fair.append(best_of_k_accuracy(frame).mean)
        lenient.append(best_of_k_accuracy(frame, credit="any").mean)
    return fair, lenient, best


@reproduction(
    217,
    claim="Best-of-4 accuracy with a fraction for ties predicts what the best of 16 is worth; counting a tie as right "
    "flatters who rates in whole numbers.",
    baseline="the same accuracy where the right answer need only be among the highest (credit='any')",
    criterion="Pearson correlation with the best of 16 above .95 with "
    "the fraction, and at least .02 above that of the lenient rule, in every seed (held on eight fresh seeds)",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Correlations over 25 scorers, half of them in whole numbers."""
    fair, lenient = [], []
    for seed in seeds:
        one, other, best = scorers(seed)
        fair.append(rank_correlation(one, best, kind="pearson").mean)
        lenient.append(rank_correlation(other, best, kind="pearson").mean)
    gap = float(np.min(np.subtract(fair, lenient)))
    measured = {"fraction": float(min(fair)), "any": float(max(lenient)), "gap": gap}
    return Outcome(measured, measured["fraction"] > 0.95 and gap >= 0.02)
