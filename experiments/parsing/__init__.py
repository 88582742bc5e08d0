"""Constituency parsing (paper 6.3): translation from words to trees written as sequences."""
