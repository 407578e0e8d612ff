"""Logs that a start waits for a server that does not answer, so that no wait is silent."""

from __future__ import annotations

import logging
import time

FIRST_S, AGAIN_S = 3.0, 10.0
"""When the first warning comes, and the time between later ones, in seconds."""


class WaitNotice:
    """The warnings about one wait.  Create it when the wait begins.

    Parameters
    ----------
    log : Logger
        Gets the warnings.
    whom : str
        The server, with its address.
    longest_s : float
        How long the wait may take, in seconds.
    """

    def __init__(self, log: logging.Logger, whom: str, *, longest_s: float) -> None:
        self._log = log
        self._whom = whom
        self._longest_s = longest_s
        self._began = time.monotonic()
        self._next_s = FIRST_S

    def note(self, problem: str) -> None:
        """Note that an attempt has failed.  Most calls log nothing."""
        waited_s = time.monotonic() - self._began
        if waited_s < self._next_s:
            return
        self._next_s = waited_s + AGAIN_S
        self._log.warning(
            "%s has not answered for %.0f s (%s). Trying for %g s.", self._whom, waited_s, problem, self._longest_s
        )
