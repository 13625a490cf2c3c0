"""What is seen of a running job, and how it is asked for something: nothing here runs or decides anything."""
