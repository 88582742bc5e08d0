"""The training recipe: schedule, loss, metrics, checkpoints, trainer."""
