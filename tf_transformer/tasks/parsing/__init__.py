"""Constituency parsing (paper 6.3)."""
