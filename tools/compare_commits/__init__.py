"""Checks that a refactoring changed nothing: two commits do the same work, bit for bit."""
