"""The coordinator: starts tasks, hands out splits, changes the tasks of stages, and sees every stage to its end."""
