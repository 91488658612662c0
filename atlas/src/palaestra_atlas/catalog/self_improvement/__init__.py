"""Systems of the family self_improvement."""
