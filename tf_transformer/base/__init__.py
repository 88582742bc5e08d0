"""What needs nothing else of this package: errors, files, output, processes and memory."""
