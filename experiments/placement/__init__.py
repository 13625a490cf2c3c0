"""The placement papers' evaluations, and ours."""
