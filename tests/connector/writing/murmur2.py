"""Keys and their hashes, for the tests of both producers."""

# The results of org.apache.kafka.common.utils.Utils.murmur2 in Kafka's own UtilsTest.  The partitioner clears their
# sign bit.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
