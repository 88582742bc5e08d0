"""Tasks of a run, a room each, and what they share; `registry` knows them by name."""
