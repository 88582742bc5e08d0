"""Parallel text to batches: corpora, tokenisation, plans, spans and slots."""
