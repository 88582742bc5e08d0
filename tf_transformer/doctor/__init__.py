"""Checks of data, tokenizer and settings before hours of training are spent."""
