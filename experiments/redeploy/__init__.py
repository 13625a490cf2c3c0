"""What it costs to move tasks of a running job: the schemes that the N-Storm paper compares (5.2), and ours."""
