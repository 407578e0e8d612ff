"""Reads a view of a group from the cluster, in one task for each action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.properties.client_config import check_properties
from pyspark_kafka_group.offsets.errors import BrokerError, OptionError
from pyspark_kafka_group.options.option import ParsedOptions, by_name
from pyspark_kafka_group.options.table import OPTIONS
from pyspark_kafka_group.views.schemas import MOMENTS, names

Row = tuple[Any, ...]
Document = dict[str, Any]


class KafkaGroupViewReader(DataSourceReader):
    """The reader of one view.

    Parameters
    ----------
    options : mapping of str to str
        The options of ``spark.read``: ``show``, ``kafka.group.id`` and the properties of the connection.

    Raises
    ------
    OptionError
        If an option is missing, or does not apply to views.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = by_name(options)
        written = {option.name.lower(): option.name for option in OPTIONS}
        self._view = given["show"].strip().lower()
        self._properties = ParsedOptions(given, {}).properties
        check_properties(self._properties)
        self._columns = names(self._view)
        for key in given:
            if not key.startswith("kafka.") and key != "show":
                raise OptionError(
                    written.get(key, key), "it changes nothing in a view of a group.", "Remove it, or remove show."
                )
        for key in ("bootstrap.servers", "group.id"):
            if not self._properties.get(key, "").strip():
                raise OptionError(f"kafka.{key}", "it is missing.", f"Add .option('kafka.{key}', ...).")
        self._properties["group.id"] = self._properties["group.id"].strip()  # as in a stream

    def partitions(self) -> list[InputPartition]:
        """Return one: each action reads the view anew.

        Raises
        ------
        OptionError
            If no client knows a property.
        """
        # Deliberate: not at the top.  Tasks do not need it.
        from pyspark_kafka_group.reading.client_cache import check_names
        from pyspark_kafka_group.reading.reader_config import reader_config

        check_names(reader_config(self._properties, self._properties["group.id"]))
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Read the view from the cluster."""
        del partition
        inspection = connect(self._properties, client_id="kafka-group-view")
        with closing(inspection):
            try:
                for document in self._documents(inspection):
                    yield tuple(
                        _moment(document[name]) if name in MOMENTS else _value(document[name]) for name in self._columns
                    )
            except TryAgainError as problem:  # also after the first rows, which Spark has already received
                raise BrokerError(
                    f"The cluster does not answer: {problem}. Check kafka.bootstrap.servers, the network, and "
                    f"kafka.security.protocol."
                ) from None

    def _documents(self, inspection: Cluster) -> Iterator[Document]:
        # Deliberate: not at the top.  Only the task needs it.
        from pyspark_kafka_group.tools.analysis.documents import entry_document, group_document, incident_document
        from pyspark_kafka_group.tools.analysis.group_view import answered, view_group, with_statuses, with_time_lags
        from pyspark_kafka_group.tools.analysis.history import merged, read_history
        from pyspark_kafka_group.tools.analysis.offsets_topic import (
            OffsetsTopicHeldBackError,
            OffsetsTopicUnreadableError,
        )
        from pyspark_kafka_group.tools.analysis.rewinds import find_incidents

        group = self._properties["group.id"]
        if self._view in ("lag", "members"):
            view = answered(lambda: view_group(inspection, group))
            if self._view == "lag":
                with suppress(TryAgainError):  # then there are no time lags
                    view = with_time_lags(view, inspection)
                # In these cases there is no status.
                with suppress(TryAgainError, OffsetsTopicUnreadableError, OffsetsTopicHeldBackError, OptionError):
                    view = with_statuses(view, inspection, self._properties)
                yield from group_document(view)["partitions"]
            else:
                whole = group_document(view)
                common = {key: whole[key] for key in ("group", "state", "protocol")}
                yield from ({**common, **member} for member in whole["members"])
            return
        entries = answered(lambda: read_history(inspection, self._properties, group))
        if self._view == "history":
            yield from (entry_document(group, entry) for entry in merged(entries))
        else:
            yield from (incident_document(group, incident) for incident in find_incidents(entries))


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None  # a number that is not a time


def _value(value: Any) -> Any:
    """Return a value in the form of a Spark row: a list of objects becomes a list of structs."""
    return [tuple(item.values()) for item in value] if isinstance(value, list) else value
