"""Every stage, loss and critic on small tables, ties among them, gives what it gave; see `tests.frozen_values`.

Terms against verl and TRL are in `terms/test_frozen.py`; here is what they say of themselves, and where a ratio stands
exactly on the clip.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.frozen import Case, kinds, texts
from tests.frozen_values import ROWS, differences, write
from torch import Tensor

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import SCHEMA, Turns
from palaestra.envs import make
from palaestra.envs.worlds import Maze
from palaestra.learning import PolicyGradient, losses
from palaestra.learning.alarms import alarms
from palaestra.learning.auxiliary import last_turns, reward_classes
from palaestra.learning.batch import make_batch, minibatches, pieces
from palaestra.learning.critics import NetworkCritic, Replay, TokenBaseline, ValueNetwork, network
from palaestra.learning.decomposition import NetworkDecomposition
from palaestra.learning.iteration_metrics import measure, split
from palaestra.learning.learning_rates import decay
from palaestra.learning.objective import objective
from palaestra.learning.stages.cells import hashed, vectors
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.stage import STAGES, Context
from palaestra.learning.terms import TERMS, MicroBatch
from palaestra.learning.terms.term import ends, number, share_of_episodes
from palaestra.play.executors import Local, Plan
from palaestra.testing.columns import COLUMNS, made
from palaestra.testing.signal import sample_turns

FROZEN = Path(__file__).with_name("frozen.json")
CORRIDOR = make("native/corridor", cells=3, horizon=6)
LINE = functools.partial(Maze, "S......G", bonus={"S": 0.3})


def tables(agents: tuple[str, ...] = ("a", "b")) -> list[Turns]:
    """Three iterations, with nulls, cut-off episodes and every column that the conformance test knows."""
    rng = np.random.default_rng(4)
    found = []
    for iteration in (1, 2, 3):
        turns = sample_turns(rng, groups=(3, 4, 1), agents=agents, missing=0.1, iteration=iteration)
        cut = pl.lit(pl.Series(rng.random(len(turns)) < 0.3)).first().over("group", "episode")
        columns: dict[str, Any] = {
            name: made(name, turns, rng) for name in sorted(COLUMNS) if name not in turns.columns
        }
        turns = turns.with_column(truncated=cut, terminated=~cut, **columns)
        found.append(turns.filter(pl.col("error").is_null()))
    return found


def after(text: str, env: Any = None, team: Team | None = None, size: int = 6) -> list[object]:
    """Plans, columns and metrics of a stage in three iterations: of play in an env, or of the tables."""
    stage, found = STAGES.build(text), []
    given = [None] * 3 if env else tables()
    for iteration, turns in enumerate(given, start=1):
        context = Context(
            np.random.default_rng(iteration), iteration, env or CORRIDOR, team or walker(), Local(), seed=0, planned=3
        )
        plan = stage.plan(Plan(groups=4, group_size=size, iteration=iteration), context)
        before = Local().play(env, team or walker(), plan) if turns is None else turns
        now = stage(before, context)
        keys = ("iteration", "group", "episode", "turn", "action", "reward") if len(now) != len(before) else ()
        new = [name for name in now.columns if name in keys or name not in {*before.columns, *SCHEMA}]
        sizes = plan.group_size if isinstance(plan.group_size, int) else list(plan.group_size)
        found.append(
            [
                len(now),
                now.frame.select(new),
                sizes,
                list(plan.env_seeds or ()),
                context.spent.calls,
                context.spent.tokens,
                {name: value for name, value in context.metrics.items() if "seconds" not in name},
            ]
        )
    return found


def walker(size: int = 3) -> Team:
    return Team({"walker": TabularPolicy(size, name="walker")})


STAGE_TEXTS = texts("""
    critic() | critic(lam=0.5, gamma=0.5, rate=0.5) | critic(finished=True) | critic(finished=True, lam=0.5) |
    critic(over='agent', target='agent_return()', rate=0.05) | critic('network', size=8, steps=3, batch=4, hidden=[3])~
    | counts() | counts(['agent', 'state']) | running_scale('reward') | running_scale('cost') |
    rnd(size=4, hidden=4, epochs=2)~~ | embed(size=8) | embed('action', size=5, texts={'goal': 'did 1'}) |
    embed(size=3) #2 | anchors() | anchors(0.5, column='action') | anchors(1.0) | difficulty() |
    difficulty(last=2, score='valid') | difficulty(last=1, tasks=2) | multipliers({'cost': 0.5}, rate=0.5) |
    multipliers({'cost': 0.5, 'duration': 0.7}, start=0.25) | prefix_critic(rate=0.5) | prefix_critic(gamma=0.5) |
    progress(factors=['cost', 'duration']) | progress(factors=['cost'], method='rrd', average=True, ridge=0.1, draws=2)
    | progress('network', factors=['cost', 'duration'], updates=3, size=2, hidden=[3], last=5)~ | replay() |
    replay(k=2, last=2, solved=0.0) | replay(k=1, tasks=1, score='cost') |
    token_critic(buckets=8, size=4, hidden=4, steps=2, batch=4)~~ |
    token_critic(buckets=2, gamma=0.5, size=4, hidden=4, steps=1, lr=0.01)~~ | tournament() |
    tournament(topology='round_robin') | tournament('cost', noise=0.5) | preferences() | dynamic_sampling() |
    failure_tasks() | fixed_data() | outcome_critics() | reference_logprobs()~~ | thinking() | pairs() | accumulate() |
    task_table() | utterance_reward()
