"""Training as a program: the trainer, its states and best weights, workers, memory."""
