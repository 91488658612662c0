"""Triage: cheap signals over anybody's logs, and the episodes that a person should read first.

A detector emits rows (row of the table, type, confidence, evidence); counting, quality, selection and the page to read
them are shared. [109] conversation and tools, [114] risks of groups, [76] integrity of a run's folder.
"""

from palaestra.evaluation.triage.execution import execution, loops
from palaestra.evaluation.triage.integrity import file_hashes, integrity
from palaestra.evaluation.triage.interaction import PHRASES, efficiency, interaction
from palaestra.evaluation.triage.quality import episodes
from palaestra.evaluation.triage.risks import collusion, collusion_index, majority_sway, monopolisation, price_rule
from palaestra.evaluation.triage.select import DETECTORS, WEIGHTS, by_system, detect, sampling_gain, triage
from palaestra.evaluation.triage.talk import messages

__all__ = [
    "DETECTORS",
    "PHRASES",
    "WEIGHTS",
    "by_system",
    "collusion",
    "collusion_index",
    "detect",
    "efficiency",
    "episodes",
    "execution",
    "file_hashes",
    "integrity",
    "interaction",
    "loops",
    "majority_sway",
    "messages",
    "monopolisation",
    "price_rule",
    "sampling_gain",
    "triage",
]
