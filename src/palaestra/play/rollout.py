"""`rollout`: envs × team → `Turns`, many episodes at once.

In each wave whoever waits for one policy, in whatever episode and seat, is served by one call of that policy; then all
envs step. An episode that ends makes room for the next, so nobody waits for the longest one.

What is sampled depends on (seed, iteration, group, episode, agent) alone, and rows are ordered by group, episode, turn
and agent: the table is the same for every `concurrency`. A failed episode is rows with `error`, never a crash:

    env: <Type>: <message>          making, resetting or stepping the env raised, or it returned something malformed
    env-timeout: <Type>: <message>  the env did not answer within `timeout`; the thread it hangs in is left behind
    policy: <Type>: <message>       the policy raised, answered malformed, or reported an error for this request
    reward: <Type>: <message>       the env gave a reward that is not a finite number

A reward belongs to the last turn of the agent that received it. What arrives before an agent's first turn counts to
that turn; what an agent without any turn received is in the metadata of the episode's last row
(`rewards_without_turn`). A reward of None says "not scored": the row's reward is null unless a number arrives for it as
well. A turn that a failed episode leaves without any reward has null, not 0.

What an env declares as facts is a column of every table it fills, null where it says nothing.

Envs that compute are called one after the other, those that are seen to wait beside each other; policies that wait are
asked beside each other by the executor `threads` (`palaestra.play.executors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.play.engine import Seats
from palaestra.play.executors import Local
from palaestra.play.plan import Plan
from palaestra.play.streams import Stream


def rollout(
    env: EnvFactory,
    team: Seats,
    *,
    groups: int | range,
    group_size: int | Sequence[int] = 1,
    seed: int = 0,
    iteration: int = 0,
    stream: Stream = "train",
    run: str | None = None,
    env_seeds: Sequence[int | None] | None = None,
    version: int = 0,
    concurrency: int = 256,
    timeout: float | None = 60.0,
    retries: int = 0,
    max_turns: int = 1000,
    progress: bool = False,
    sink: str | Path | None = None,
) -> Turns:
    """Play `group_size` episodes of each of `groups` tasks of an env factory by a team, in this process; the `Turns`.

    Args:
        env: makes a fresh env; called once per concurrent episode, and again after a failure.
        team: says which policy fills a seat.
        groups: number of groups, or which of them as a range; the episodes of a group get the same reset seed, so they
            start alike.
        group_size: episodes of a group; or one number for each group.
        seed: of everything that is drawn, together with iteration and stream.
        iteration: number of the training iteration.
        stream: "train" or "eval", which takes reset seeds that "train" never takes.
        run: name of the training run, for the table.
        env_seeds: reset seed of each group; None, for all or for one: drawn.
        version: updates that the learner had made; fills `policy_version`.
        concurrency: how many episodes are played at once; changes the speed only.
        timeout: seconds that making, resetting or one step of an env may take; None: no limit.
        retries: how often a failed episode is played again; the failed ones stay in the table.
        max_turns: a longer episode is truncated.
        progress: show a progress bar on stderr.
        sink: stream the table to this Parquet file while playing; it is read back when somebody looks at the table.

    Raises:
        InputError: an argument is out of range; making or resetting an env says that what was asked for cannot be
            played (an unknown name, a missing package); or the team has no policy for an agent.
        StorageError: the sink cannot be written.
    """
    plan = Plan(groups, group_size, seed, iteration, stream, run, env_seeds, version)
    return Local(concurrency, timeout, retries, max_turns).play(env, team, plan, progress=progress, sink=sink)


def starts(
    env: EnvFactory, *, groups: int, seed: int = 0, iteration: int = 0, timeout: float | None = 60.0
) -> list[Observation | None]:
    """List of the first observation of each group of a rollout of an env factory, without playing; None if it fails."""
    return Local(timeout=timeout).starts(env, Plan(groups, seed=seed, iteration=iteration))
