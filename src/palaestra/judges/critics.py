"""Critics of thinking that are policies of a recipe; see the search `refined`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.judges.judged import Asker
from palaestra.judges.reading import fenced
from palaestra.judges.templates import own_prompts, write_prompt


def with_thinking(observation: Observation, thinking: str) -> Observation:
    """A copy of an `Observation` with a thinking text appended, also to its conversation's last message, if any."""
    seen = replace(observation, text=f"{observation.text}\n{thinking}")
    if observation.messages is None:
        return seen

    def write(reader: Reader) -> tuple[ChatMessage, ...]:
        *before, last = observation.conversation(reader)
        return (*before, {**last, "content": f"{last['content']}\n{thinking}"})

    return replace(seen, messages=Conversation(write))


class PolicyCritic:
    """Critic that asks a recipe's policy to rewrite a thinking text; unchanged where the policy gives no reply.

    Args:
        policy: Its name in the recipe.
        instructions: A Jinja template of what it is asked, or its file `….j2`.
    """

    def __init__(self, policy: str, *, instructions: str | None = None) -> None:
        self._own = own_prompts(instructions, ("criticise",), "critic")
        self.asks = (policy,)
        self.asker: Asker | None = None

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policy of this name with `find`, and ask that from now on."""
        self.asker = find(self.asks[0])

    def __call__(self, question: str, thinking: str, answer: str) -> str:
        """The new thinking: what stands behind `THINKING:`, else the whole reply."""
        if self.asker is None:
            raise InputError(f"refined: critic {self.asks[0]!r} is a policy of a recipe; elsewhere give a function")
        texts = {"question": question, "thinking": thinking, "answer": answer}
        asked = write_prompt("criticise", {name: fenced(text) for name, text in texts.items()}, self._own)
        reply = self.asker.ask([(asked, 0)])[0].text
        return thinking if not reply else reply.rpartition("THINKING:")[2].strip()
