"""Commands for data, other tasks, pictures and other formats."""
