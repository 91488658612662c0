"""A seat that proposes tasks: it writes one, code checks it, solvers answer it.

    proposer     4 + 3 = |             writes "12 - 5 ="
    solver-1…k   12 - 5 =              answer it beside each other, without hearing of each other
    control-1…   12 - 5 =              the same, whom regret is measured against (if there are any)

The proposer's turn is a turn like any other. What it is paid is an expression over the table (`proposer_reward`): the
env leaves its reward open. In evaluation, where the tasks are those of the test split, nobody proposes: the solvers
answer held-out tasks. Left out: proposals that are played again in a later iteration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from palaestra.envs.conversations import Conversation, Reader, opening
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.questions import canonical
from palaestra.envs.reasoning_gym import ReasoningGymEnv, split_of
from palaestra.envs.replies import read_reply
from palaestra.envs.task_keys import task_key
from palaestra.envs.tasks import Task, TaskEnv, read_answer
from palaestra.errors import EnvError, InputError
from palaestra.teams.instructions import TEMPLATES, Instructions
from palaestra.teams.pipeline import SEPARATOR, scripted_role
from palaestra.teams.proposal_readers import Reader as ProposalReader
from palaestra.teams.proposal_readers import reader_of
from palaestra.teams.task_wrapper import TaskTeamEnv, made_task
from palaestra.teams.workflows import _names

if TYPE_CHECKING:
    from palaestra.agents.policy import Request

PROPOSER = "proposer"


class ProposerEnv(TaskTeamEnv):
    """Self-play env (of a `TaskEnv` factory): a proposer, whose reward is left open, writes a task; solvers are paid.

    task: the given one that it is proposed from.

    facts: proposal, what is asked; proposed, its id; proposed_from, the id of the given task; refused, why it is no
    task; score of a solver's answer; control_score of a control's; expected, a right answer; read_as, where a proposal
    or an answer stood in its reply.
    """

    facts = {
        "proposal": str, "proposed": str, "proposed_from": str, "refused": str, "score": float, "control_score": float,
        "expected": str, "read_as": str,
    }  # fmt: skip

    def __init__(
        self,
        tasks: EnvFactory,
        solvers: int = 4,
        *,
        read: str | ProposalReader = "solvable",
        controls: int = 0,
        given: float = 0.0,
        longest: int = 2000,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        """See `proposer` for the arguments."""
        if not 0 <= given <= 1 or controls < 0 or longest < 1:
            raise InputError(f"proposer: {given=} must be in [0, 1], {controls=} at least 0, {longest=} at least 1")
        self.inner: TaskEnv = made_task(tasks, "proposer")
        self.solvers = tuple(_names("solver", solvers))
        self.controls = tuple(_names("control", controls)) if controls else ()
        self.agents = (PROPOSER, *self.solvers, *self.controls)
        self.task, self.given, self.longest = "", given, longest
        self._read = reader_of(read)
        self._named = repr(read) if isinstance(read, str) else getattr(read, "__qualname__", repr(read))
        self._instructions = Instructions("proposer", dict.fromkeys(self.agents, ""), instructions)
        self._asked: tuple[str, ...] = ()

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Ask for a proposal; or, for the share `given` of the seeds and of a test split, ask the given question."""
        self.inner.reset(seed)
        self.parent: Task = self.inner.current
        self.task, self._proposed = self.inner.task, cast(Task | None, None)
        if _split(self.inner) == "test" or seed * 2654435761 % 2**32 < self.given * 2**32:
            return self._ask_solvers()
        self._asked = (PROPOSER,)
        text = self.parent.question + SEPARATOR.rstrip()
        return {PROPOSER: Observation(text, messages=Conversation(self._written), fields=("task",))}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Check the proposal, or score the answers; then the episode is over."""
        if actions.keys() != set(self._asked):
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._asked)}")
        if self._asked == (PROPOSER,):
            text, form, _ = read_reply(read_answer(actions[PROPOSER]), "task", until=())
            return self._propose(text, form)
        self._asked = ()
        read = {agent: read_reply(read_answer(said)) for agent, said in actions.items()}
        scores = {agent: self.inner.score(reply.text) for agent, reply in read.items()}
        info: dict[str, Any] = {
            "valid": {agent: score is not None for agent, score in scores.items()},
            "score": {agent: scores[agent] or 0.0 for agent in self.solvers},
            "control_score": {agent: scores[agent] or 0.0 for agent in self.controls},
            "read_as": {agent: reply.form for agent, reply in read.items()},
            "success": {agent: self.inner.solved(score) for agent, score in scores.items()},
        }
        if self.inner.answer is not None:
            info["expected"] = self.inner.answer
        if self._proposed is not None:
            solved = sum(info["success"][agent] for agent in self.solvers)
            info["success"][PROPOSER] = 0 < solved < len(self.solvers)
            info |= {"proposed": dict.fromkeys(actions, self._proposed.name)}
        rewards: dict[str, float | None] = {agent: score or 0.0 for agent, score in scores.items()}
        return StepResult({}, rewards | self._open(), terminated=True, info=info)

    def _open(self) -> dict[str, float | None]:
        return {} if self._proposed is None else {PROPOSER: None}

    def _propose(self, text: str, form: str) -> StepResult:
        info: dict[str, Any] = {"proposed_from": self.parent.name, "read_as": form}
        try:
            task = self._checked(text)
        except ValueError as error:
            self._asked = ()
            info |= {"proposal": text[: self.longest], "refused": str(error) or "is refused", "success": False}
            return StepResult({}, {PROPOSER: None}, terminated=True, info=info | {"valid": {PROPOSER: False}})
        self._proposed = self.inner.current = task
        info |= {"proposal": task.question, "proposed": task.name}
        if task.answer is not None:
            info["expected"] = task.answer
        return StepResult(self._ask_solvers(), info=info)

    def _checked(self, text: str) -> Task:
        """The task that a text is.

        Raises:
            ValueError: it is none: nothing was said, it is too long, cannot be read, repeats the given task, or is
                held out.
            EnvError: the reader returned something else.
        """
        if not text:
            raise ValueError("nothing was proposed")
        if len(text) > self.longest:
            raise ValueError(f"has {len(text)} characters, {self.longest} are allowed")
        try:
            task = self._read(text, self.parent)
        except ValueError:
            raise
        except Exception as error:  # a reader may trip over any text
            raise ValueError(f"cannot be read ({type(error).__name__}: {error})") from error
        if not isinstance(task, Task):
            raise EnvError(
                f"proposer: read={self._named} returned {type(task).__name__}, expected a Task, or a ValueError with "
                "the reason"
            )
        if task_key(canonical(task.question)) == task_key(canonical(self.parent.question)):
            raise ValueError(f"repeats the task that it is proposed from, {self.parent.name}")
        if holds_out(self.inner, task.question):
            raise ValueError(f"is held out: {task.name}")
        return task

    def _ask_solvers(self) -> dict[str, Observation]:
        self._asked = (*self.solvers, *self.controls)
        question = self.inner.question
        return {
            agent: Observation(
                question, messages=self._instructions.turn(agent, "answer", question), fields=("answer",)
            )
            for agent in self._asked
        }

    def _written(self, reader: Reader) -> Any:
        asked = {"question": self.parent.question, "structured": reader.structured}
        return opening(self._instructions.system(PROPOSER), TEMPLATES.render("propose", asked))


def _split(tasks: TaskEnv) -> str | None:
    return getattr(tasks, "split", None) or getattr(tasks, "_split", None)


def holds_out(tasks: TaskEnv, question: str) -> bool:
    """Whether a question text is held out of a `TaskEnv`: in the test split of a training env, or by its own method."""
    if isinstance(tasks, ReasoningGymEnv):
        return _split(tasks) == "train" and split_of(canonical(question)) == "test"
    own = getattr(tasks, "holds_out", None)
    return own is not None and bool(own(question))


def proposer(
    tasks: EnvFactory,
    solvers: int = 4,
    *,
    read: str | ProposalReader = "solvable",
    controls: int = 0,
    given: float = 0.0,
    longest: int = 2000,
    instructions: Mapping[str, str] | None = None,
) -> EnvFactory:
    """Env factory from another, `tasks`: a seat proposes tasks from those of a `TaskEnv`, and solvers answer.

    Args:
        tasks: makes the `TaskEnv` whose tasks are shown to the proposer, one an episode.
        solvers: how many answer each proposal, beside each other.
        read: makes a task of a proposal, or says why not: "solvable", "stated", or `module:name`; see
            `palaestra.teams.proposal_readers`. One that hangs is bounded by the timeout of play.
        controls: seats that answer as well, and whom regret is measured against.
        given: share of episodes in which the given task is answered instead, without a proposal.
        longest: most characters of a proposal.
        instructions: {role: system prompt} for chat models instead of the shipped ones, Jinja templates.
    """
    factory = functools.partial(
        ProposerEnv, tasks, solvers, read=read, controls=controls, given=given, longest=longest,
        instructions=instructions,
    )  # fmt: skip
    factory()
    return factory


def scripted_proposals(largest: int = 9, accuracy: float = 1.0, noise: float = 0.0) -> Callable[[Request], str]:
    """Makes a scripted player (request -> text): proposes and solves sums and differences of numbers up to `largest`.

    For a warm start.

    Args:
        largest: of the numbers.
        accuracy: share of right answers.
        noise: share of proposals that are no task.
    """
    answer = scripted_role(accuracy=accuracy)

    def act(request: Request) -> str:
        if request.agent != PROPOSER:
            return answer(request)
        rng = request.rng
        one, two = (int(number) for number in rng.integers(1, largest + 1, 2))
        text = f"{one} {'+-'[int(rng.integers(2))]} {two} ="
        return text.replace(" ", "?") if rng.random() < noise else text

    return act
