/* Passes rows from the buffers of Arrow columns to a producer of librdkafka, without a Python object per row.
 *
 * Python passes the functions of librdkafka, see native_producer.py, and owns all memory.  librdkafka copies the data.
 */

#include "_rows.h"

#include "../columns/_native.h"

/* Functions of librdkafka. */
typedef struct {
    int (*produce)(void *topic, int32_t partition, int flags, const void *value, size_t value_size, const void *key,
                   size_t key_size, void *opaque);
    int (*producev)(void *producer, ...);
    void *(*headers_new)(size_t count);
    int (*header_add)(void *headers, const char *key, ssize_t key_size, const void *value, ssize_t value_size);
    void (*headers_destroy)(void *headers);
    int (*last_error)(void);
} producer_t;

TELL_SHARED(kg_produce_shared, sizeof(producer_t), sizeof(column_t), sizeof(rows_t))

enum { COPY = 0x2, NO_PARTITION = -1, OUT_OF_MEMORY = -1 };

/* Tags of rd_kafka_producev. */
enum { TAG_END, TAG_RKT = 2, TAG_PARTITION = 3, TAG_VALUE = 4, TAG_KEY = 5, TAG_FLAGS = 7, TAG_HEADERS = 10 };

static void *headers_of(const producer_t *kafka, const rows_t *rows, int64_t at) {
    const int32_t *ends = rows->headers.offsets + rows->headers.first + at;
    void *headers = kafka->headers_new((size_t)(ends[1] - ends[0]));
    for (int64_t i = ends[0]; headers != NULL && i < ends[1]; i++) {
        size_t key_size, size;
        const char *key = entry(&rows->header_keys, i, &key_size);
        const void *value = entry(&rows->header_values, i, &size);
        if (key == NULL || kafka->header_add(headers, key, (ssize_t)key_size, value, (ssize_t)size) != 0) {
            kafka->headers_destroy(headers);
            return NULL;
        }
    }
    return headers;
}

/* Produce rows [from, until).  Return the first row that was refused, and librdkafka's error in `error`. */
int64_t kg_produce(const producer_t *kafka, void *producer, const rows_t *rows, int64_t from, int64_t until,
                   int32_t *error) {
    *error = 0;
    for (int64_t at = from; at < until; at++) {
        void *topic = ((void *const *)rows->topics)[rows->topic == NULL ? 0 : rows->topic[at]];
        int32_t partition = rows->partition == NULL ? NO_PARTITION : rows->partition[at];
        size_t key_size, value_size;
        const void *key = entry(&rows->keys, at, &key_size);
        const void *value = entry(&rows->values, at, &value_size);
        if (is_null(&rows->headers, at)) {
            if (kafka->produce(topic, partition, COPY, value, value_size, key, key_size, NULL) != 0)
                *error = kafka->last_error();
        } else {
            void *headers = headers_of(kafka, rows, at);
            if (headers == NULL) {
                *error = OUT_OF_MEMORY;
            } else {
                *error = kafka->producev(producer, TAG_RKT, topic, TAG_PARTITION, partition, TAG_FLAGS, COPY, TAG_VALUE,
                                         value, value_size, TAG_KEY, key, key_size, TAG_HEADERS, headers, TAG_END);
                if (*error != 0) kafka->headers_destroy(headers);
            }
        }
        if (*error != 0) return at;
    }
    return until;
}

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

/* Return the sum over all rows of row_digest.py's number for topic, key and value; `seeds` are those of the topics. */
uint64_t kg_digest(const uint32_t *table, const uint32_t *seeds, const rows_t *rows, int64_t count) {
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
