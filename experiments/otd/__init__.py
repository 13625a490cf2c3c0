"""Placements that follow the load while a job runs: OTD (N-Storm, 5.3) beside allocators asked again, and ours."""
