"""The tasks, one package each, and the code they share; `registry` lists them."""
