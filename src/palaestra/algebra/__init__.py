"""The algebra: the table of turns, signals over it, their text, and the general words that every paper uses."""
