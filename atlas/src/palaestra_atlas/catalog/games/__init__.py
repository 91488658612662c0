"""Systems of the family games."""
