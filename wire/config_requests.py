"""The request for the settings of brokers and topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.requests import Api, Request

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kafka's numbers for kinds of resources."""


@dataclass(frozen=True, slots=True)
class DescribeConfigs(Request[Mapping[str, dict[str, str]]]):
    """Requests the settings of resources of one kind.  Only a broker itself knows its settings.

    The answer has the settings by the name of the resource.  It leaves out resources with an error, and settings
    without a value, such as secret ones.
    """

    kind: int
    names: tuple[str, ...]
    keys: tuple[str, ...] | None = None  # the settings; None for all

    api = Api(32, "DescribeConfigs", 1, 4, flexible=4, since="1.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

        def resource(name: str) -> None:
            out.int8(self.kind)
            out.text(name)
            out.array(self.keys, out.text)
            out.end()

        out.array(self.names, resource)
        out.boolean(False)  # no synonyms
        if version >= 3:
            out.boolean(False)  # no documentation
        out.end()

    def read(self, answer: Reader, version: int) -> Mapping[str, dict[str, str]]:
        """Read the fields of the answer."""

        def synonym() -> None:
            answer.text()
            answer.nullable_text()
            answer.int8()
            answer.end()

        def setting() -> tuple[str, str | None]:
            found = answer.text(), answer.nullable_text()
            answer.boolean()  # read only
            answer.int8()  # source
            answer.boolean()  # secret
            answer.array(synonym)
            if version >= 3:
                answer.int8()  # type
                answer.nullable_text()  # documentation
            answer.end()
            return found

        def resource() -> tuple[int, str, list[tuple[str, str | None]]]:
            error = answer.int16()
            answer.nullable_text()  # message
            answer.int8()  # kind
            found = error, answer.text(), answer.array(setting)
            answer.end()
            return found

        answer.int32()  # throttle time
        resources = answer.array(resource)
        answer.end()
        return {
            name: {key: value for key, value in settings if value is not None}
            for error, name, settings in resources
            if not error
        }
