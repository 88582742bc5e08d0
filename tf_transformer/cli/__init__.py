"""The command line: the table of commands, their options, and what each prints."""
