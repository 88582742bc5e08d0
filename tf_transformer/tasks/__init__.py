"""Tasks that a run can learn, a package each, and their shared code; `registry` lists them."""
