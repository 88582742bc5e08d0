"""What the commands do, as functions: configure, train and export a run."""