""")
PLAYED = texts("""
    q_critic(states=6, batches=3, batch=4) | q_critic(rows='played', batches=3, gamma=0.5, tau=0.5, rate=0.25) |
    q_critic(rows='played', joint=True, memory=20, batches=2) |
    q_critic('network', rows='played', size=4, hidden=[3], batches=2, batch=4)~ |
    q_critic('network', states=5, size=4, hidden=[3], batches=2, batch=4, joint=True)~ | predicted_budget(minimum=1) |
    predicted_budget(last=8) | failure_replay(every=2, capacity=3, solved=0.5) |
    failure_replay(every=1, fraction=0.75, capacity=2) | failure_replay(every=1, solved=1.0) |
    curriculum(edges=[2, 4], at_step=[2, 3], draws=2) | curriculum(edges=[2, 4], at_success=0.5, draws=3) |
    curriculum(edges=[50], at_success=0.0, draws=2) | mc_values(2) | control_filter() | injection() | experience() |
    search_paths() | share() | share(1, 2) | success_replay() | dynamic_sampling() | population() | outcome_critics() |
    task_table() | failure_tasks() | preferences()
""")


def of_stages() -> Iterator[tuple[str, Case]]:
    for text in STAGE_TEXTS:
        yield f"stage {text}", lambda t=text: after(t.split("~")[0].split(" #")[0])
    for text in PLAYED:
        yield f"played {text}", lambda t=text: after(t.split("~")[0], CORRIDOR)
    for text in (
        "designed()",
        "designed(2, gamma=0.5, horizons=[1, 3])",
        "designed(adapt=2)",
        "designed(adapt=1)",
        "designed(adapt=3)",
        "explors(every=2)",
        "explors(scale=0.5, most=0.25, rate=0.1, gamma=0.5, every=1)",
        "bilevel(first=2)",
        "bilevel(per_state=True, gamma=0.5)",
    ):
        yield f"maze {text}~", lambda t=text: after(t, LINE, walker(2), 3)
    jobs, lock = make("native/jobs", seconds=10), make("native/lock", locks=2)
    for text in (
        "asynchronous(workers=6, batch=2)",
        "asynchronous(workers=4, batch=4, budget=15.0)",
        "asynchronous(workers=2, batch=1, budget=1.0)",
        "asynchronous(workers=2, batch=1, budget=2.0)",
    ):
        yield f"jobs {text}", lambda t=text: after(t, jobs, Team(engineer=TabularPolicy(2)))
    for text in ("hints()", "hints(share=0.25, low=0.25, high=0.5, noise=0.5)", "hints(share=1.0, low=0.0, high=1.0)"):
        yield f"lock {text}", lambda t=text: after(t, lock, Team(opener=TabularPolicy(4)))
    for text in texts("""
        critic(steps=0) | critic(batch=0) | critic(size=0) | critic(lr=0) | critic(steps=1, batch=1, size=1, lr=0.1) |
        q_critic(memory=0) | q_critic(batch=1, memory=1, states=1, batches=1, size=1) | rnd(size=0) | rnd(lr=0.0) |
        rnd(size=1, hidden=1, epochs=1) | embed(size=0) | embed(size=1) | token_critic(steps=0) | token_critic(lr=0) |
        token_critic(buckets=1, size=1, hidden=1, steps=1, batch=1) | designed(0) | designed(1, adapt=1) |
        designed(adapt=0) | curriculum(edges=[1], at_step=[1], draws=0) | curriculum(edges=[1], at_step=[1], draws=1) |
        curriculum(edges=[2, 2], at_success=0.5) | failure_replay(fraction=0) |
        failure_replay(fraction=1, every=1, capacity=1) | failure_replay(fraction=1.1) | failure_replay(capacity=0) |
        failure_replay(every=0) | difficulty(last=0) | difficulty(tasks=0) | difficulty(last=1, tasks=1) | replay(0) |
        replay(1, last=1, tasks=1) | replay(last=0) | replay(tasks=0) | mc_values(0) | mc_values(1, limit=1) |
        mc_values(limit=0) | hints(share=0) | hints(share=1.1) | hints(low=-0.1) | hints(low=0.8) | hints(high=1.1) |
        hints(low=0.7) | hints(noise=-0.1) | asynchronous(workers=0) | asynchronous(workers=1, batch=1) |
        asynchronous(workers=1, batch=2) | asynchronous(batch=0) | asynchronous(budget=0) | anchors(0) | anchors(1.1) |
        anchors(-0.1) | predicted_budget(minimum=0) | predicted_budget(minimum=1, last=1) | predicted_budget(last=0) |
        probe(samples=-1) | probe(samples=0) | reflect(share=0) | reflect(share=1.0) | reflect(share=1.1) |
        reflect(last=0) | reflect(last=1) | process_reward(beta=0) | process_reward(lr=0) | process_reward(epochs=0) |
        process_reward(epochs=1, chunk=1) | process_reward(chunk=0) | explors(every=0) | explors(every=1) |
        bilevel(first=0) | bilevel(first=1) | bilevel(first=-1) | explors(scale=0) | explors(most=0) |
        explors(rate=-1) | explors(rate=0) | shock(0) | shock(1) | step_rewards() | step_rewards('x', steps=1) |
        step_rewards('x', steps=2, episodes=1) | step_rewards('x', episodes=0) | step_rewards('x', films='y') |
        alternate(every=-1) | alternate(every=0) | alternate(refresh=0) | alternate(refresh=1) |
        rubric_game(rounds=-1) | rubric_game(rounds=0) | rubric_game(flaws=1) |
        rubric_game(flaws=0) | debate(length=0) | debate(length=1) |
        process_reward(beta=0.1, epochs=0) | process_reward(epochs=-1) | judge() | judge(question='?', rubric='x') |
        replay(k=0) | replay(k=-1) | tournament(noise=-1) | tournament(noise=0) |
        multipliers({'cost': 1}, rate=0) | multipliers({'cost': 1}, rate=-1) | multipliers({'cost': 1}, start=-1) |
        progress(draws=0) | progress(factors=['cost'], draws=1) | progress(factors=['cost'], updates=0) |
        progress(factors=['cost'], ridge=-1) | prefix_critic(rate=0) | prefix_critic(rate=1) | prefix_critic(rate=1.1)
    """):
        yield f"made {text}", lambda t=text: [type(STAGES.build(t)).__name__]


def padded(rows: int = 6, width: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Log-ratios in quarters with zeros and both limits, advantages in halves with zeros, and a mask."""
    rng = np.random.default_rng(seed)
    ratio = torch.from_numpy(np.round(rng.normal(size=(rows, width)) * 4) / 4)
    ratio[0, :3] = torch.tensor([20.0, -20.0, 20.25])
    ratio[1, :2] = 0.0
    credit = torch.from_numpy(np.round(rng.normal(size=(rows, width)) * 2) / 2)
    return ratio, credit, torch.from_numpy(np.arange(width) < rng.integers(1, width + 1, (rows, 1)))


