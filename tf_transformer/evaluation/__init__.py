"""Scores of finished translations, and significance tests between them."""
