"""Compresses the records of a batch, as Kafka's clients do.  No Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The number of each codec in the attributes of a batch."""

USUAL_LEVEL = -1
"""The default of librdkafka's ``compression.level``: the codec decides."""

_USUAL_LEVELS = {"gzip": 6, "zstd": 3}  # of librdkafka and of the Java client; Arrow has others
_HIGHEST_LEVELS = {"gzip": 9, "snappy": 0, "lz4": 12, "zstd": 12}

_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # of a frame with independent blocks of 64 KB
_LZ4_END = bytes(4)
_LZ4_AS_IS = 1 << 31  # marks a block that is not compressed


class Compression:
    """A codec and its level.

    Parameters
    ----------
    name : str
        A key of `NUMBERS`.
    level : int
        The level of librdkafka's ``compression.level``.

    Attributes
    ----------
    number : int
        The number in the attributes of a batch.

    Raises
    ------
    ValueError
        If the codec is unknown, or does not have this level.
    """

    def __init__(self, name: str, level: int = USUAL_LEVEL) -> None:
        import pyarrow as pa

        if name not in NUMBERS:
            raise ValueError(f"unknown codec {name!r}")
        if not USUAL_LEVEL <= level <= _HIGHEST_LEVELS[name]:
            raise ValueError(f"{name} has no level {level}")
        self.number = NUMBERS[name]
        self._lz4 = name == "lz4"
        level = _USUAL_LEVELS.get(name, level) if level == USUAL_LEVEL else level
        arrow_level = None if name == "snappy" or level == USUAL_LEVEL else level
        self._codec = pa.Codec("lz4_raw" if self._lz4 else name, compression_level=arrow_level)

    def compress(self, records: pa.Buffer) -> bytes:
        """Return the compressed records of a batch.  They may be larger than before."""
        return self._frame(records) if self._lz4 else self._compress(records)

    def _compress(self, records: pa.Buffer) -> bytes:
        # Deliberate: no buffer of Arrow.  It would keep the memory of the largest possible result, and its memoryview
        # would have that length (pyarrow 26).
        found: bytes = self._codec.compress(records, asbytes=True)
        return found

    def _frame(self, records: pa.Buffer) -> bytes:
        # Deliberate: not Arrow's own frames.  Their blocks refer to earlier ones, which Kafka's brokers cannot read.
        parts: list[bytes | pa.Buffer] = [_LZ4_HEADER]
        for at in range(0, records.size, _LZ4_BLOCK_BYTES):
            block = records.slice(at, min(_LZ4_BLOCK_BYTES, records.size - at))
            small = self._compress(block)
            if len(small) < block.size:
                parts += (len(small).to_bytes(4, "little"), small)
            else:
                parts += ((block.size | _LZ4_AS_IS).to_bytes(4, "little"), block)
        parts.append(_LZ4_END)
        return b"".join(parts)
