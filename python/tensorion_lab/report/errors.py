"""The error class of reports and exports."""


class ReportError(Exception):
    """An input file or folder is missing or invalid. The message contains its path."""
