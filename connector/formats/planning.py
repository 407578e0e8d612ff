"""Decides on the driver which type and which schema each column has.

Spark asks for the schema at ``load()``, in one process, and later for a reader, in another one.  The newest version may
change in between.  So the metadata of the column contains the id of the schema.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from pyspark.sql import types as t

from pyspark_kafka_group.columns.schema import spark_schema
from pyspark_kafka_group.formats import avro_types
from pyspark_kafka_group.formats.ddl import all_nullable, struct_type
from pyspark_kafka_group.formats.registry import Definition, Registry, UnknownSchemaError, registry_of
from pyspark_kafka_group.offsets.errors import ConfigurationError, MissingDependencyError, OptionError
from pyspark_kafka_group.options.format_settings import (
    MALFORMED_COLUMN,
    ColumnFormat,
    Format,
    Formats,
    OnMalformed,
    uses_registry,
)
from pyspark_kafka_group.options.parsers import MalformedError

ID = "schema.registry.id"
"""The key of the schema id in the metadata of a column."""

_PACKAGES: dict[Format, tuple[str, ...]] = {
    Format.AVRO: ("fastavro",),
    Format.PROTOBUF: ("google.protobuf",),
}
_OF_REGISTRY = ("httpx2|httpx", "authlib", "cachetools", "attrs|attr")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """How one column is decoded.  Sent to executors.

    Attributes
    ----------
    format : ColumnFormat
        The options of the column.
    type : DataType
        The type of the column.
    definition : Definition or None
        The reader's schema; None for formats without one.
    """

    format: ColumnFormat
    type: t.DataType
    definition: Definition | None = None


def typed_schema(columns: tuple[str, ...], formats: Formats) -> t.StructType:
    """Return the columns of the rows, with the types of decoded columns.

    Raises
    ------
    KafkaGroupError
        If a schema or a package is missing, or if Spark has no type for the schema.
    """
    plans = {plan.format.column: plan for plan in _plans(formats, ids={})}
    fields = []
    for field in spark_schema(columns):
        plan = plans.get(field.name)
        if plan is None:
            fields.append(field)
            continue
        known = plan.definition is not None and plan.definition.id is not None
        metadata = {ID: plan.definition.id} if known and plan.definition is not None else None
        fields.append(t.StructField(field.name, plan.type, nullable=True, metadata=metadata))
    if formats.on_malformed is OnMalformed.NULL:
        fields.append(t.StructField(MALFORMED_COLUMN, t.StringType()))
    return t.StructType(fields)


def column_plans(formats: Formats, columns: tuple[str, ...], schema: t.StructType) -> tuple[ColumnPlan, ...]:
    """Return how to decode columns to the schema from `typed_schema`.

    Raises
    ------
    ConfigurationError
        If the user has set another schema, or the registry has changed in between.
    KafkaGroupError
        In the cases of `typed_schema`.
    """
    ids = {field.name: int(field.metadata[ID]) for field in schema if ID in (field.metadata or {})}
    plans = _plans(formats, ids)
    own = {field.name: field.dataType for field in spark_schema(columns)}
    own |= {plan.format.column: plan.type for plan in plans if plan.format.column in own}
    if formats.on_malformed is OnMalformed.NULL:
        own[MALFORMED_COLUMN] = t.StringType()
    wrong = [field.name for field in schema if own.get(field.name) != field.dataType]
    if [field.name for field in schema] != [*own] or wrong:
        raise ConfigurationError(
            f"The columns are not those that the formats give{f' ({wrong[0]})' if wrong else ''}. Remove .schema(...). "
            f"If there is none, the newest schema in the registry has just changed: call load() again, or set "
            f"valueSchemaId."
        )
    return plans


def _plans(formats: Formats, ids: Mapping[str, int]) -> tuple[ColumnPlan, ...]:
    _require_packages(formats)
    registry = registry_of(formats.registry) if uses_registry(formats) else None
    return tuple(_plan(one, registry, ids.get(one.column)) for one in formats.columns)


def _plan(one: ColumnFormat, registry: Registry | None, number: int | None) -> ColumnPlan:
    if one.format is Format.STRING:
        return ColumnPlan(format=one, type=t.StringType())
    option = _option(one)
    try:
        if one.format is Format.JSON:
            return ColumnPlan(format=one, type=struct_type(one.schema or ""))
        definition = _definition(one, registry, number)
        if one.format is Format.AVRO:
            from pyspark_kafka_group.formats.avro_decoder import check_avro

            named = [avro_types.of_text(text) for _, text in definition.references]
            found = avro_types.spark_type(avro_types.of_text(definition.text), named)
            check_avro(definition)
        else:
            from pyspark_kafka_group.formats.protobuf import file_of, message_of, spark_type

            found = spark_type(message_of(file_of(definition), one.message))
    except MalformedError as malformed:
        raise OptionError(option, str(malformed), malformed.remedy) from None
    except RecursionError:
        raise OptionError(option, "it is nested too deeply.", "Read it as binary, or name another schema.") from None
    return ColumnPlan(format=one, type=all_nullable(found), definition=definition)


def _option(one: ColumnFormat) -> str:
    """Return the option that decides the schema."""
    if one.schema is not None:
        return one.option("Schema")
    return one.option("SchemaId" if one.schema_id is not None else "Subject")


def _definition(one: ColumnFormat, registry: Registry | None, number: int | None) -> Definition:
    kind = one.format.name
    if one.schema is not None:
        return Definition(id=None, kind=kind, text=one.schema)
    assert registry is not None
    number = one.schema_id if number is None else number
    try:
        found = registry.by_id(number, kind) if number is not None else registry.newest(one.subject or "", kind)
    except UnknownSchemaError:
        what = f"schema {number}" if number is not None else f"subject {one.subject!r}"
        raise MalformedError(
            f"the schema registry has no {what}.", f"Register it, or set {one.column}Subject or {one.column}SchemaId."
        ) from None
    if found.kind != kind:
        raise MalformedError(
            f"schema {found.id} is a schema of {found.kind}.", f"Write {one.column}Format={found.kind.lower()}."
        )
    return found


def _require_packages(formats: Formats) -> None:
    """Check that the packages of the formats are installed, already on the driver.  Import nothing."""
    for one in formats.columns:
        needed: tuple[str, ...] = _PACKAGES.get(one.format, ())
        if uses_registry(formats) and one.format in _PACKAGES:
            needed += _OF_REGISTRY
        for package in needed:
            if not any(_there(name) for name in package.split("|")):
                raise MissingDependencyError(package.partition("|")[0], sys.executable, extra=one.format.value)


def _there(name: str) -> bool:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # its parent package is missing
        return False
    # Spark's jar, which is on Python's path, has folders of such names, such as google/protobuf.
    return spec is not None and spec.origin is not None
