"""Faults in decompression, and in what limits the memory of decoded values."""

from __future__ import annotations

from tests.faults.fault import Fault

_DECOMPRESSION = "connector/columns/decompression.py"
_TEST_DECOMPRESSION = "tests/connector/columns/test_decompression.py"
_SIZE = "connector/formats/protobuf_size.py"
_TEST_SIZE = "tests/connector/formats/test_protobuf_size.py"

FAULTS = [
    Fault(
        "each member of a gzip file may have the size of all",
        _DECOMPRESSION,
        "            left -= len(part)\n",
        "",
        _TEST_DECOMPRESSION,
    ),
    Fault(
        "gzip: a few bytes behind the end that begin like a member are an error",
        _DECOMPRESSION,
        "if len(data) - at < _GZIP_HEADER_BYTES or data[at : at + len(_GZIP_MAGIC)] != _GZIP_MAGIC:",
        "if data[at : at + len(_GZIP_MAGIC)] != _GZIP_MAGIC:",
        _TEST_DECOMPRESSION,
    ),
    Fault(
        "lz4: checksums of blocks are taken for blocks",
        _DECOMPRESSION,
        "checksum = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0",
        "checksum = 0",
        _TEST_DECOMPRESSION,
    ),
    Fault(
        "lz4: a wrong size of the content is not left out",
        _DECOMPRESSION,
        "_LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0)",
        "_LZ4_HEADER_BYTES",
        _TEST_DECOMPRESSION,
    ),
    Fault(
        "snappy: what only begins like another stream is taken for one",
        _DECOMPRESSION,
        "            if data[at : at + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:\n                break\n",
        "",
        _TEST_DECOMPRESSION,
    ),
    Fault(
        "small pieces are not joined",
        _DECOMPRESSION,
        "    if len(piece) >= _SMALL_PIECE_BYTES:\n",
        "    if len(piece) >= 0:\n",
        _TEST_DECOMPRESSION,
    ),
    Fault(
        "protobuf: the end of a group is not its end",
        _SIZE,
        "        elif wire == _END:\n            stack.pop()\n",
        "",
        _TEST_SIZE,
    ),
    Fault(
        "protobuf: groups that the schema does not have cost nothing",
        _SIZE,
        "            stack.append((group, end))\n            budget.spend_bytes(group.size)\n",
        "            stack.append((group, end))\n",
        _TEST_SIZE,
    ),
    Fault(
        "protobuf: packed numbers of a fixed size cost nothing",
        _SIZE,
        "budget.spend_bytes(found * _PACKED_BYTES)",
        "budget.spend_bytes(0 if width else found * _PACKED_BYTES)",
        _TEST_SIZE,
    ),
    Fault(
        "protobuf: a record that is cut off is walked without end",
        _SIZE,
        "if at < 0 or at > end or wire > _FIXED_32 or len(stack) > _DEEP + 1:",
        "if wire > _FIXED_32 or len(stack) > _DEEP + 1:",
        _TEST_SIZE,
    ),
    Fault(
        "fields of a struct cost nothing as objects",
        "connector/formats/budget.py",
        "    return 1 + sum(_parts_of(kind.field(n).type) for n in range(kind.num_fields))\n",
        "    return 1\n",
        "tests/connector/formats/test_budget.py",
    ),
    Fault(
        "json: signs inside of strings count as parts",
        "connector/formats/json_values.py",
        """if value[found.start()] != ord('"'))""",
        "if True)",
        "tests/connector/formats/test_json.py::test_a_document_of_many_texts_has_few_parts",
    ),
    Fault(
        "avro: fields without bytes are not counted",
        "connector/formats/avro_decoder.py",
        "            _READING.stream.budget.spend(len(value), 0)",
        "            pass",
        "tests/connector/formats/test_avro_native.py::test_fields_that_take_no_bytes_are_objects_too",
    ),
    Fault(
        "where: reasons of malformed values keep the numbers of dropped rows",
        "connector/formats/batches.py",
        "left = {new: reasons[old] for new, old in enumerate(kept) if old in reasons}",
        "left = {old: reasons[old] for old in kept if old in reasons}",
        "tests/connector/where/test_filtering.py",
    ),
    Fault(
        "Avro: a decimal of 39 digits is read",
        "connector/formats/avro_defaults.py",
        " or abs(number) >= _TOO_LARGE:",
        ":",
        "tests/connector/formats/test_avro.py",
    ),
    Fault(
        "protobuf: the walk ends one group too early",
        "connector/formats/protobuf_size.py",
        "len(stack) > _DEEP + 1:",
        "len(stack) > _DEEP:",
        "tests/connector/formats/test_protobuf_size.py",
    ),
    Fault(
        "json: exponents of decimals go to Arrow's reader",
        "connector/formats/json_decoder.py",
        "or (self._has_decimals and _EXPONENT.search(lines))",
        "",
        "tests/connector/formats/test_json.py",
    ),
]
