"""The commands of every model: train, translate, evaluate, score, export, serve."""
