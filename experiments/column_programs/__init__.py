"""Two tasks on tables as a user writes them for each tool: what `experiments.columns` runs, and whose lines it counts.

`best`: filter, derive, join, five aggregates by key, top 10. `segments`: a join and a sum by key.
"""
