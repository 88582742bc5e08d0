"""What a run is for: records of functions that the trainer calls."""
