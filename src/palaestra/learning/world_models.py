"""A world model of a whole team: one latent state from what all agents see and do, and episodes that it imagines.

Reconstruction of GAWM (arXiv 2501.10116) in the family of Dreamer and MAMBA: of the paper only its abstract and the
README of its project are known, so losses, sizes and the smoothing kernel are ours. Left out: legal actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.learning.team_play import TeamPlay, smoothed

Act = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From what each agent sees, float32[rows, agents, features], to action ids and log-probabilities, [rows, agents]."""


def _layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ELU(), nn.Linear(hidden, outputs))


class JointWorldModel(nn.Module):
    """Recurrent state-space world model of a team: a state per agent, joined by attention, and a global code.

    The token of agent i is made of what it sees and did last; attention over the tokens gives its context e_i. With
    u_i, attention over the (z_j, a_j) of all agents, its recurrent state is h_i' = GRU(u_i, h_i). The posterior
    q(z_i | h_i, e_i) and the prior p(z_i | h_i) are `groups` categorical variables with `classes` values each. What an
    agent sees is read from (h_i, z_i); its reward, and whether the episode ends, from h_i' and the mean of h' over
    agents, the global code after their joint action.

    Args:
        agents, features, actions: of the team: number of seats, length of an array, number of choices.
        fuse: attention and mean go over all agents; false: over the agent itself alone, as a control.
        size: of tokens and of h. groups, classes: of z. balance: share of the KL's gradient that goes into the prior.
        kl: weight of the KL. width: of `smoothed`, the target of rewards. lr: of Adam. seed: of the start.
    """

    def __init__(
        self, agents: int, features: int, actions: int, *, fuse: bool = True, size: int = 64, groups: int = 8,
        classes: int = 8, balance: float = 0.8, kl: float = 0.1, width: float = 1.0, lr: float = 3e-3, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.agents, self.features, self.actions, self.fuse = agents, features, actions, fuse
        self.size, self.groups, self.classes = size, groups, classes
        self.balance, self.kl, self.width = balance, kl, width
        z = groups * classes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.token = _layers(features + actions + agents, size, size)
            self.joint = _layers(z + actions + agents, size, size)
            self.attend = nn.ModuleList(nn.MultiheadAttention(size, 2, batch_first=True) for _ in range(2))
            self.cell = nn.GRUCell(size, size)
            self.prior, self.posterior = _layers(size, size, z), _layers(2 * size, size, z)
            self.sees = _layers(size + z, size, features)
            self.result = _layers(2 * size, size, 2)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(()))
        self.optimiser = torch.optim.Adam(self.parameters(), lr=lr)

    # -- one step, of [episodes, agents, …] ---------------------------------------------------------------------------

    def mixed(self, tokens: Tensor, there: Tensor, layer: int) -> Tensor:
        """Tokens plus attention over those of other present agents; [rows, agents, size]."""
        hidden = ~there[:, None].expand(-1, self.agents, -1)
        if not self.fuse:
            hidden = torch.ones_like(hidden)
        hidden = hidden & ~torch.eye(self.agents, dtype=torch.bool)  # everybody reads its own, also one who is absent
        found, _ = self.attend[layer](
            tokens, tokens, tokens, attn_mask=hidden.repeat_interleave(2, 0), need_weights=False
        )
        return tokens + torch.as_tensor(found)

    def pooled(self, x: Tensor, there: Tensor) -> Tensor:
        """Global code: the mean over the present agents, for each agent; [rows, agents, size]."""
        if not self.fuse:
            return x
        weight = there[..., None].float()
        return ((x * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1)).expand_as(x)

    def contexts(self, seen: Tensor, did: Tensor, there: Tensor) -> Tensor:
        """Attention over the last observations and actions of all agents, by agent; [rows, agents, size]."""
        return self.mixed(self.token(torch.cat([seen, did, self._names(seen)], -1)), there, 0)

    def follow(self, h: Tensor, z: Tensor, did: Tensor, there: Tensor) -> Tensor:
        """Next recurrent states after one-hot actions."""
        read = self.mixed(self.joint(torch.cat([z, did, self._names(z)], -1)), there, 1)
        return torch.as_tensor(self.cell(read.flatten(0, 1), h.flatten(0, 1))).reshape(h.shape)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Class probabilities […, groups, classes], mixed with one per cent of the uniform distribution."""
        shaped = logits.reshape(*logits.shape[:-1], self.groups, self.classes)
        return 0.99 * torch.softmax(shaped, -1) + 0.01 / self.classes

    def draw(self, logits: Tensor) -> Tensor:
        """One-hot draws of each group, with the gradient of their probabilities."""
        p = self.probabilities(logits)
        drawn = F.one_hot(torch.multinomial(p.detach().flatten(0, -2), 1)[:, 0], self.classes).reshape(p.shape)
        return (drawn + p - p.detach()).flatten(-2)

    def outcome(self, h: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted rewards, in units of `scale`, and logits of an end, by agent, of the turn that led to h."""
        found = self.result(torch.cat([h, self.pooled(h, there)], -1))
        return found[..., 0], found[..., 1]

    def _names(self, like: Tensor) -> Tensor:
        return torch.eye(self.agents).expand(len(like), -1, -1)

    # -- learning -----------------------------------------------------------------------------------------------------

    def filtered(self, play: TeamPlay) -> dict[str, Tensor]:
        """Filtered states along episodes: h, z, logits of prior and posterior; [episodes, turns, agents, …].

        `after` is h of the turn after each turn, `code` the global code of what is seen in it.
        """
        seen, there = torch.from_numpy(play.seen), torch.from_numpy(play.there)
        did = F.one_hot(torch.from_numpy(play.did), self.actions).float() * there[..., None]
        before = F.pad(did, (0, 0, 0, 0, 1, 0))[:, :-1]
        flat = there.flatten(0, 1)
        context = self.contexts(seen.flatten(0, 1), before.flatten(0, 1), flat)
        code = self.pooled(context, flat).reshape(*there.shape, self.size)
        context = context.reshape(code.shape)
        h = torch.zeros(len(seen), self.agents, self.size)
        found: dict[str, list[Tensor]] = {name: [] for name in ("h", "z", "posterior", "after")}
        for turn in range(seen.shape[1]):
            posterior = self.posterior(torch.cat([h, context[:, turn]], -1))
            z = self.draw(posterior)
            after = self.follow(h, z, did[:, turn], there[:, turn])
            for name, each in zip(found, (h, z, posterior, after), strict=True):
                found[name].append(each)
            h = after
        states = {name: torch.stack(each, 1) for name, each in found.items()}
        return states | {"code": code, "prior": self.prior(states["h"])}

    def losses(self, play: TeamPlay) -> dict[str, Tensor]:
        """Losses by name: observations and smoothed rewards (squared errors), the episode's end, and the KL."""
        states, there = self.filtered(play), torch.from_numpy(play.there)
        seen = self.sees(torch.cat([states["h"], states["z"]], -1))
        paid, end = self.outcome(states["after"].flatten(0, 1), there.flatten(0, 1))
        goal = torch.from_numpy(smoothed(play.paid, play.there, self.width)).float() / self.scale
        ended = torch.from_numpy(play.ended)[..., None].expand(there.shape).float()
        post, prior = (self.probabilities(states[name]) for name in ("posterior", "prior"))

        def divergence(p: Tensor, q: Tensor) -> Tensor:
            return (p * (p.log() - q.log())).sum((-2, -1))[there].mean()

        kl = self.balance * divergence(post.detach(), prior) + (1 - self.balance) * divergence(post, prior.detach())
        return {
            "seen": (seen - torch.from_numpy(play.seen)).square().sum(-1)[there].mean(),
            "paid": (paid.reshape(there.shape) - goal).square()[there].mean(),
            "end": F.binary_cross_entropy_with_logits(end.reshape(there.shape)[there], ended[there]),
            "kl": self.kl * kl,
        }

    def fit(self, play: TeamPlay, rng: np.random.Generator, *, steps: int, batch: int) -> dict[str, float]:
        """Train by Adam on random episodes; returns the losses of the last step."""
        spread = float(smoothed(play.paid, play.there, self.width)[play.there].std())
        self.scale.fill_(max(spread, 1e-3))
        found: dict[str, float] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            for _ in range(steps):
                some = rng.choice(len(play.ended), size=min(batch, len(play.ended)), replace=False)
                parts = self.losses(TeamPlay(*(each[some] for each in play)))
                self.optimiser.zero_grad()
                sum(parts.values(), torch.zeros(())).backward()
                nn.utils.clip_grad_norm_(self.parameters(), 10.0)
                self.optimiser.step()
                found = {name: float(each.detach()) for name, each in parts.items()}
        return found

    def state(self) -> dict[str, Any]:
        """State: parameters and optimiser."""
        return {"model": self.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])


