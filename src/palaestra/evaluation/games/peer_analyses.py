"""Analyses of trust: `palaestra analyze peer_score WEIGHTS.json EVENTS.csv`, and whether it can be bought."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from palaestra.errors import InputError, StorageError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.games.peers import PeerScore, counterexample


def _weights(path: Path, w3: float | None = None) -> PeerScore:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise StorageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    if w3 is not None:
        told["topics"] = {name: {**weights, "w3": w3} for name, weights in told["topics"].items()}
    return PeerScore.of(told)


@ANALYSES.register("peer_score")
def peer_score() -> Analysis:
    """Returns a function (WEIGHTS.json, EVENTS file) -> table: GossipSub score and standing of each peer.

    WEIGHTS.json: topics and caps. Columns of EVENTS: interval, peer, topic, event.

    A row per peer: score, standing, and whether it is in the mesh. Counters decay after each interval.
    """

    def answer(weights: Path, events: Path) -> pl.DataFrame:
        score = _weights(weights)
        frame = table(events, "interval", "peer", "topic", "event").sort("interval", maintain_order=True)
        told = frame.with_columns(pl.col("peer", "topic", "event").cast(pl.String))
        now = told["interval"].min() if len(told) else 0
        for interval, peer, topic, event in told.select("interval", "peer", "topic", "event").iter_rows():
            while now < interval:
                score.interval()
                now += 1  # type: ignore[operator]
            score.event(peer, topic, event)
        score.interval()
        peers = told["peer"].unique(maintain_order=True).to_list()
        found = [score.score(peer) for peer in peers]
        return pl.DataFrame({"peer": peers, "score": found, "standing": [score.standing(each) for each in found]})

    return answer


@ANALYSES.register("buying_off")
def buying_off(silent: str, w3: float | None = None, tries: int = 400, climb: bool = True, seed: int = 0) -> Analysis:
    """Returns a function (WEIGHTS.json) -> table: can a peer that never forwards topic `silent` keep a score >= 0?

    WEIGHTS.json: topics, caps.

    w3: another weight of missing deliveries, in all topics. climb: search around the best behaviour so far, instead of
    drawing all of them.
    """

    def answer(weights: Path) -> pl.DataFrame:
        score = _weights(weights, w3)
        if silent not in score.topics:
            raise InputError(f"buying_off: silent={silent!r} is none of the topics {', '.join(score.topics)}")
        value, behaviour = counterexample(score, silent, tries=tries, climb=climb, seed=seed)
        return pl.DataFrame([{"silent": silent, "score": value, "possible": value >= 0, "behaviour": behaviour}])

    return answer
