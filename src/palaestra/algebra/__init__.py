"""The algebra: the table of turns, signals over it, their text, and the general words that every paper uses."""

from palaestra.algebra import explain, kernels, partition, preferences, text  # noqa: F401  code of methods (`binding`)
