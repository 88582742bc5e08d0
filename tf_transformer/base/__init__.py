"""Foundations without the rest of the package: errors, files, output, processes, memory."""
