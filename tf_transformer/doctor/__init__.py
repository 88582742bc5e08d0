"""Checks of data, tokenizer and settings before hours are spent on training."""
