"""Quality diversity: search over policies' parameters for many behaviours, some of which pay. No gradient is taken.

`search.DiversitySearch` is the loop by ask and tell, `learner.Diversity` puts it under a training, and `analyses` reads
the archives of a run. Archives, novelty and mutation are those of pyribs (extra `diversity`).
"""
