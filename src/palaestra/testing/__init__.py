"""The conformance suite: whether an env, a policy or a signal keeps its protocol. All that ship here pass it.

Each check returns nothing, or raises AssertionError with a sentence that names what broke and where.
"""

from palaestra.testing.env import check_env, check_episode
from palaestra.testing.policy import check_policy
from palaestra.testing.signal import check_signal

__all__ = ["check_env", "check_episode", "check_policy", "check_signal"]
