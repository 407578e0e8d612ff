import pytest
from pyspark.sql import types as t

from pyspark_kafka_group.formats.ddl import struct_type
from pyspark_kafka_group.options.parsers import MalformedError

PAIRS = [
    ("id BIGINT, name STRING", "struct<id:bigint,name:string>"),
    ("id bigint NOT NULL COMMENT 'the id, of course', `odd ``name` int", "struct<id:bigint,odd `name:int>"),
    ("a ARRAY<STRUCT<x: DOUBLE, y DECIMAL(9,2)>>", "struct<a:array<struct<x:double,y:decimal(9,2)>>>"),
    ("struct<m:map<string,array<date>>>", "struct<m:map<string,array<date>>>"),
    (
        "d DECIMAL, e DEC(5), f TIMESTAMP_NTZ, g TIMESTAMP",
        "struct<d:decimal(10,0),e:decimal(5,0),f:timestamp_ntz,g:timestamp>",
    ),
    ("a tinyint, b smallint, c float, d boolean, e binary", "struct<a:tinyint,b:smallint,c:float,d:boolean,e:binary>"),
]


@pytest.mark.parametrize(("text", "simple"), PAIRS)
def test_ddl_is_read_as_spark_reads_it(text: str, simple: str) -> None:
    assert struct_type(text).simpleString() == simple


def test_the_json_of_a_schema_is_read_and_everything_becomes_nullable() -> None:
    given = t.StructType().add("a", t.ArrayType(t.IntegerType(), containsNull=False), nullable=False)

    found = struct_type(given.json())

    assert found == t.StructType().add("a", t.ArrayType(t.IntegerType(), containsNull=True), nullable=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id", "a type is missing at its end"),
        ("id BIGIN", "'BIGIN' is not a supported type"),
        ("id INT name STRING", "nothing may follow"),
        ("a ARRAY<INT", "'>' is missing at its end"),
        ("d DECIMAL(39,2)", "a decimal with precision 39"),
        ("d DECIMAL(2,3)", "a decimal with precision 2 and scale 3"),
        (t.StructType().add("d", t.DecimalType(50, 2)).json(), "a decimal with precision 50"),
        (t.StructType().add("d", t.DecimalType(9, -2)).json(), "scale -2"),
        ("m MAP<INT,INT>", "keys are not STRING"),
        ("a INT, a INT", "two fields 'a'"),
        ("s STRUCT<>", "a struct without fields (field s)"),
        ("", "a struct without fields"),
        ('{"type": "struct"}', "not the JSON of a schema"),
        ("{", "not the JSON of a schema"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, problem: str) -> None:
    with pytest.raises(MalformedError) as raised:
        struct_type(text)

    assert problem in str(raised.value)
