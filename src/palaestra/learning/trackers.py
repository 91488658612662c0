"""Where metrics go beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow, or what you name by `module:name`.

A tracker is told the numbers of every iteration; one that fails is not asked again, and the run goes on. After a resume
the iterations since the last checkpoint are told again, as they are written again. Left out: pictures, texts, models.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from palaestra.errors import InputError, missing_extra
from palaestra.foundation.files import refuse_link
from palaestra.foundation.registry import Registry, read_call


class Tracker(Protocol):
    """Protocol of an experiment tracker: `log(iteration, metrics)`, metrics of a run by name, and `close()`."""

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of an iteration by their names, "policies/solver/entropy"."""

    def close(self) -> None:
        """Close the tracker at the end of the run."""


@dataclass(frozen=True)
class Tracked:
    """Data: description of a run, given to its trackers: directory, name, group, config, iteration to go on from.

    directory: of the seed; files belong there. name: of recipe and seed. group: the recipe's. config: the recipe.
    since: the last iteration that stays; what was told after it will be told again.
    """

    directory: Path
    name: str
    group: str
    config: dict[str, Any] = field(default_factory=dict)
    since: int = 0

    @property
    def id(self) -> str:
        """Id of the run, the same for the same directory, also after a resume."""
        place = hashlib.sha256(str(self.directory.resolve()).encode()).hexdigest()[:12]
        return f"palaestra-{place}"


TRACKERS: Registry[Tracker] = Registry("tracker", home=("palaestra.learning.trackers",), example="tensorboard()")
"""Functions of a `Tracked` run, and options, to a `Tracker`."""


@TRACKERS.register("tensorboard")
class TensorBoard:
    """Tracker of a `Tracked` run: writes TensorBoard event files to `directory`, by default the run's tensorboard/.

    To see them: `tensorboard --logdir runs`.
    """

    def __init__(self, run: Tracked, *, directory: str | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.directory / "tensorboard" if directory is None else Path(directory) / run.name
        self._writer = SummaryWriter(str(folder), purge_step=run.since + 1)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Write a scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, iteration)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


@TRACKERS.register("wandb")
class WeightsAndBiases:
    """Tracker of a `Tracked` run, one seed, in Weights & Biases, under `project` (default: the recipe's name).

    mode: "online", "offline", or as WANDB_MODE says.

    Steps that were told before a resume stay as they were told first.
    """

    def __init__(
        self, run: Tracked, *, project: str | None = None, entity: str | None = None, mode: str | None = None
    ) -> None:
        import wandb

        self._run = wandb.init(
            project=project or run.group,
            entity=entity,
            mode=mode,
            name=run.name,
            group=run.group,
            id=run.id,
            resume="allow",
            dir=str(run.directory),
            config=run.config,
        )

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Log all metrics as one step."""
        self._run.log(dict(metrics), step=iteration)

    def close(self) -> None:
        """Finish the run and upload what is left."""
        self._run.finish()


@TRACKERS.register("mlflow")
class MLflow:
    """Tracker of a `Tracked` run, one seed, in MLflow, under `experiment` (default: the recipe's name).

    uri: of the server or store; default MLFLOW_TRACKING_URI, else the file mlflow.db in the folder of the seed.
    """

    def __init__(self, run: Tracked, *, uri: str | None = None, experiment: str | None = None) -> None:
        import mlflow

        place = uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            refuse_link(run.directory / "mlflow.db")
            place = f"sqlite:///{run.directory.resolve() / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(tracking_uri=place)
        name = experiment or run.group
        found = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if found is None else found.experiment_id
        before = self._client.search_runs([number], filter_string=f"tags.palaestra = '{run.id}'")
        if before:
            self._id = before[0].info.run_id
        else:
            made = self._client.create_run(number, run_name=run.name, tags={"palaestra": run.id})
            self._id = made.info.run_id
            for key, value in flat(run.config):
                self._client.log_param(self._id, key, str(value)[:500])

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Log each metric."""
        for name, value in metrics.items():
            self._client.log_metric(self._id, name, value, step=iteration)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


# -- from text ---------------------------------------------------------------------------------------------------------

_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
"""What a tracker cannot do without, which is also the name of the extra."""


def check(texts: Iterable[str]) -> None:
    """Raise InputError or MissingExtraError if a tracker of `texts` could not be made; none is made.

    Raises:
        InputError: there is no such tracker, or it does not take these options.
        MissingExtraError: its library is not installed; names the extra.
    """
    for text in texts:
        name, values, options = read_call(text, TRACKERS.example)
        make = TRACKERS.find(name)
        try:
            inspect.signature(make).bind(None, *values, **options)
        except TypeError as error:
            raise InputError(f"{text}: {error}") from error
        package = _PACKAGES.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise missing_extra(package, package)


def build(texts: Iterable[str], run: Tracked) -> list[Tracker]:
    """List of trackers, "wandb()" and such, of a `Tracked` run; one that cannot be made is left out with a warning."""
    made = []
    for text in texts:
        try:
            name, values, options = read_call(text, TRACKERS.example)
            made.append(TRACKERS.find(name)(run, *values, **options))
        except Exception as error:  # whatever a service does
            _warn(text, error)
    return made


# -- telling them ------------------------------------------------------------------------------------------------------


class Trackers:
    """Several trackers as one; one that fails is not called again."""

    def __init__(self, trackers: Sequence[Tracker] = ()) -> None:
        self._asked = list(trackers)

    def log(self, line: Mapping[str, Any]) -> None:
        """Send the numbers of a line of metrics to every tracker."""
        metrics = finite_numbers(line)
        self._ask(lambda tracker: tracker.log(line["iteration"], metrics))

    def close(self) -> None:
        """Close every tracker."""
        self._ask(lambda tracker: tracker.close())

    def _ask(self, what: Any) -> None:
        for tracker in list(self._asked):
            try:
                what(tracker)
            except Exception as error:  # whatever a service does
                self._asked.remove(tracker)
                _warn(type(tracker).__name__, error)


def finite_numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """Dict of the finite numbers in a nested line of metrics, by their path: "policies/solver/kl".

    >>> finite_numbers({"iteration": 3, "reward": 0.5, "success": None, "policies": {"a": {"kl": 1}}, "alarms": ["x"]})
    {'reward': 0.5, 'policies/a/kl': 1.0}
    """
    return {
        name: float(value)
        for name, value in flat(line)
        if name != "iteration"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Generator of pairs (path, value) of nested mappings' fields, the path parted by slashes."""
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from flat(item, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", item


def _warn(name: str, error: Exception) -> None:
    said = str(error).strip().splitlines() or [""]
    warnings.warn(f"tracker {name}: {type(error).__name__}: {said[0]}; the run goes on without it", stacklevel=4)
