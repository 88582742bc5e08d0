"""Scores of finished translations."""