def spoken(text: str) -> list[object]:
    """The value of a term on the edge of its clip, its slope, and what it logs."""
    ratio, credit, mask = padded()
    new = (
        -torch.rand(ratio.shape, dtype=torch.double, generator=torch.Generator().manual_seed(1)) - 0.1
    ).requires_grad_()
    chances = torch.stack([new, torch.log1p(-new.exp())], -1)
    piece = MicroBatch.of(
        new,
        old=new.detach() - ratio,
        advantage=credit.masked_fill(~mask, 0.0),
        mask=mask,
        entropies=-new * new.exp(),
        logits=chances,
        reference=new.detach() - ratio / 2,
        reference_logits=chances.detach() * 1.5,
        memory={"history": [1.2, 1.4]},
        planned=9,
        columns={
            "episode": [0, 0, 1, 1, 2, 2],
            "pair": [0, 0, 1, 1, 2, 2],
            "chosen": [True, False] * 3,
            "return": [1.0, None, 0.5, 0, 0.5, 2],
            "weight": [1.0, 0, -1, None, 2, 0.5],
            "value": [0.0] * 6,
            "helped": [True, False, None] * 2,
        },
    )
    loss = TERMS.build(text)(piece)
    (slope,) = torch.autograd.grad(loss, [new], allow_unused=True)
    logged = [(name, per, float(value.double().sum())) for _, name, per, value in piece.step.logged]
    return [float(loss.detach()), None if slope is None else slope.numpy(), logged]


