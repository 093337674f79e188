"""The errors that are the user's to mend."""


class InputError(ValueError):
    """Something given from outside is wrong; the message says what, where, and what to do.

    The command line prints it as one line and exits with code 2; everything else is a bug
    and shows its traceback.
    """


class NotFinite(InputError):
    """A computation left the range of its numbers."""