@torch.no_grad()
def imagined(
    model: JointWorldModel, play: TeamPlay, turns: np.ndarray, act: Act, *, horizon: int, seed: int = 0
) -> tuple[TeamPlay, np.ndarray]:
    """Pair (imagined `TeamPlay`, log-probabilities): `horizon` turns of a world model from `turns[i]` of episode i.

    Actions come from `act`, next states from the prior.

    The first turn is a real one: what the agents saw in turn `turns` of each episode. Later ones are what the model
    says they see. An episode ends after the turn in which the model holds an end for likelier than not.

    Args:
        model: of the team.
        play: known episodes.
        turns: int64[episodes], the turn of each at which the model goes on.
        act: how the agents act on what each sees.
        horizon: turns at most.
        seed: of the draws of states.

    Returns:
        The imagined turns, the first one as turn 0, and log-probabilities, float64[episodes, turns, agents].
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        states, each = model.filtered(play), np.arange(len(turns))
        h, z = (states[name][each, turns] for name in ("h", "z"))
        seen, there = play.seen[each, turns], play.there[each, turns]
        present, alive, found = torch.from_numpy(there), there.any(-1), []
        for _ in range(horizon):
            did, logprobs = act(seen)
            onehot = F.one_hot(torch.from_numpy(did), model.actions).float() * present[..., None]
            h = model.follow(h, z, onehot, present)
            paid, end = model.outcome(h, present)
            over = (end.mean(-1) > 0).numpy()
            acted = there & alive[:, None]
            found.append((seen, did, (paid * model.scale).numpy() * acted, acted, over & alive, logprobs))
            alive = alive & ~over
            z = model.draw(model.prior(h))
            seen = model.sees(torch.cat([h, z], -1)).numpy()
    columns = [np.stack(column, 1) for column in zip(*found, strict=True)]
    return TeamPlay(*columns[:5]), columns[5]
