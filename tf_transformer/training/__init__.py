"""Training: the trainer, its progress and best weights, workers, memory."""
