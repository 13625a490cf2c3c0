"""Stages whose number of tasks follows their work, under loads that change."""
