"""Judged: what somebody's verdicts, votes, feelings or preferences become."""
