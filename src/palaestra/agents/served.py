"""`ServedPolicy`: a language model that a server samples from and that learns here.

It holds an `LMPolicy`, which scores, learns and is saved, and asks a vLLM or SGLang server, or several replicas of one,
for answers, a request each, seeded from the episode's rng. Before anything is asked the servers are given the weights
that are here: a folder that they reload in place, or an adapter under a name of its own. After every such sync a few
answers are compared with what the weights here say to them, and a server that answers with other weights is refused.
Who serves what is checked again around each wave, so a server that was restarted gets its weights back and is asked for
what it owes: the rest of answers that it broke off. What fails for good is a row with an error. A twin of the policy,
which plays ahead with older weights (`train.lag`), shares the servers; they hold one version until its requests are
done, or are given newer ones in the middle of answers (`train.inflight`). Whole weights can go without a folder
(`transfer`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from palaestra.agents.backends.borrowing import weightless
from palaestra.agents.backends.serving import Serving, check, check_distribution
from palaestra.agents.lm import LMPolicy
from palaestra.agents.policy import Scored

if TYPE_CHECKING:
    import polars as pl

MEASURED, TOKENS = 256, 4096
"""Rows of an iteration on which the mismatch is measured, and padded tokens at once."""


class ServedPolicy(Serving):
    """Language-model policy whose weights are trained here and sampled on a server (vLLM, SGLang).

    url: of a server that runs, `http://127.0.0.1:8000/v1`, or a list of replicas: each request goes to the one with the
    fewest under way, and one that is gone gets none until it is back with the current weights; or server="vllm", which
    starts `replicas` servers as children on 127.0.0.1 (`palaestra.agents.backends.launch`), with the options `engine`.
    dialect: "vllm" or "sglang". served_name: what a server calls its model; default: the first that it lists.
    concurrency: requests at a time, of all replicas. timeout: seconds for one answer. patience: seconds to wait for a
    server when none answers, before its rows have errors (or a run stops, to be resumed). tolerance: nats per token
    that the server's log-probabilities may differ from those here after a sync, on average; less if it was less at the
    first. None: 0.05, as 16 bits need, or 0.001 for a float32 server that is started here.
    stream: ask for answers token by token, so that one that is broken off is gone on with where it was.
    api_key_env: NAME of an environment variable.
    transfer: way of whole weights, of `palaestra.agents.backends.transfers.TRANSFERS`: "folder"; for vLLM
    "shared_memory" on one machine, "ipc" or "nccl" between GPUs by vLLM's own engines (not run: no GPU), or "auto"; for
    SGLang "http", in requests. A way that fails is left for the folder, with one warning.
    cluster: address of a Ray cluster ("auto", "host:6379") on whose nodes server="vllm" starts its replicas, each with
    GPUs of its own; weights reach them through the object store. None: on this machine.

    The folder with the weights is made where TMPDIR says; a server on another machine must see it under that path.
    Raises InputError for settings that cannot work; nothing is asked or started before the first sync.
    """

    @classmethod
    def from_pretrained(cls, model: str | Path, **options: Any) -> ServedPolicy:
        """Makes the policy from `LMPolicy.from_pretrained(model)` and a server; options of both."""
        own = {name: options.pop(name) for name in OPTIONS if name in options}
        if options.get("name", "lm") in weightless():
            options, own = options | {"device": "meta"}, own | {"transfer": "folder"}
        return cls(LMPolicy.from_pretrained(model, **options), **own)

    @staticmethod
    def check(model: str | Path, **options: Any) -> None:
        """Check the arguments of `from_pretrained` without weights or server. Raises InputError if it cannot work."""
        own = {name: options.pop(name) for name in OPTIONS if name in options}
        check_distribution(options.get("top_p", 1.0), options.get("stop", ()))
        made = LMPolicy.check(model, **options)
        check(**own, adapting=made.lora is not None or made.adapter is not None)

    def mismatch(self, frame: pl.DataFrame) -> dict[str, float]:
        """Difference between the server's log-probabilities and those here, dict, on at most 256 of the rows.

        mismatch: mean |log π_here - log π_server| per token, in nats. mismatch_max: the largest. mismatch_ess:
        effective sample size of the tokens' ratios w, (Σw)² / (n Σw²), 1 if both agree. Nothing if there are no rows.
        Of answers in which weights changed (column `token_versions`), only tokens of those that are here now count.
        """
        import polars as pl

        mine = (pl.col("policy").cast(pl.String) == self.name) & pl.col("error").is_null()
        rows = frame.filter(mine, pl.col("action_ids").list.len() > 0, pl.col("logprobs").is_not_null())
        rows = rows.gather_every(-(-rows.height // MEASURED)) if rows.height else rows
        if not rows.height:
            return {}
        found, longest = [], max(rows["prompt_ids"].list.len() + rows["action_ids"].list.len())
        with self._changing, torch.no_grad():
            for part in rows.iter_slices(max(1, TOKENS // longest)):
                scored = self.lm.score(part)
                known = "token_versions" in part.columns and part["token_versions"].null_count() == 0
                versions = part["token_versions"] if known else None
                here = scored.logprobs[scored.mask].double().cpu().numpy()
                apart = here - part["logprobs"].explode().to_numpy()
                found.append(apart if versions is None else apart[versions.explode().to_numpy() == self.number])
        apart = np.concatenate(found)
        if not len(apart):
            return {}
        ratio = np.exp(np.clip(apart, -20, 20))
        ess = ratio.sum() ** 2 / (len(ratio) * np.square(ratio).sum())
        size = np.abs(apart)
        return {"mismatch": float(size.mean()), "mismatch_max": float(size.max()), "mismatch_ess": float(ess)}

    # Learning: all of it is the language model's

    def score(self, rows: pl.DataFrame) -> Scored:
        """Log-probabilities of stored actions by the weights here; as `LMPolicy.score`."""
        return self.lm.score(rows)

    def parameters(self) -> list[torch.nn.Parameter]:
        """Trainable parameters."""
        return self.lm.parameters()

    def state_dict(self) -> dict[str, Any]:
        """Trainable parameters, as `LMPolicy.state_dict`: checkpoints of the two are the same."""
        return self.lm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy `state` into the parameters; the server gets it when it is next asked."""
        self.lm.load_state_dict(state)

    def frozen_copy(self) -> LMPolicy:
        """A frozen `LMPolicy` copy that samples by its own forward pass and needs no server."""
        return self.lm.frozen_copy()

    def twin(self) -> ServedPolicy:
        """A copy with weights of its own that is answered for by the same servers; see `Team.twin`."""
        return self.sharing(self.lm.twin())

    def save(self, path: str | Path) -> None:
        """Write model, tokenizer and settings as `LMPolicy.save`; `LMPolicy.load` reads them."""
        self.lm.save(path)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a language model has: model, tokenizer, encode, choice_probabilities."""
        if name == "lm" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.lm, name)


OPTIONS = (
    "url", "server", "replicas", "engine", "dialect", "served_name", "api_key_env", "concurrency", "timeout",
    "patience", "tolerance", "stream", "transfer", "cluster",
)  # fmt: skip
