/* Computes the digest of rows from the buffers of Arrow columns, without a Python object per row (row_digest.py). */

#include "_rows.h"

#include "../columns/_native.h"

TELL_SHARED(kg_digest_shared, sizeof(column_t), sizeof(rows_t))

/* Compute zlib's CRC-32, eight bytes at a time: `table` has eight tables of 256 entries (row_digest.py). */
static uint32_t crc32(const uint32_t *table, uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = table[7 * 256 + (crc & 0xFF)] ^ table[6 * 256 + (crc >> 8 & 0xFF)] ^ table[5 * 256 + (crc >> 16 & 0xFF)] ^
              table[4 * 256 + (crc >> 24)] ^ table[3 * 256 + data[4]] ^ table[2 * 256 + data[5]] ^
              table[256 + data[6]] ^ table[data[7]];
    }
    for (; size > 0; size--, data++) crc = table[(crc ^ *data) & 0xFF] ^ crc >> 8;
    return ~crc;
}

/* Return the sum over all rows of row_digest.py's number for topic, key and value; `topics` are the seeds of the topics. */
uint64_t kg_digest(const uint32_t *table, const rows_t *rows, int64_t count) {
    const uint32_t *seeds = rows->topics;
    static const uint8_t null_mark[] = {0xFF, 0xFF, 0xFF, 0xFF}, value_mark[] = {'.'};
    uint64_t sum = 0;
    for (int64_t at = 0; at < count; at++) {
        uint32_t crc = seeds[rows->topic == NULL ? 0 : rows->topic[at]];
        size_t size;
        const uint8_t *key = entry(&rows->keys, at, &size);
        const uint8_t mark[] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16), (uint8_t)(size >> 24)};
        crc = crc32(table, crc, key == NULL ? null_mark : mark, 4);
        if (key != NULL) crc = crc32(table, crc, key, size);
        const uint8_t *value = entry(&rows->values, at, &size);
        crc = value == NULL ? crc32(table, crc, null_mark, 4) : crc32(table, crc, value_mark, 1);
        if (value != NULL) crc = crc32(table, crc, value, size);
        sum += crc * (2 * (uint64_t)crc + 1);
    }
    return sum;
}
