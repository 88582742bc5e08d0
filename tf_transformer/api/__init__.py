"""The work of the commands as functions: configure, train, check and export a run."""
