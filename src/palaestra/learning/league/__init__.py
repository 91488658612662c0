"""Leagues: opponents are past selves and scripts, drawn for each group of episodes by a rule.

`payoffs` holds who earned what against whom, `rules` says who is met, `population` who there is, `trainer` trains.
"""
