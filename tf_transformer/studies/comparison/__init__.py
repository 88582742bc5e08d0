"""Comparison of systems on one test set: scores, significance, sentences, settings, cost."""