def of_terms() -> Iterator[tuple[str, Case]]:
    for name in TERMS:
        if name not in ("auxiliary", "information", "kto", "task_classifier", "value"):
            yield f"term {name}", lambda n=name: spoken(f"{n}()")
    for text in texts("""
        surrogate(0) | surrogate(0, dual_clip=1.5) | surrogate([0, None]) | gmpo(0.25) | gmpo([0.25, None]) | rloo(0) |
        cispo(0) | cispo([None, 0]) | reinforce(1.0) | dppo(0) | dppo(0, divergence='kl') | dppo(0.1, truncate=1.0) |
        sapo(2, 0.5) | vespo([1, 1], [2, 0.5]) | clip_cov(0, share=0.5, low=0, high=0.5) | kl_cov(share=0.3) |
        kl(0.5, 'k3') | kl(0.5, 'k1+') | corridor(1.0) | corridor(1.0, 0.5, 0.9) | dro(0.5)
    """):
        yield f"term {text}", lambda t=text: spoken(t)
    for text in texts("""
        surrogate(-0.1) | surrogate([0.1]) | surrogate([0.1, 0.2, 0.3]) | surrogate(dual_clip=0.9) |
        surrogate(dual_clip=1.0) | sapo(0) | sapo(1e-6) | reinforce(-1) | reinforce(0) | dppo(truncate=-1) | dro(-1) |
        vespo([0, 0.0001]) | vespo([0, 0]) | clip_cov(share=0) | clip_cov(share=1) | clip_cov(share=1.1) |
        clip_cov(low=2, high=1) | clip_cov(low=1, high=1) | kl_cov(-1) | kl_cov(0) | surrogate(constant=0) |
        surrogate(aggregate='constant') | corridor(1, 0.9, 0.8) | corridor(1, 1, 1) | corridor(-1) | kl(-1) | dpo(0) |
        dpo(smoothing=-0.1) | dpo(smoothing=0.5) | dpo(smoothing=0.6) | kto(desirable=-1) | kto(desirable=0) | value(-1)
        | value(0) | value(clip=-1) | value(clip=0) | simpo(0) | orpo(0) | auxiliary(sequence=0) | auxiliary(sequence=1)
        | auxiliary(zero=-1) | entropy(-1)
    """):
        yield f"made {text}", lambda t=text: TERMS.build(t).name
    yield "names", lambda: [list(objective(text)) for text in ("kl(), kl(), entropy(), kl()", "surrogate()")]
    yield "ends", lambda: [ends("x", clip) for clip in (0, None, (0.1, None), (0, 0))]
    for value in (1.0, 0.5, 2.0, float("nan"), True):
        yield f"number {value}", lambda v=value: [number("x", low=1.0, high=1.5, v=v), 1]
    yield "share of episodes", lambda: share_of_episodes(tables()[0].frame)
    ratio, credit, mask = padded()
    for how in losses.AGGREGATIONS:
        yield (
            f"aggregate {how}",
            lambda h=how: [
                losses.aggregate(credit, m, how=h, constant=7, rows=rows, tokens=n)
                for m in (mask, mask & False)
                for rows, n in ((None, None), (9, 20))
            ],
        )
    yield "no constant", lambda: losses.aggregate(credit, mask, how="constant")
    for low, high, dual in ((0.2, 0.2, None), (0.0, 0.0, 1.0), (None, 0.2, 2.0), (0.2, None, 3.0), (None, None, None)):
        yield (
            f"clip {low}, {high}, {dual}",
            lambda a=low, b=high, c=dual: [
                x.double().numpy() for x in losses.clipped_surrogate(ratio / 4, credit, low=a, high=b, dual=c)
            ],
        )
    for level in losses.LEVELS:
        yield f"log-ratio {level}", lambda k=level: losses.log_ratio(ratio * 1.5, -credit, mask, level=k).numpy()
    for name in losses.ESTIMATORS[1:]:
        yield f"kl {name}", lambda n=name: losses.kl_estimate(ratio, credit, estimator=n).numpy()
    yield (
        "odds",
        lambda: losses.log_odds(torch.tensor([-1e-9, -0.1, -np.log(2), -0.7, -5.0], dtype=torch.double)).numpy(),
    )
    yield "two sides", lambda: [losses.two_sided(credit, e).numpy() for e in (0.0, 0.25, 0.5)]
    yield (
        "corridor",
        lambda: [
            losses.entropy_corridor(credit.abs(), mask, h, low=0.5, high=1.5, smooth=2.0, rows=r)
            for h in (None, 0.5, 1.0)
            for r in (None, 9)
        ],
    )
    yield (
        "corridor's weight",
        lambda: [
            losses.corridor_weight(k, n, decay=d)
            for k, n, d in ((0, 4, 1), (3, 4, 1), (3, 5, 0.5), (1, 1, 1), (2, 0, 1))
        ],
    )
    yield (
        "epo",
        lambda: [
            losses.epo_entropy(credit.abs(), mask, 0.5, step=k, steps=4, weight=0.5, decay=0.5, share=s, rows=9)
            for k in (0, 3)
            for s in (None, torch.full((6, 1), 0.5))
        ],
    )


