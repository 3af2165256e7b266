"""The errors that a report shows to its user."""


class ReportError(Exception):
    """What is wrong with a file or a folder that the report was given; the message names it."""
