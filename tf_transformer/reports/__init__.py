"""What a run's card says, what training costs, and how systems compare."""
