"""Draw the README's picture from a finished run: `python docs/images/draw.py runs/demo docs/images/demo.png`."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

BLUE, GREY = "#0068a5", "#6b6f76"


def main(run: Path, picture: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.1), width_ratios=(1, 1.25), layout="constrained")

    curves = []
    for seed in summary["seeds"]:
        lines = [json.loads(line) for line in (run / f"seed-{seed}" / "metrics.jsonl").read_text().splitlines()]
        start = next(each for each in summary["per_seed"] if each["seed"] == seed)["before"]["mean"]
        looks = [(line["iteration"], line["evaluation"]["success"]) for line in lines if line["evaluation"]]
        curves.append([(0, start), *looks])
    iterations = [iteration for iteration, _ in curves[0]]
    success = 100 * np.array([[value for _, value in curve] for curve in curves])
    left.fill_between(iterations, success.min(0), success.max(0), color=BLUE, alpha=0.15, linewidth=0)
    left.plot(iterations, success.mean(0), color=BLUE, marker="o", markersize=3)
    left.set(xlabel="training iteration", ylabel="held-out tasks solved, %", ylim=(0, None))
    left.set_title(f"{len(curves)} seeds: mean and range", loc="left", color=GREY, fontsize=9)

    rows = summary["table"][::-1]
    for place, row in enumerate(rows):
        estimate = {key: 100 * row["success"][key] for key in ("mean", "low", "high")}
        color = BLUE if row["system"] == "after" else GREY
        right.plot([estimate["low"], estimate["high"]], [place, place], color=color)
        right.plot(estimate["mean"], place, "o", color=color, markersize=5)
        right.annotate(f"{estimate['mean']:.1f}", (estimate["mean"], place + 0.17), ha="center", color=color)
    right.set_yticks(range(len(rows)), [row["system"] for row in rows])
    right.set(xlabel="held-out tasks solved, % (95 % interval)", ylim=(-0.5, len(rows) - 0.3), xlim=(-3, 100))
    right.set_title(textwrap.fill(summary["verdict"], 66), loc="left", fontsize=9, color=BLUE)
    figure.savefig(picture, dpi=160)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
