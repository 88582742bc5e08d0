"""BLEU by the length of the source, of one or more runs."""
