"""A module that no other imports, with a function that nobody made a task."""


def run() -> None:
    """Do what a sender wants."""
