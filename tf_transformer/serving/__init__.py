"""An HTTP server for runs and exports: paths, queue, versions."""
