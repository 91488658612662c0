"""Reproductions of teams: what was measured holds, and nothing holds where the method's arm is what the baseline is.

Play and training are not repeated here: what they measured stands in for them, and then what the baseline measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.evaluation.teamwork import retrieve, tree_signal, workflow_cost
from palaestra_atlas import reproductions
from palaestra_atlas.reproductions import Arms, reproduce

Patches = Mapping[str, Any]


def module_of(number: int) -> ModuleType:
    return importlib.import_module(reproductions._modules("palaestra_atlas")[number])


def arms(**table: Mapping[str, float]) -> Callable[..., Arms]:
    """Stands for `train_arms`."""

    def arms_of(recipe: Any, asked: Mapping[str, Any], seeds: Sequence[int], *rest: Any) -> Arms:
        return Arms({arm: {name: np.full(len(seeds), float(x)) for name, x in table[arm].items()} for arm in asked})

    return arms_of


def first_of(table: Mapping[Any, Any]) -> Callable[..., Any]:
    """Stands for a measurement: by its first argument."""
    return lambda key, *rest, **options: table[key]


def removed(game: Any) -> np.ndarray:
    """Each module's worth as what is lost without it."""
    return np.asarray(np.asarray(game)[..., [15]] - np.asarray(game)[..., 15 - 2 ** np.arange(4)])


def advertised(table: pl.DataFrame, budget: float) -> pl.DataFrame:
    """Takes what says that it fits, untried."""
    return pl.DataFrame({"component": retrieve(table, budget), "accepted": True})


def fits(values: Any, costs: Any, budget: float, **bounds: float) -> np.ndarray:
    """Takes what comes until nothing fits."""
    return np.asarray(np.cumsum(np.broadcast_to(costs, values.shape), -1) <= budget * (1 + 1e-9))


def mazes(solved: bool, steps: int = 5) -> pl.DataFrame:
    return pl.DataFrame({"task": [f"{k}" for k in range(4)], "success": [True, True, solved, solved], "steps": steps})


def unread(table: pl.DataFrame) -> pl.DataFrame:
    """Nobody reads the case."""
    return table.with_columns(actions=pl.Series([["Restart it"]] * len(table)))


MASTER = {("master", 8): 0.76, ("greedy", 8): 0.81, ("random", 8): 0.61, ("master", 14): 0.88, ("greedy", 14): 0.86,
          ("random", 14): 0.8}  # fmt: skip
EDGES = {("learned", 0.5): 0.69, ("all", 0.0): 0.58, ("drawn", 0.0): 0.59, ("none", 0.0): 0.7, ("learned", 1e6): 0.6}
COMPOSED = {
    6: {"online": (0.6, 4.0), "offline": (0.5, 6.0), "many": (0.68, 6.0), "retrieval": (0.42, 5.8)},
    12: {"online": (0.83, 6.0), "offline": (0.61, 10.0), "many": (0.86, 11.9), "retrieval": (0.55, 10.0)},
}
TRIES = {1: 3.33, 2: 4.7, 4: 7.3, 8: 12.8}
PAPERS = {
    "shared": (np.linspace(0.69, 0.73, 12), 14.0, 7.2), "own": (np.linspace(0.66, 0.7, 12), 21.0, 8.5),
    "none": (np.linspace(0.65, 0.69, 12), 30.0, 8.0),
}  # fmt: skip
DESIGNS = {"guided": 1.01, "surprise": 1.0, "unguided": 0.89, "climb": 0.92, "drawn": 0.89}
AUCTION = {"sale": 0.81, "price": 0.19, "largest": 0.72, "oracle": 0.9, "random": 0.5}
NESTED = AUCTION | {"sale": 0.72}
PLANS = {(0.0, when): 0.996 for when in ("never", "on_failure", "after_each")} | {
    (0.3, "never"): 0.492, (0.3, "on_failure"): 0.922, (0.3, "after_each"): 0.996, (0.6, "never"): 0.255,
    (0.6, "on_failure"): 0.745, (0.6, "after_each"): 0.996,
}  # fmt: skip
AUDITED = {
    "none": {0.3: 0.14, 0.45: 0.37, 0.6: 0.67}, "reject": {0.3: 0.44, 0.45: 0.71, 0.6: 0.9},
    "rectify": {0.3: 0.77, 0.45: 0.86, 0.6: 0.94}, "blind": {0.3: 0.15, 0.45: 0.38, 0.6: 0.66},
}  # fmt: skip
REFINED = {"none": (0.75, 0.64), "last": (0.89, 0.89), "best": (0.97, 0.78)}
CRAFT = {
    "solo": 49.0, "forgetful": 70.0, "silent_2": 47.0, "told_2": 28.0, "broadcast_2": 28.0, "silent_6": 46.0,
    "told_6": 15.0,
}  # fmt: skip
BLIND, EARLY = {"before": 0.62, "after": 0.59}, {"found": 0.58}
ROUTER = {"success": 0.97, "fitting": 1.0}
SEAT = {"nodes_easy": 1.1, "nodes_medium": 6.0, "nodes_hard": 9.0, "success_easy": 0.92}
LARGE = {"nodes_easy": 6.8, "nodes_medium": 9.4, "nodes_hard": 9.9, "success_easy": 0.92}
ONE = {"nodes_easy": 1.0, "nodes_medium": 1.0, "nodes_hard": 1.0, "success_easy": 0.9}


