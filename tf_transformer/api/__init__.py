"""The work of the commands as functions: configure, train, tune, compare systems."""
