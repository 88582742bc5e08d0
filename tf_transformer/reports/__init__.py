"""The card of a run, the cost of training, and comparisons of systems."""
