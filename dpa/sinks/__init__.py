"""Where results go: directories that are replaced as a whole, and partial results while a job is running."""