def audit(table: Mapping[str, Mapping[float, float]]) -> Callable[..., tuple[float, float, float]]:
    return lambda accuracy, name, seed: (table[name][accuracy], 12.0 - 5 * accuracy, 0.0)


def refined(table: Mapping[str, tuple[float, float]]) -> Callable[..., float]:
    blind = {"last": 0.55, "best": 0.55 + 0.2 * (table["best"] != table["last"])}
    return lambda condition, fidelity, noise, seed: table[condition][noise > 0] if fidelity else blind[condition]


def crafted(table: Mapping[str, float]) -> Callable[..., tuple[float, float]]:
    module = module_of(181)

    def played(seed: int, **options: Any) -> tuple[float, float]:
        arm = next(name for name, each in module.ARMS.items() if each == options)
        steps = {"no_inventory_2": 46.0, "no_discovery_2": 27.0}.get(arm, 30.0)
        return table.get(arm, steps), 5.6 if arm == "broadcast_2" else 1.8

    return played


def partners(table: Mapping[str, Mapping[str, float]]) -> Callable[..., tuple[float, float]]:
    def played(seed: int, *, types: Sequence[str] = (), shows: str = "", retries: int = 0, **rest: Any) -> Any:
        if types:
            return table[shows][types[0]], 0.0
        return (0.89, 0.0) if retries else (0.81, 0.09)

    return played


CARD_94: dict[str, dict[str, float]] = module_of(94).CARD
NOTHING = pl.DataFrame({"x": [0]})
STAGES = module_of(58).STAGES


def losses(*asked: Any) -> pl.DataFrame:
    """Of the weak model, by name, as its closed form has them."""
    module = module_of(58)
    whole = module.expected(STAGES, 0.8)
    without = {name: whole * module.ALONE / (p + (1 - p) * 0.8 * p) for name, p in STAGES.items()}
    return pl.DataFrame([("weak", name, whole - without[name]) for name in sorted(STAGES)],
                        schema=["model", "module", "loss"], orient="row")  # fmt: skip


def utility(conditional: str = "conditional") -> Callable[..., pl.DataFrame]:
    names = [*(name for name in sorted(STAGES) if name != "analysis"), "analysis"]
    kinds = ["universal"] * (len(names) - 1) + [conditional]
    return lambda found: pl.DataFrame({"module": names, "kind": kinds, "deviation": 0.1})


def coordinated(overhead: float) -> Callable[[int], pl.DataFrame]:
    rows = [("single", 0.0, 0.0, 1.0), ("debate", overhead, 1.0, 0.2), ("star", 3.0, 0.75, 0.3), ("votes", 2.0, 0, 0.4)]
    return lambda seed: pl.DataFrame(rows, schema=["system", "overhead", "density", "efficiency"], orient="row")


