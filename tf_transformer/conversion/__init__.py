"""Models into and out of the formats of others."""