def of_networks() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(3)
    x, goal = rng.normal(size=(9, 2)), np.append(rng.normal(size=8), np.nan)

    def valued(steps: int, batch: int) -> np.ndarray:
        made = ValueNetwork(2, hidden=(3,), lr=0.05, seed=1)
        made.fit(x, goal, np.random.default_rng(0), steps=steps, batch=batch)
        return made.predict(x)

    yield "value network~", lambda: [valued(3, 4), valued(2, 99), valued(0, 4)]
    yield "sizes", lambda: [[p.shape for p in network(3, hidden, 2).parameters()] for hidden in ((), (4,), (4, 5))]
    replay = Replay(x, rng.normal(size=(9, 1)), goal[:9].copy(), x[::-1].copy(), np.arange(9) % 2 == 0)
    replay = replay._replace(reward=np.nan_to_num(goal))
    yield (
        "turn critic~",
        lambda: [
            NetworkCritic(2, 1, hidden=(3,), gamma=g, tau=t, lr=0.01, seed=2)
            .fit(replay, type_of_fresh(replay), np.random.default_rng(1), batches=3, size=5)
            .values(x, replay.action)
            for g, t in ((0.9, 0.1), (0.5, 1.0))
        ],
    )
    for options in (
        {"gamma": -0.1},
        {"gamma": 1.1},
        {"gamma": 0.0},
        {"gamma": 1.0},
        {"tau": 0.0},
        {"tau": 1.0},
        {"tau": 1.1},
        {"lr": 0.0},
    ):
        yield f"turn critic {options}", lambda o=options: [NetworkCritic(1, 1, **o).gamma]
    yield (
        "baseline of tokens~~",
        lambda: [
            TokenBaseline(8, size=3, hidden=3, seed=1)
            .fit(tables()[0].with_column(advantage=pl.col("cost")), np.random.default_rng(0), steps=2, size=4)
            .predict(tables()[1])
            .values
        ],
    )
    episode, returns = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2]), np.array([1.0, -1.0, 0.5])
    for method in ("rd", "rrd"):
        yield (
            f"decomposition {method}~",
            lambda m=method: [
                NetworkDecomposition(2, hidden=(3,), method=m, steps=k, lr=0.01, seed=1)
                .fit(x, episode, returns, np.random.default_rng(2), updates=3, batch=2)
                .predict(x)
                for k in (2, 3)
            ],
        )
    for options in ({"steps": 1}, {"steps": 2}, {"lr": 0.0}):
        yield f"decomposition {options}", lambda o=options: [NetworkDecomposition(1, **o).steps]
    base = {"errors": {"env": 2}, "groups": 10, "incomplete_groups": 0, "reward": 0.5}
    one = {"entropy": 1.0, "distinct_actions": 0.5, "zero_credit": 0.5, "illegal": 0.1, "kl": 1.0}
    for change in (
        {},
        {"entropy": 0.1},
        {"entropy": 0.09},
        {"distinct_actions": 0.1},
        {"distinct_actions": 0.05},
        {"zero_credit": 0.95},
        {"zero_credit": 0.96},
        {"illegal": 0.2},
        {"illegal": 0.3},
        {"illegal": None},
        {"broken_prefixes": 0.1},
        {"broken_prefixes": 0.11},
        {"mismatch": 0.1, "mismatch_max": 1.0, "mismatch_ess": 0.5},
        {"mismatch": 0.11, "mismatch_max": 1.0, "mismatch_ess": 0.5},
        {"mismatch": 0.0, "mismatch_max": 1.0, "mismatch_ess": 0.49},
        {"kl": 3.0},
        {"kl": 3.5},
        {"kl": None},
        {"entropy": None},
    ):
        yield (
            f"alarm {change}",
            lambda c=change: [
                alarms(base | {"policies": {"p": one | c}}, [base | {"policies": start}])
                for start in ({"p": one}, {}, {"p": one | {"illegal": 0.3}}, {"p": one | {"entropy": 0}})
            ],
        )
    for change in (
        {"version_lag": 4},
        {"version_lag": 5},
        {"incomplete_groups": 2},
        {"incomplete_groups": 3},
        {"reward": None},
        {"policies": {}},
    ):
        yield f"alarm of all {change}", lambda c=change: alarms(base | {"policies": {"p": one}} | c, [])
    turns = tables()[0]
    broken = turns.with_column(error=pl.when((pl.col("group") == 0) & (pl.col("episode") == 0)).then(pl.lit("env: x")))
    for size in (3, 4, [3, 4, 1], [2, 4, 1]):
        yield (
            f"measured, {size}",
            lambda s=size: [
                measure(broken.with_column(r_one=pl.col("reward")), s, {"a": {"x": 1}}, ["a"]),
                *(len(split(broken, s, drop_incomplete=d)[k]) for d in (True, False) for k in (0, 1)),
            ],
        )


