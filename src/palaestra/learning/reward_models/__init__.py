"""Reward models: losses, models that are fitted to pairs or labels, and how they are fitted.

What needs torch is imported when it is first asked for.
"""
