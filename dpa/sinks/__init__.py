"""Where results go: places that are replaced as a whole, and partial results while a job is running."""