TERMS_OF_ALL = "surrogate(), kl(0.1), entropy(0.01)"


def dilemma(seed: int) -> Turns:
    """Two policies in twelve games of two turns; some rows have no credit, some have none that counts."""
    players = Team({name: TabularPolicy(2, name=name) for name in ("first", "second")})
    env = make("native/dilemma", rounds=2)
    turns = Local().play(env, players, Plan(groups=3, group_size=4, iteration=1, seed=seed))
    rng = np.random.default_rng(seed)
    credit = pl.Series(np.where(rng.random(len(turns)) < 0.2, 0.0, rng.normal(size=len(turns))))
    return turns.with_column(advantage=credit.set(pl.Series(rng.random(len(turns)) < 0.1), None))


def taught(**options: Any) -> list[object]:
    """What three updates tell, and how much more likely, in thousandths, they made what was done."""
    learned = Team({name: TabularPolicy(2, name=name) for name in ("first", "second")})
    start = copy.deepcopy(learned.state_dict())
    learner = PolicyGradient(learned, options.pop("terms", TERMS_OF_ALL), **({"lr": 0.1} | options))
    told = [learner.update(dilemma(seed), rng=np.random.default_rng(seed)) for seed in (1, 2, 3)]
    for line in told:
        for metrics in line.values():
            assert 0 <= metrics.pop("seconds") < 60
    rows = dilemma(1).frame
    told = [list(metrics.values()) for line in told for metrics in line.values()]
    own = [(each, rows.filter(pl.col("policy").cast(pl.String) == each.name)) for each in learned.trainable]
    moved = [1000 * (policy.score(part).logprobs.detach().double().numpy() + np.log(2)) for policy, part in own]
    far = learner.divergence(dilemma(1), rows=2, start=start)
    return [told, moved, learner.updates, list(far.values())]


