"""What can go wrong for a user, in one sentence each."""


class BadInput(ValueError):
    """The user's input cannot be used; the message names the field, the value and what is allowed."""
