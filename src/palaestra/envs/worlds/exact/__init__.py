"""Exact references of the worlds: equilibria, best responses, markets, designs."""