def of_learners() -> Iterator[tuple[str, Case]]:
    for options in (
        {"terms": "surrogate()"},
        {"epochs": 2, "minibatch": 3},
        {"minibatch": 5, "schedule": "linear", "updates": 4},
        {"schedule": "cosine", "updates": 4},
        {"max_grad_norm": None},
        {"max_grad_norm": 0.01},
        {"weight_decay": 0.1},
        {"lr": {"first": 0.1, "second": 0.0}},
        {"sequential": "turn", "epochs": 2, "terms": "surrogate()"},
        {"sequential": "agent", "order": "forward", "terms": "surrogate()"},
        {"transaction": "step", "minibatch": 5},
        {"epochs": 0},
        {"minibatch": 0},
        {"minibatch": 1, "epochs": 1},
        {"weight_decay": -0.1},
        {"lr": -1.0},
        {"schedule": "linear"},
    ):
        yield f"learner {options}~~", lambda o=options: taught(**o)
    played = dilemma(1)
    none = played.filter(pl.lit(False))
    batch = make_batch(played, "first", "advantage")
    yield (
        "minibatches",
        lambda: [
            list(minibatches(batch, 2, size, together, rng and np.random.default_rng(1)))
            for size in (None, 4, 5, len(batch.size))
            for together in (None, "episode")
            for rng in (True, None)
        ],
    )
    yield (
        "pieces",
        lambda: [
            list(pieces(np.array([0, 2, 3, 4]), np.array([3, 9, 1, 2, 3]), limit)) for limit in (1, 3, 4, 6, 9, 12)
        ],
    )
    yield "batch", lambda: [batch.offsets, batch.counts, batch.size, batch.credited, batch.entropy]
    yield (
        "decay",
        lambda: [
            decay(k, step, steps) for k in ("constant", "linear", "cosine") for step in range(4) for steps in (0, 3)
        ],
    )
    rewards = pl.Series([0.25, -0.25, 0.26, -0.26, 0.0, None])
    yield "classes", lambda: reward_classes(rewards, 0.25)
    yield (
        "windows",
        lambda: [last_turns(each, count) for each in (played, played.filter(pl.lit(False))) for count in (1, 3)],
    )
    texts_ = pl.Series(["", "...", "a b", None, "a b c"])
    yield "hashed", lambda: [hashed(texts_, size) for size in (1, 4)]
    yield (
        "vectors",
        lambda: [vectors(each, 4, action=a) for each in (played, none) for a in (True, False)],
    )
    for sizes in ([2, 3], [1, 4], [2, 2], [1, 1], [5]):
        yield (
            f"held back {sizes}",
            lambda n=sizes: [
                (plan.group_size, more) for plan, more in [hold_back(Plan(groups=len(n), group_size=n), 0.3, "test")]
            ],
        )
    marks = [[1, 2], [3], None, [], [2, 3], [1]]
    told = [True, False, True, True, None, False]
    table = Turns(
        {"group": [0] * 6, "episode": range(6), "turn": [0] * 6, "agent": ["a"] * 6, "marks": marks, "good": told}
    )
    for text in (
        "rubric_game(flaws=4)",
        "rubric_game(flaws=4, rounds=0)",
        "rubric_game(flaws=4, rounds=3, queries=2, checked=1)",
    ):
        yield f"game {text}", lambda t=text: judged(t, table)


def judged(text: str, table: Turns) -> list[object]:
    """Verdicts and what is told of them, twice."""
    stage, found = STAGES.build(text), []
    for iteration in (1, 2):
        context = Context(np.random.default_rng(iteration), iteration, CORRIDOR, walker(), Local(), seed=0, planned=2)
        found.append([stage(table, context)["verdict"], context.metrics, context.spent.calls])
    return found


def type_of_fresh(replay: Replay) -> Any:
    from palaestra.credit.critics import Fresh

    return Fresh(replay.state[:5], replay.action[:5])


CASES = dict((*of_stages(), *of_terms(), *of_networks(), *of_learners()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_learning_gives_what_it_gave(kind: str) -> None:
    other = differences(FROZEN, CASES, kind, ROWS)
    assert not other, other


if __name__ == "__main__":
    write(FROZEN, CASES, ROWS)
