"""Groupings: how a sender chooses the reducer of each record. One file each, one interface (`base`), and `options` to
choose by name."""
