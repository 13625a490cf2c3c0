"""Inputs that no one would draw by hand: schemas and bytes through each reader and kind of step. A job of them has a
result, or raises a `DpaError`; whatever else comes of one, a dead process too, is an offender."""
