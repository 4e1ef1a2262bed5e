"""Why a figure is missing."""

from __future__ import annotations


class NotMeasured(Exception):
    """A figure that could not be taken, with the reason that the page gives for it."""


class ToolMissing(NotMeasured):
    """This machine cannot take the figure, whoever is measured, so nobody is judged by it."""
