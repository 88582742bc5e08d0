"""Ground floor: errors, files, output, the system and the memory of a process."""
