"""Running user code: records become blocks in a mapper, blocks become states in a reducer. Knows no messages and no
actors."""
