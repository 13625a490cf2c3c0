"""Where tasks run: a graph of task groups and a cluster of nodes in, a numbered plan out.

Policy only: nothing here knows Ray. `model` is what is placed, `scores` what a placement is worth, `allocators` the
algorithms, `relaxations` what is done to a graph or a cluster beforehand, and `online` the policies that look again."""
