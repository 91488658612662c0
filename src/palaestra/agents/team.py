"""`Team`: who fills which seat."""

from __future__ import annotations

import functools
import glob
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from palaestra.agents.policy import Learnable, Policy
from palaestra.errors import DamagedFileError, InputError, nearest
from palaestra.foundation import checksums
from palaestra.foundation.files import read_object, whole_folder, write_json
from palaestra.foundation.registry import load_object

_LIST = "team.json"
_KINDS = {
    "bandit": "palaestra.agents.bandits:BanditPolicy",
    "lm": "palaestra.agents.lm:LMPolicy",
    "mlp": "palaestra.agents.mlp:MLPPolicy",
    "contextual": "palaestra.agents.contextual:ContextualPolicy",
    "factored": "palaestra.agents.factored:FactoredPolicy",
    "ordered": "palaestra.agents.ordered:OrderedPolicy",
    "pointer": "palaestra.agents.pointer:PointerPolicy",
    "q_network": "palaestra.agents.q_network:QNetworkPolicy",
    "population": "palaestra.agents.population:PopulationPolicy",
    "perturbed": "palaestra.agents.perturbed:PerturbedPolicy",
    "q_table": "palaestra.agents.qtable:QTablePolicy",
    "relational": "palaestra.agents.relational:RelationalPolicy",
    "split_mlp": "palaestra.agents.split_mlp:SplitMLPPolicy",
    "tabular": "palaestra.agents.tabular:TabularPolicy",
}
"""Classes by what a saved policy says it is; they bring torch, so they are imported when one is loaded."""


class Team(Mapping[str, Policy]):
    """Mapping from agent to policy; agents with the same policy object share parameters: `Team(solver=p, checker=p)`.

    maker: makes the same team elsewhere, but for the state of its policies; see `made`.
    Raises InputError if two different policies have one name: names are what tables and checkpoints tell them apart by.
    """

    maker: Callable[[], Team] | None = None

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

    @classmethod
    def made(cls, make: Callable[..., Team], *arguments: Any, **options: Any) -> Team:
        """Team made by a function that is kept as `maker`, so that workers elsewhere can make it again.

        >>> from palaestra.agents import random_legal
        >>> def players(): return Team(a=random_legal())
        >>> Team.made(players).maker()
        Team(a=random)
        """
        maker = functools.partial(make, *arguments, **options)
        team: Team = maker()
        team.maker = maker
        return team

    def __getitem__(self, agent: str) -> Policy:
        return self._by_agent[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_agent)

    def __len__(self) -> int:
        return len(self._by_agent)

    def __repr__(self) -> str:
        return f"Team({', '.join(f'{agent}={policy.name}' for agent, policy in self.items())})"

    def for_agent(self, agent: str) -> Policy:
        """The policy of an agent; an InputError with the nearest names if there is none."""
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
        """Copy of the team with frozen copies of learnable policies (shared ones once), the others as they are."""
        return self.frozen(self.learnable)

    def twin(self) -> Team:
        """Copy of the team that acts the same to the last bit, with policies that can still be trained.

        A frozen one need not: torch multiplies matrices in another way if the weights do not learn.
        """
        learn = {policy.name for policy in self.trainable}
        copies = {
            name: getattr(policy, "twin", policy.frozen_copy)() if name in learn else policy.frozen_copy()
            for name, policy in self.learnable.items()
        }
        return self._with({**self.policies, **copies})

    def frozen(self, names: Collection[str]) -> Team:
        """Copy of the team in which the named policies are replaced by frozen copies."""
        copies = {name: self.learnable[name].frozen_copy() for name in names}
        return self._with({**self.policies, **copies})

    def _with(self, policies: Mapping[str, Policy]) -> Team:
        copied = Team({agent: policies[policy.name] for agent, policy in self.items()})
        copied.maker = self.maker
        return copied

    def save(self, path: str | Path, *, others: Mapping[str, Mapping[str, Any]] | None = None) -> Path:
        """Write a folder per policy that has a `save`, and `team.json` with each seat's policy; returns the folder.

        others: what policies without one are made from, as `load` finds it: `{"kind": "script", "options": {...}}`.
        """
        folder, others = Path(path), others or {}
        parts: dict[str, dict[str, Any] | None] = {}
        for name, policy in self.policies.items():
            save = getattr(policy, "save", None)
            if save is None:
                parts[name] = dict(others[name]) if name in others else None
                continue
            place = folder_name(name)
            with whole_folder(folder / place) as temporary:
                save(temporary)
            parts[name] = {"folder": place}
        agents = {agent: policy.name for agent, policy in self.items()}
        places = [part["folder"] for part in parts.values() if part and "folder" in part]
        files = checksums.checksums(folder, [f"{glob.escape(place)}/**/*" for place in places])
        write_json(folder / _LIST, {"agents": agents, "policies": parts, "files": files})
        return folder

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        seed: int | None = None,
        device: str = "cpu",
        policies: Mapping[str, Policy] | None = None,
        trust: bool = False,
    ) -> Team:
        """Team loaded from a run (what `palaestra train` wrote) or from what `save` wrote.

        seed: of the run; default: the first that is finished. policies: used in place of those of the same name.
        trust: whether code that a script names (`module:function`) may run.

        Raises:
            InputError: there is no such team; or a policy could not be stored and is not given.
            StorageError: a file of a policy is gone or was changed since `save`; names it.
        """
        folder = _team_folder(Path(path), seed)
        stored = read_object(folder / _LIST) or {}
        try:
            agents, parts = dict(stored["agents"]), dict(stored["policies"])
            missing = sorted(set(agents.values()) - parts.keys())
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{folder / _LIST}: it does not say who fills which seat ({error!r})") from error
        if missing:
            raise DamagedFileError(f"{folder / _LIST}: no policy {missing[0]!r}{nearest(missing[0], parts)}")
        given = dict(policies or {})
        if unknown := next((name for name in given if name not in parts), None):
            raise InputError(f"{folder}: policies: no policy {unknown!r} there{nearest(unknown, parts)}")
        asked = [part for name, part in parts.items() if name not in given]
        own = tuple(f"{part['folder']}/" for part in asked if part and "folder" in part)
        files = {name: part for name, part in dict(stored.get("files") or {}).items() if name.startswith(own)}
        fix = f'export it again (`palaestra export`); to take it as it is, delete "files" in {folder / _LIST}'
        checksums.check(folder, files, _LIST, fix)
        made: dict[str, Policy] = {}
        for name, part in parts.items():
            if name in given:
                made[name] = given[name]
            elif part is None:
                raise InputError(f"{folder}: policy {name!r} has no stored form; give it: policies={{{name!r}: ...}}")
            elif "folder" in part:
                made[name] = load_policy(folder / folder_name(str(part["folder"])), device=device)
            else:  # who knows recipes knows how; the seats of scripts and endpoints are made anew
                made[name] = load_object("palaestra.runs.policies:remake_policy", "policy")(name, part, trust=trust)
        return cls({agent: made[name] for agent, name in agents.items()})


