"""The exception for mistakes a user can make: the command line prints it as a single line."""


class UserError(Exception):
    """What was wrong, what was expected, what was received and what to do, in one line."""
