"""`Team`: who fills which seat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from palaestra.agents.base import Learnable, Policy
from palaestra.errors import InputError, nearest


class Team(Mapping[str, Policy]):
    """Agent -> policy. Agents share parameters by sharing a policy object: `Team(solver=p, checker=p)`.

    Raises InputError if two different policies have one name: names are what tables and checkpoints tell them apart by.
    """

    def __init__(self, policies: Mapping[str, Policy] | None = None, /, **agents: Policy) -> None:
        self._by_agent: dict[str, Policy] = {**(policies or {}), **agents}
        if not self._by_agent:
            raise InputError("Team: no agents: Team(agent=policy, …)")
        self.policies: dict[str, Policy] = {}
        for agent, policy in self._by_agent.items():
            if self.policies.setdefault(policy.name, policy) is not policy:
                raise InputError(
                    f"Team: agent {agent!r} brings a second policy named {policy.name!r}:"
                    f" give it its own name=, or pass the same object to share it"
                )

    def __getitem__(self, agent: str) -> Policy:
        return self._by_agent[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_agent)

    def __len__(self) -> int:
        return len(self._by_agent)

    def __repr__(self) -> str:
        return f"Team({', '.join(f'{agent}={policy.name}' for agent, policy in self.items())})"

    def for_agent(self, agent: str) -> Policy:
        """The policy in that seat; an InputError with the nearest names if there is none."""
        if agent not in self._by_agent:
            raise InputError(f"Team: no policy for agent {agent!r}{nearest(agent, self._by_agent)}")
        return self._by_agent[agent]

    @property
    def learnable(self) -> dict[str, Learnable]:
        """Policies with parameters, by name, frozen ones included."""
        return {name: policy for name, policy in self.policies.items() if isinstance(policy, Learnable)}

    @property
    def trainable(self) -> list[Learnable]:
        """Policies that can learn, each once, in order of their first agent; frozen copies are left out."""
        return [policy for policy in self.learnable.values() if policy.parameters()]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """State of every learnable policy, by name."""
        return {name: policy.state_dict() for name, policy in self.learnable.items()}

    def load_state_dict(self, state: Mapping[str, dict[str, Any]]) -> None:
        """Inverse of `state_dict`. Raises InputError if the policies are not the same."""
        own = self.learnable
        for name in own.keys() ^ state.keys():
            where = "the team, not in the state" if name in own else "the state, not in the team"
            raise InputError(f"Team: policy {name!r} is in {where}{nearest(name, {*own, *state} - {name})}")
        for name, policy in own.items():
            policy.load_state_dict(state[name])

    def frozen_copy(self) -> Team:
        """The team as it is now: learnable policies copied (shared ones once), the others as they are."""
        copies: dict[str, Policy] = {**self.policies}
        copies.update({name: policy.frozen_copy() for name, policy in self.learnable.items()})
        return Team({agent: copies[policy.name] for agent, policy in self.items()})
