"""Combine: several components made one, who of them counts, and to whom an outcome is attributed."""