MEASURED: dict[int, Patches] = {
    12: {"solved": lambda how, budget, seed: MASTER[how, budget]},
    23: {},
    24: {"debated": lambda how, noise, rng: EDGES[how, noise]},
    40: {},
    45: {"knapsacks": lambda rng: (1.95, 4.5, 4.68, 63.0), "composed": lambda rng, budget: COMPOSED[budget]},
    53: {},
    54: {"best_of": lambda tries, rng: (TRIES[tries], 3.33)},
    58: {"solved": lambda skill, catches, seed, retries=1: module_of(58).expected(skill, catches),
         "ablated": lambda *asked: NOTHING, "removals": losses, "module_utility": utility()},
    60: {"relayed": lambda after, seed: {0: 0.39, 1: 0.8, 2: 0.89, 4: 0.94}[after],
         "maze": lambda how, condition, seed: mazes(set(how.values()) <= {"alone", "tells"})},
    63: {"written": first_of(PAPERS)},
    70: {"WAYS": {name: name for name in DESIGNS}, "best": first_of(DESIGNS), "LANDSCAPES": 1},
    79: {"played": coordinated(5.0)},
    85: {"auctioned": lambda own, rng: AUCTION if own else NESTED,
         "remembered": lambda rng, refining: (0.6, 0.82) if refining else (0.42, 0.42)},
    88: {"played": lambda seed: None,
         "module_values": lambda table: pl.DataFrame({"value": module_of(88).EXACT, "stderr": [0.016] * 4})},
    91: {"planned": lambda when, drift, seed: PLANS[drift, when],
         "train_arms": arms(router=ROUTER, alone={"success": 0.49, "fitting": 0.5})},
    94: {"played": partners(CARD_94), "train_arms": arms(intention={"reward": 0.86}, last={"reward": 0.59})},
    111: {"played": audit(AUDITED)},
    113: {},
    116: {"played": refined(REFINED)},
    118: {"played": lambda bias, seed: (0.87 if bias else 0.63, 0.77, [0.5, 0.5])},
    120: {"train_arms": arms(linucb={"before": 0.78, "after": 0.79}, keeps_all={"before": 0.78, "after": 0.8},
                             ucb1={"before": 0.62, "after": 0.59})},
    121: {"simulated": lambda branch, rho, rng: tree_signal(0.1, branch=branch, depth=4, fidelity=0.9,
                                                            correlation=rho)},
    122: {"regret": first_of({"ucb1": 100.0, "epsilon": 45.0}), "bought": first_of({"ucb1": 300.0, "ratio_ucb": 510.0}),
          "starved": first_of({"ucb1": (1.0, 1999.0), "exp3": (1003.0, 1100.0)})},
    129: {"GROWTH": {1: 3.0, 10: 7.6},
          "train_arms": arms(hindsight_10={"found": 1.0}, success_10={"found": 0.58}, success_40={"found": 0.83})},
    130: {"train_arms": arms(language={**SEAT, "nodes_hard": 6.1}, table=SEAT, unweighted=ONE, no_density=LARGE)},
    135: {"importance": lambda seed: module_of(135).ACCURACY,
          "success": lambda members, seed: float(np.mean([module_of(135).ACCURACY[name] for name in members]))},
    137: {},
    140: {},
    144: {},
    181: {"played": crafted(CRAFT), "train_arms": arms(told={"reward": 0.6}, silent={"reward": 0.5})},
}  # fmt: skip
"""What play and training measured, in place of them; systems without any are measured anew, in well under a second."""

completion = module_of(137).completion
cases = module_of(144).cases

