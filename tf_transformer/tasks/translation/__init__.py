"""Translation (paper 5 and 6.1)."""
