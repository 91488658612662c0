"""New sub-agents for an archive: drawn from a space or written by a model, tried out, and taken or refused ([129])."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.envs.replies import read_reply
from palaestra.errors import InputError
from palaestra.judges.asking import replies
from palaestra.judges.metering import Limits
from palaestra.judges.templates import own_prompts, write_prompt
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.agents.bandits import BanditPolicy
    from palaestra.play.plan import Plan

FIELDS = ("name", "instructions", "skills")
"""Texts of a written sub-agent."""


@stage
class recruit(Stage):
    """Stage: before play, new sub-agents are drawn or written, tried out, and join a bandit's archive if they pass.

    BOAD's discovery [129] (arXiv 2512.23631). Each of `slots` gets a new sub-agent with probability θ / (θ + size of
    the archive), computed once a round. One that was never tried is drawn from the env's space, or written by a model
    that reads what the archive's members are and how often they helped. It is tried out on a few tasks; if it helped
    with fewer than `least` of them it is refused for ever, and the slot has a further attempt. The bandit takes those
    that joined before it takes others again.

    The paper's model revises a sub-agent that fails; here the next attempt is another one. The env tries one out,
    `try_out(arm, tasks, seed) -> share`; for a writer it also describes what there can be, `describe() -> str`, and
    reads a reply, `read_subagent(text) -> arm`, or says by a ValueError why it is none, as `native/skilled_subagents`
    does. Metrics: `archive`, its size; `tried`, `joined`, `unread` and `repeated` of this iteration; `newcomers` names
    who joined, `refused_why` is the last reason of a refusal. `contradicted`, the mean of that column so far, is the
    share of verdicts on unsolved tasks that say "helped"; an alarm says when it is most of them.

    Args:
        policy: The bandit, with an `archive` of the first sub-agents, enough for a team.
        theta: θ. slots: New sub-agents of a round, at most; the members of a team.
        tasks: Of a try-out. least: Share of them with which a newcomer has to help.
        attempts: Draws or replies for a slot, until one passes.
        writer: A policy of the recipe without a seat, or `module:name`, that writes them; None: they are drawn.
        instructions: A Jinja template of what the writer is asked, or its file `….j2`; its variables are those of
            `subagent` in `palaestra.judges.templates.KNOWN`.
        budget: Most calls of the writer, or {"tokens": …}, {"price": …}.

    Raises:
        InputError: An option is out of range; when it plans: the policy has no archive, or the env tries nobody out.
    """

    def __init__(
        self,
        policy: str,
        *,
        theta: float = 1.0,
        slots: int = 3,
        tasks: int = 4,
        least: float = 0.5,
        attempts: int = 4,
        writer: str | Policy | None = None,
        instructions: str | None = None,
        budget: Limits = None,
    ) -> None:
        if not theta > 0:
            raise InputError(f"recruit: theta={theta} must be above 0; at 0 nobody new would ever be tried")
        if min(slots, tasks, attempts) < 1 or not 0 <= least <= 1:
            raise InputError(f"recruit: {slots=}, {tasks=} and {attempts=} must be at least 1, {least=} from 0 to 1")
        self.policy, self.theta, self.slots, self.attempts = policy, theta, slots, attempts
        self.tasks, self.least = tasks, least
        self.writer = None if writer is None else Adviser(writer, budget=budget)
        self._own = own_prompts(instructions, ("subagent",), "recruit")
        self.asks = () if self.writer is None else self.writer.asks
        self.record: list[dict[str, Any]] = []
        """A row for each draw or reply: iteration, arm, name, instructions, helped, joined, and why not."""
        self.contradicted: list[float] = []
        """Column `contradicted` of all teams so far."""

    def plan(self, plan: Plan, context: Context) -> Plan:
        """The plan as it is; the bandit's archive has grown by those that passed."""
        from palaestra.agents.bandits import new_arm_probability  # with torch, which the core does without

        bandit, env, before = self._bandit(context), self._env(context), len(self.record)
        new = new_arm_probability(self.theta, len(bandit.joined()))
        for _ in range(int(context.rng.binomial(self.slots, new))):
            for _ in range(self.attempts):
                row = self._attempt(bandit, env, context)
                if row is None:
                    break
                self.record.append(row)
                if row["joined"]:
                    bandit.join(row["arm"])
                    break
        rows = self.record[before:]
        why = [row["why"] for row in rows]
        context.metrics |= {
            "archive": float(len(bandit.joined())),
            "tried": float(sum(row["helped"] is not None for row in rows)),
            "joined": float(sum(row["joined"] for row in rows)),
            "unread": float(sum(row["arm"] is None for row in rows)),
            "repeated": float(why.count(KNOWN)),
        }
        joined = [f"{row['name']} ({row['helped']:.2f})" for row in rows if row["joined"]]
        context.notes |= {"newcomers": ", ".join(joined)} if joined else {}
        context.notes |= {"refused_why": next(filter(None, reversed(why)))} if any(why) else {}
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The same table; what the judge cannot have seen is counted."""
        if "contradicted" in turns.columns:
            self.contradicted += turns["contradicted"].drop_nulls().to_list()
        if self.contradicted:
            context.metrics["contradicted"] = sum(self.contradicted) / len(self.contradicted)
        return turns

    def _attempt(self, bandit: BanditPolicy, env: Any, context: Context) -> dict[str, Any] | None:
        """Row of one new sub-agent, which is tried out unless it is none or not new; None if none is left to draw."""
        row: dict[str, Any] = {"iteration": context.iteration, "arm": None, "name": None, "instructions": None}
        row |= {"helped": None, "joined": False, "why": None}
        known = {*bandit.joined(), *(each["arm"] for each in self.record)}
        if self.writer is None:
            left = [arm for arm in range(bandit.actions) if arm not in known]
            if not left:
                return None
            row["arm"] = int(context.rng.choice(left))
        else:
            row |= self._written(bandit, env, context)
        if row["arm"] is None:
            return row
        row["name"] = row["name"] or env.choices[row["arm"]]
        if row["arm"] in known:
            return row | {"why": KNOWN}
        helped = float(env.try_out(row["arm"], self.tasks, int(context.rng.integers(2**31))))
        joined = helped >= self.least
        return row | {"helped": helped, "joined": joined, "why": None if joined else f"helped with {helped:.2f}"}

    def _written(self, bandit: BanditPolicy, env: Any, context: Context) -> dict[str, Any]:
        """Arm, name and instructions of what the writer says, or why there is none."""
        assert self.writer is not None
        table = {arm: (plays, share) for arm, plays, share in bandit.table().select("arm", "plays", "reward").rows()}
        archive = [
            {"name": env.choices[arm], "instances": round(table[arm][0]), "helped": table[arm][1]}
            for arm in bandit.joined()
        ]
        refused = [{"name": self._called(each, env), "why": each["why"]} for each in self.record if each["why"]]
        prompt = write_prompt("subagent", {"place": env.describe(), "archive": archive, "refused": refused}, self._own)
        why = ""

        def read(reply: str) -> int | None:
            nonlocal why
            try:
                return int(env.read_subagent(reply))
            except ValueError as error:
                why = str(error)
                return None

        policy = self.writer.begin(context)
        (said,) = replies(
            policy, [(prompt, len(self.record))], [read], seed=context.seed, agent="writer", fields=FIELDS
        )
        arm = None if said.text is None else read(said.text)
        if arm is None:
            return {"why": said.error or why}
        named, told = (read_reply(str(said.text), name, until=FIELDS) for name in FIELDS[:2])
        return {
            "arm": arm,
            "name": named.text if named.form != "whole" else None,
            "instructions": told.text if told.form != "whole" else None,
        }

    @staticmethod
    def _called(row: dict[str, Any], env: Any) -> str:
        """Name of a new sub-agent in a prompt, and which of the env's sub-agents it is."""
        if row["arm"] is None:
            return "(unreadable)"
        place = str(env.choices[row["arm"]])
        return place if row["name"] == place else f"{row['name']} ({place})"

    def _bandit(self, context: Context) -> BanditPolicy:
        from palaestra.agents.bandits import BanditPolicy

        found = context.team.policies.get(self.policy)
        if not isinstance(found, BanditPolicy) or found.archive is None:
            raise InputError(
                f"recruit: policy {self.policy!r} must be a bandit with an archive, policies.{self.policy}"
            )
        return found

    @staticmethod
    def _env(context: Context) -> Any:
        env: Any = context.env()
        while not hasattr(env, "try_out") and hasattr(env, "env"):  # what a workflow goes around
            env = env.env
        if not hasattr(env, "try_out"):
            raise InputError(f"recruit: {type(env).__name__} has no try_out(arm, tasks, seed) -> share")
        return env

    def state_dict(self) -> dict[str, Any]:
        """State: the record, what contradicts the judge, and the state of the writer."""
        record = [dict(row) for row in self.record]
        told = {"record": record, "contradicted": list(self.contradicted)}
        return {**told, "writer": None if self.writer is None else self.writer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.record = [dict(row) for row in state["record"]]
        self.contradicted = list(state["contradicted"])
        if self.writer is not None:
            self.writer.load_state_dict(state["writer"])


KNOWN = "is in the archive already, or was refused before"
"""Why a sub-agent that is not new is not tried out."""