WITHOUT: list[tuple[int, Patches]] = [
    (12, {"solved": lambda how, budget, seed: MASTER["greedy" if how == "master" else how, budget]}),
    (12, {"confidence_uct": lambda tree, **options: tree.prior}),
    (23, {"recent_scores": lambda rewards: np.ones_like(rewards)}),
    (24, {"debated": lambda how, noise, rng: EDGES["drawn" if how == "learned" else how, 0.0]}),
    (40, {"contributions": lambda vectors: np.zeros(vectors.shape[:2]), "exact": lambda vectors: np.zeros(1)}),
    (45, {"composed": module_of(45).composed, "compose": advertised, "INVENTORIES": 2}),
    (45, {"knapsacks": module_of(45).knapsacks, "threshold_knapsack": fits, "ORDERS": 20}),
    (53, {"score_at_cost": lambda points, cost: points.filter(pl.col("cost") <= cost)["score"].mean()}),
    (54, {"best_of": lambda tries, rng: (TRIES[tries], TRIES[tries])}),
    (54, {"pooled": lambda costs, success: float(np.mean(np.array(costs) / np.maximum(success, 0.5)))}),
    (58, {"solved": lambda skill, catches, seed, retries=1: module_of(58).expected(skill, 0.0)}),
    (58, {"module_utility": utility("universal")}),
    (60, {"maze": lambda how, condition, seed: mazes("alone" in how.values())}),
    (60, {"relayed": lambda after, seed: 0.39}),
    (63, {"written": first_of({**PAPERS, "shared": PAPERS["own"]})}),
    (70, {"best": first_of({**DESIGNS, "guided": DESIGNS["unguided"]})}),
    (79, {"played": coordinated(0.0)}),
    (79, {"turn_law": lambda members, turns: (1.0, 1.0)}),
    (85, {"auctioned": lambda own, rng: NESTED}),
    (85, {"remembered": lambda rng, refining: (0.42, 0.42)}),
    (88, {"shapley_of": removed}),
    (91, {"planned": lambda when, drift, seed: PLANS[drift, "never"]}),
    (91, {"train_arms": arms(router={**ROUTER, "success": 0.49}, alone={**ROUTER, "success": 0.49})}),
    (94, {"played": partners({**CARD_94, "intention": CARD_94["last"]})}),
    (94, {"train_arms": arms(intention={"reward": 0.59}, last={"reward": 0.59})}),
    (111, {"played": audit({**AUDITED, "rectify": AUDITED["reject"]})}),
    (111, {"played": audit({**AUDITED, "reject": AUDITED["none"]})}),
    (113, {"effective_channels": lambda vectors: float(len(vectors))}),
    (116, {"played": refined({**REFINED, "best": REFINED["last"]})}),
    (118, {"played": lambda bias, seed: (0.63, 0.77, [0.5, 0.5])}),
    (120, {"train_arms": arms(linucb=BLIND, keeps_all=BLIND, ucb1=BLIND)}),
    (121, {"tree_signal": lambda leaf, **options: leaf}),
    (121, {"best_tree": lambda budget, **options: (0, 0.0)}),
    (122, {"starved": first_of(dict.fromkeys(("ucb1", "exp3"), (1.0, 1999.0)))}),
    (122, {"bought": first_of(dict.fromkeys(("ucb1", "ratio_ucb"), 300.0))}),
    (129, {"train_arms": arms(hindsight_10=EARLY, success_10=EARLY, success_40=EARLY)}),
    (129, {"new_arm_probability": lambda theta, known: theta}),
    (130, {"train_arms": arms(language=LARGE, table=LARGE, unweighted=ONE, no_density=LARGE)}),
    (135, {"importance": lambda seed: dict(zip(module_of(135).ACCURACY, np.random.default_rng(seed).random(7)))}),
    (137, {"completion": lambda method, *rest: completion("expert" if method == "spp" else method, *rest)}),
    (140, {"workflow_cost": lambda *asked: (workflow_cost(*asked)[0],) * 2}),
    (144, {"cases": lambda skill, rng: unread(cases(skill, rng))}),
    (181, {"played": crafted({**CRAFT, "told_2": CRAFT["silent_2"], "told_6": CRAFT["silent_6"]})}),
    (181, {"played": crafted({**CRAFT, "forgetful": CRAFT["solo"]})}),
    (181, {"train_arms": arms(told={"reward": 0.5}, silent={"reward": 0.5})}),
]
"""The method's arm as the baseline's, or the rule as the one that it replaces."""


def judged(number: int, monkeypatch: pytest.MonkeyPatch, *patches: Patches) -> bool:
    module = module_of(number)
    for name, value in {name: value for each in patches for name, value in each.items()}.items():
        monkeypatch.setattr(module, name, value)
    return reproduce(number)[0].holds


def test_every_system_is_here() -> None:
    teams = {number for number, module in reproductions._modules("palaestra_atlas").items() if ".teams." in module}
    assert set(MEASURED) | {189} == teams == {number for number, _ in WITHOUT} | {189}


@pytest.mark.parametrize("number", MEASURED)
def test_it_holds_with_what_was_measured(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(number, monkeypatch, MEASURED[number])


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # a constant correlates with nothing
@pytest.mark.parametrize(("number", "without"), WITHOUT, ids=[f"{n}-{'-'.join(w)}" for n, w in WITHOUT])
def test_it_fails_without_the_method(number: int, without: Patches, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not judged(number, monkeypatch, MEASURED[number], without)


def test_a_heading_that_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(189)
    monkeypatch.setattr(module, "HEADINGS", {**module.HEADINGS, ("Parts", "none"): ("palaestra.nowhere",)})
    assert not reproduce(189)[0].holds
