"""A job as it is written: steps on rows. `compilation` makes of them the stages and edges that a backend runs."""
