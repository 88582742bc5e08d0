"""Parallel text: corpora, tokenisation, batches."""
