"""The last line that a program prints when an error ends it: one sentence with the cause and the remedy.

Spark wraps each error of a data source into its own, with traces of several processes and the query's plan below it.
So the one sentence that helps stands in the middle of up to 300 lines.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

FORMAT = "kafka-group"

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

# A line of a traceback with an error of this project.
_OURS = re.compile(r"^(?:.*[\s:])?pyspark_kafka_group\.[\w.]*Error: (.+)$", re.MULTILINE)
_ANY = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_QUERY = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ", re.DOTALL)
_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_NO_FORMAT = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: (\S+?)\. ")

_OF_SPARK = {
    re.compile(rf'"{FORMAT}" cannot be written in the "ErrorIfExists" mode'): 'Add .mode("append") before .save().',
    re.compile(rf"{FORMAT} does not support continuous processing"): "Use trigger(processingTime='1 second').",
}
"""What Spark refuses of this format, by its own words, and the remedy."""

_NO_WORKER = "Python worker failed to connect back"
"""Spark's words if a Python that it starts does not report within 10 s."""

_LIKE_OURS = 0.75
"""Similarity from which the name of a format is a mistyped one of ours."""


def last_line(error: BaseException) -> str | None:
    """Return the sentence to print below an error that ends the program; None if this project has nothing to add."""
    text = str(error)
    is_of_query = type(error).__name__ == "StreamingQueryException"
    what = "kafka-group: the query ended: " if is_of_query else "kafka-group: "
    ours = _OURS.findall(text)
    if ours:
        return what + _STATE.sub("", ours[-1])
    missing = _NO_FORMAT.search(text)
    if missing:
        hint = _hint_for_format(missing[1])
        return hint and what + hint
    for words, remedy in _OF_SPARK.items():
        if refused := words.search(text):
            return f"{what}{refused[0]}. {remedy}"
    if not is_of_query:
        return None
    if _NO_WORKER in text:
        return f"{what}{_NO_WORKER}. {_hint_for_worker()}"
    of_user = [line for line in _ANY.findall(text) if not line[0].startswith(("org.", "java."))]
    if of_user:
        return f"{what}{of_user[-1][0]}: {_STATE.sub('', of_user[-1][1])}"
    return what + _STATE.sub("", _QUERY.sub("", text)).partition("\n")[0]


def print_error(
    before: ExceptHook, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error that ends the program as ``before`` does, and :func:`last_line` below it.

    The error of a query is not printed twice: Spark has logged it.
    """
    line = _line_or_none(error)
    if line is None or not _is_in_sparks_log(error):
        before(kind, error, trace)
    if line is not None:
        sys.stderr.write(f"\n{line}\n")  # the cursor may be behind Spark's progress bar


def _line_or_none(error: BaseException) -> str | None:
    try:
        return last_line(error)
    except Exception:  # Deliberate: the program ends with another error, which must be seen
        traceback.print_exc()
        return None


def _is_in_sparks_log(error: BaseException) -> bool:
    """Tell whether Spark has logged the whole error to the same terminal: of a query, but not through Connect."""
    kind = type(error)
    if kind.__name__ != "StreamingQueryException" or ".connect" in kind.__module__:
        return False
    from pyspark import SparkContext

    try:
        jvm: Any = SparkContext._jvm
        root = jvm.org.apache.logging.log4j.LogManager.getRootLogger()
        appenders = [appender.getClass().getSimpleName() for appender in root.getAppenders().values()]
        return bool(root.isErrorEnabled()) and "ConsoleAppender" in appenders
    except Exception:  # Deliberate: twice is better than not at all
        return False


def _hint_for_worker() -> str:
    return (
        f"Spark started {_sparks_python()}, which did not report within 10 s. Start fewer applications at once if the "
        f"machine is busy, or correct PYSPARK_PYTHON if that Python does not start."
    )


def _hint_for_format(name: str) -> str | None:
    if name != FORMAT:
        import difflib

        similar = difflib.SequenceMatcher(None, name.lower(), FORMAT).ratio() >= _LIKE_OURS
        return f"Spark knows no format '{name}'. Write format(\"{FORMAT}\")." if similar else None
    return (
        f"the Python that Spark starts ({_sparks_python()}) does not have the package pyspark-kafka-group. Set "
        f"PYSPARK_PYTHON={sys.executable}, or install the package there."
    )


def _sparks_python() -> str:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return getattr(context, "pythonExec", None) or os.environ.get("PYSPARK_PYTHON") or "python3"
