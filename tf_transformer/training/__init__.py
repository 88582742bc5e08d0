"""Training: the trainer and its progress, devices and workers, sessions, fine-tuning."""
