"""Parallel text before training: what is wrong with it, and the pairs in which nothing is."""