def load_policy(folder: str | Path, *, device: str = "cpu") -> Policy:
    """Loads a policy of any kind from the folder that its `save` wrote; InputError if there is none.

    Raises:
        InputError: there is none.
    """
    kind = (read_object(Path(folder) / "palaestra.json") or {}).get("kind", "lm")
    if kind not in _KINDS:
        raise InputError(f"{folder}: a policy of kind {kind!r}{nearest(str(kind), _KINDS)}")
    loaded: Policy = load_object(_KINDS[kind], "kind").load(folder, device=device)
    return loaded


def folder_name(name: str) -> str:
    """A policy's name as a safe folder name: `org/model` becomes `org%2Fmodel`.

    >>> folder_name("org/model"), folder_name("..")
    ('org%2Fmodel', '%2E.')
    """
    written = quote(name.encode(errors="replace"), safe=" %+@=,")
    return re.sub(r"^\.", "%2E", written) or "%"


def _team_folder(path: Path, seed: int | None) -> Path:
    """Where `team.json` is: here, in `policies`, or in those of a seed of a run."""
    if seed is None and (found := next((f for f in (path, path / "policies") if (f / _LIST).exists()), None)):
        return found
    there = {int(f.name[5:]): f / "policies" for f in path.glob("seed-*") if f.name[5:].isdigit()}
    finished = sorted(number for number, folder in there.items() if (folder / _LIST).exists())
    if seed in finished or (seed is None and finished):
        return there[finished[0] if seed is None else seed]
    if there and (seed is None or seed in there):
        raise InputError(f"{path}: no trained policies there yet; write them with `palaestra export {path}`")
    known = f"; seeds there: {', '.join(map(str, sorted(there)))}" if there else ": give what `palaestra train` wrote"
    raise InputError(f"{path}: no team{'' if seed is None else f' of seed {seed}'} there{known}")
