"""Parallel text to batches: corpora, documents, tokenisation, plans."""
