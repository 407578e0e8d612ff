/* Random messages and record batches through the C code of the accelerated readers, under the sanitizers (`make sanitize`).
 *
 * Every buffer is allocated with exactly the size that was measured, so one byte too many is an error of the address
 * sanitizer, as is a message that is used after it was let go, or never let go.  In some rounds messages change between
 * being measured and being copied, which kg_fill must notice.
 */

#include <assert.h>
#include <stdio.h>

#include "_rounds.h"
#include "../../connector/columns/_crc32c.c"
#include "../../connector/columns/_native.c"
#include "../../connector/columns/_record_batches.c"

typedef struct {
    message_t message;
    int64_t timestamp;
    int type;
    int headers;
    char *header_keys[4];
    char *header_values[4];
    size_t header_sizes[4];
} fake_t;

static uint64_t seed;
static int64_t alive, next_offset;
static const char *const TOPICS[] = {"orders", "orders", "orders", "orders", "orders", "orders", "other"};

static uint64_t chance(uint64_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

static char *bytes(size_t size) {
    if (chance(5) == 0) return NULL;
    char *data = malloc(size ? size : 1);
    for (size_t i = 0; i < size; i++) data[i] = (char)chance(256);
    return data;
}

static message_t *make(void) {
    fake_t *fake = calloc(1, sizeof *fake);
    message_t *message = &fake->message;
    message->err = chance(30) == 0 ? -191 : 0;
    message->topic = (void *)TOPICS[chance(200) ? 0 : 6];
    message->partition = chance(200) ? 7 : 8;
    message->len = chance(40);
    message->payload = bytes(message->len);
    if (message->err && chance(3) == 0) message->topic = NULL; /* an event of no partition */
    if (message->err) { /* an event's text ends in a zero */
        free(message->payload);
        message->len = chance(2000);
        char *text = malloc(message->len + 1);
        memset(text, 'x', message->len);
        text[message->len] = 0;
        message->payload = chance(4) ? text : (free(text), NULL);
    }
    message->key_len = chance(20);
    message->key = bytes(message->key_len);
    next_offset += (int64_t)chance(3) + (chance(100) ? 1 : -1);
    message->offset = next_offset;
    fake->timestamp = chance(10) ? (int64_t)chance(1u << 30) : (int64_t)(seed);
    fake->type = (int)chance(3);
    fake->headers = chance(2) ? (int)chance(5) : 0;
    for (int i = 0; i < fake->headers; i++) {
        size_t size = chance(6);
        fake->header_keys[i] = calloc(1, size + 1);
        memset(fake->header_keys[i], 'k', size);
        fake->header_sizes[i] = chance(9);
        fake->header_values[i] = bytes(fake->header_sizes[i]);
    }
    alive++;
    return message;
}

static ssize_t consume(void *queue, int timeout_ms, message_t **messages, size_t size) {
    (void)queue, (void)timeout_ms;
    if (chance(4) == 0) return chance(2) ? 0 : -1;
    size_t count = chance(size + 1);
    for (size_t i = 0; i < count; i++) messages[i] = make();
    return (ssize_t)count;
}

static void destroy(message_t *message) {
    fake_t *fake = (fake_t *)message;
    for (int i = 0; i < fake->headers; i++) free(fake->header_keys[i]), free(fake->header_values[i]);
    free(message->payload), free(message->key), free(fake);
    alive--;
}

static int64_t timestamp(const message_t *message, int *type) {
    *type = ((const fake_t *)message)->type;
    return ((const fake_t *)message)->timestamp;
}

static int headers(const message_t *message, void **found) {
    if (((const fake_t *)message)->headers == 0) return -156;
    *found = (void *)message;
    return 0;
}

static size_t header_count(const void *of) { return (size_t)((const fake_t *)of)->headers; }

static int header_at_fake(const void *of, size_t index, const char **key, const void **value, size_t *size) {
    const fake_t *fake = of;
    if (index >= (size_t)fake->headers) return -156;
    *key = fake->header_keys[index], *value = fake->header_values[index], *size = fake->header_sizes[index];
    return 0;
}

static const char *topic_name(const void *topic) { return topic; }
static const char *error_text(const message_t *message) { return message->payload; }

static void *exactly(int64_t size) { return calloc(1, size > 0 ? (size_t)size : 1); }

static binary_t binary(int64_t length, int64_t size, int64_t nulls) {
    binary_t column = {exactly(4 * (length + 1)), malloc((size_t)size), nulls ? exactly((length + 7) / 8) : NULL};
    return column;
}

static void release(binary_t column) { free(column.offsets), free(column.data), free(column.valid); }

/* Change one measured message: its value or a header is longer, shorter, or null, or there is one header less. */
static void tamper(reader_t *reader, const chunk_t *chunk) {
    message_t *message = reader->messages[reader->next + (int64_t)chance((uint64_t)chunk->records)];
    fake_t *fake = (fake_t *)message;
    if (fake->headers > 0 && chance(2)) {
        int at = (int)chance((uint64_t)fake->headers);
        size_t size = chance(12);
        switch (chance(3)) {
        case 0:
            free(fake->header_keys[at]);
            fake->header_keys[at] = calloc(1, size + 1);
            memset(fake->header_keys[at], 'K', size);
            return;
        case 1:
            free(fake->header_values[at]);
            fake->header_sizes[at] = size;
            fake->header_values[at] = bytes(size);
            return;
        default:
            at = --fake->headers;
            free(fake->header_keys[at]), free(fake->header_values[at]);
            return;
        }
    }
    free(message->payload);
    message->len = chance(80);
    message->payload = bytes(message->len);
}

/* Copy what was measured into buffers of exactly that size; what kg_fill returns. */
static int fill(reader_t *reader, const request_t *request, const chunk_t *chunk, int tampered) {
    int64_t n = chunk->records;
    buffers_t to = {0};
    if (request->want_key) to.keys = binary(n, chunk->key_bytes, chunk->key_nulls);
    if (request->want_value) to.values = binary(n, chunk->value_bytes, chunk->value_nulls);
    to.offsets = exactly(8 * n), to.timestamps = exactly(8 * n);
    if (chunk->bad_timestamps) to.timestamps_valid = exactly((n + 7) / 8);
    if (chunk->timestamp_types_differ) to.timestamp_types = exactly(4 * n);
    if (request->want_headers) {
        to.header_offsets = exactly(4 * (n + 1));
        if (chunk->header_lists < n) to.header_valid = exactly((n + 7) / 8);
        to.header_keys = binary(chunk->headers, chunk->header_key_bytes, 0);
        to.header_values = binary(chunk->headers, chunk->header_value_bytes, chunk->header_value_nulls);
    }
    int result = kg_fill(reader, chunk, &to);
    if (result == 0) {
        for (int64_t i = 1; i < n; i++) assert(to.offsets[i] > to.offsets[i - 1]);
        assert(tampered || !request->want_value || to.values.offsets[n] == chunk->value_bytes);
    }
    release(to.keys), release(to.values), release(to.header_keys), release(to.header_values);
    free(to.offsets), free(to.timestamps), free(to.timestamps_valid), free(to.timestamp_types);
    free(to.header_offsets), free(to.header_valid);
    return result;
}

static request_t any_request(int64_t start) {
    request_t request = {"orders",
                         start,
                         start + (int64_t)chance(40),
                         (int64_t)chance(30),
                         1 + (int64_t)chance(20),
                         (int64_t)chance(200),
                         7,
                         0,
                         (int32_t)chance(2),
                         (int32_t)chance(2),
                         (int32_t)chance(2)};
    return request;
}

/* Records from a queue like librdkafka's. */
static void read_messages(int64_t *records, int64_t *noticed) {
    source_t kafka = {consume, destroy, timestamp, headers, header_count, header_at_fake, topic_name, error_text, NULL};
    reader_t *reader = kg_new(&kafka, NULL, 1 + (int64_t)chance(20));
    int64_t start = 0;
    next_offset = 0;
    for (int turn = 0; turn < 6; turn++) {
        request_t request = any_request(start);
        chunk_t chunk;
        kg_collect(reader, &request, &chunk);
        assert(memchr(chunk.error_text, 0, ERROR_TEXT_BYTES) != NULL);
        assert(memchr(chunk.other_topic, 0, TOPIC_BYTES) != NULL);
        if (chunk.records == 0) {
            if (chance(3) == 0) kg_drop(reader);
            continue;
        }
        int tampered = chance(10) == 0;
        if (tampered) tamper(reader, &chunk);
        int result = fill(reader, &request, &chunk, tampered);
        assert(result == 0 || tampered);
        *noticed += result != 0;
        if (result != 0) break;
        *records += chunk.records, start = chunk.last_offset + 1;
    }
    kg_free(reader);
    assert(alive == 0);
}

static uint8_t *put(uint8_t *at, int64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--) *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static uint8_t *put_varint(uint8_t *at, int64_t value) {
    uint64_t bits = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    for (; bits > 0x7f; bits >>= 7) *at++ = (uint8_t)(bits | 0x80);
    *at++ = (uint8_t)bits;
    return at;
}

static uint8_t *put_sized(uint8_t *at) {
    int64_t size = (int64_t)chance(12) - 1;
    at = put_varint(at, size);
    for (; size > 0; size--) *at++ = (uint8_t)chance(256);
    return at;
}

/* The record that ends a transaction. */
static uint8_t *put_marker(uint8_t *at) {
    static const uint8_t commit[] = {0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 0, 0};
    *at++ = 2 * (uint8_t)sizeof commit;
    memcpy(at, commit, sizeof commit);
    at[7] = (uint8_t)chance(2); /* an abort is 0 */
    if (chance(10) == 0) at[3] = 4, at[6] = 8; /* a key that is too short */
    return at + sizeof commit;
}

/* A batch of a few records, most often whole and right. */
static uint8_t *put_batch(uint8_t *batch, int64_t *offset) {
    int ends = chance(6) == 0, count = ends ? 0 : (int)chance(6);
    int attributes = (chance(8) ? 0 : (int)chance(64)) | (chance(3) ? 0 : TRANSACTIONAL);
    if (ends) attributes = TRANSACTIONAL | CONTROL;
    uint8_t *at = batch + RECORDS_AT;
    for (int i = 0; i < count; i++) {
        uint8_t record[256], *end = record;
        *end++ = 0;
        end = put_varint(end, (int64_t)chance(1000));
        end = put_varint(end, i);
        end = put_sized(put_sized(end));
        int headers = chance(2) ? 0 : (int)chance(4);
        end = put_varint(end, headers);
        for (int h = 0; h < headers; h++) {
            int64_t key = (int64_t)chance(5);
            end = put_varint(end, key);
            for (; key > 0; key--) *end++ = 'k';
            end = put_sized(end);
        }
        at = put_varint(at, end - record);
        memcpy(at, record, (size_t)(end - record));
        at += end - record;
    }
    if (ends) at = put_marker(at), count = 1;
    put(batch, *offset, 8), put(batch + LENGTH_AT, at - batch - BEFORE_LENGTH, 4), put(batch + 12, 0, 4);
    put(batch + MAGIC_AT, 2, 1), put(batch + CRC_AT, 0, 4), put(batch + ATTRIBUTES_AT, attributes, 2);
    put(batch + LAST_DELTA_AT, count > 0 ? count - 1 : 0, 4), put(batch + FIRST_TIMESTAMP_AT, 1000, 8);
    put(batch + MAX_TIMESTAMP_AT, 2000, 8), put(batch + PRODUCER_AT, (int64_t)chance(3), 8);
    put(batch + 51, 0, 2), put(batch + 53, 0, 4), put(batch + COUNT_AT, count, 4);
    uint32_t crc = kc_crc(0, batch + ATTRIBUTES_AT, at - batch - ATTRIBUTES_AT, (int)chance(2));
    put(batch + CRC_AT, crc, 4);
    *offset += count + (int64_t)chance(3);
    return at;
}

/* Whether who reads what was found, and goes on at `next_offset`, moves, and forward. */
static void check_scan(const uint8_t *data, int64_t size, int64_t position, int64_t log_end, const scan_t *scan) {
    assert(0 <= scan->begin && scan->begin <= scan->bytes && scan->bytes <= size);
    assert(scan->compressed <= scan->batches);
    if (scan->problem != FINE) return;
    if (scan->batches == 0) {
        assert(scan->bytes == 0); /* nothing that is whole: else it is behind the position, which is a problem */
        return;
    }
    assert(scan->next_offset > position);
    int64_t follows = 0, count = 0;
    for (const uint8_t *batch = data; batch < data + scan->bytes; batch += whole_batch(batch, data + size), count++) {
        assert(int64_at(batch) >= follows);
        if (log_end >= 0 && int64_at(batch) > log_end) assert(int64_at(batch) <= follows || int64_at(batch) <= position);
        follows = int64_at(batch) + int32_at(batch + LAST_DELTA_AT) + 1;
        assert((follows > position) == (batch >= data + scan->begin));
    }
    assert(follows == scan->next_offset && count >= scan->batches);
}

/* Change a field of the header of some batch that decides where a reader goes on: its offset, size, last delta, count. */
static void lie(uint8_t *log, int64_t size) {
    static const int AT[] = {OFFSET_AT, OFFSET_AT, LENGTH_AT, LAST_DELTA_AT, COUNT_AT}, BYTES[] = {8, 8, 4, 4, 4};
    static const int64_t VALUES[] = {0, 1, -1, 5, -12, 49, 48, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    int64_t at = 0;
    for (int64_t length; chance(3) && (length = whole_batch(log + at, log + size)) > 0 && at + length < size;) at += length;
    if (size - at < RECORDS_AT) return;
    size_t which = chance(5);
    int64_t value = chance(3) ? VALUES[chance(11)] : (int64_t)big(log + at + AT[which], BYTES[which]) + (int64_t)chance(9) - 4;
    put(log + at + AT[which], value, BYTES[which]);
}

/* Records from batches, as they are, cut off, or with some bytes changed.  Buffers have exactly the size they say. */
static void read_batches(int64_t *records) {
    static uint8_t log[16384];
    int64_t offset = (int64_t)chance(20), first = offset;
    uint8_t *end = log;
    for (int batches = (int)chance(5); batches > 0; batches--) end = put_batch(end, &offset);
    int64_t size = end - log;
    int damaged = size > 0 && chance(3) != 0;
    for (int changes = damaged ? 1 + (int)chance(4) : 0; changes > 0; changes--) {
        /* Most often near the end, where what is too long leaves the buffer. */
        uint8_t *byte = &log[size - 1 - (int64_t)chance((uint64_t)(chance(3) && size > 40 ? 40 : size))];
        *byte = (uint8_t)(chance(2) ? chance(256) : *byte + 2 * chance(4)); /* a little more: lengths are doubled */
    }
    if (chance(3) == 0) lie(log, size);
    if (chance(4) == 0) size = (int64_t)chance((uint64_t)size + 1);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    memcpy(data, log, (size_t)size);
    int64_t from = first + (int64_t)chance(4);
    scan_t scan;
    int64_t log_end = chance(2) ? offset : chance(2) ? -1 : first;
    kb_scan(data, size, from, log_end, (int32_t)chance(2), &scan);
    check_scan(data, size, from, log_end, &scan);
    aborted_t aborted[] = {{0, first, AHEAD}, {1, first + 3, AHEAD}, {1, first + 6, AHEAD}};
    int64_t capacity = 1 + (int64_t)chance(20);
    batches_t *batches = kb_new(capacity);
    source_t source;
    kb_functions(&source);
    reader_t *reader = kg_new(&source, batches, capacity);
    /* Also what the scan has refused: the decoder must not rely on it. */
    int whole = chance(4) && scan.problem == FINE;
    if (whole) kb_load(batches, "orders", 7, from, data + scan.begin, scan.bytes - scan.begin, aborted, (int64_t)chance(4));
    else kb_load(batches, "orders", 7, from, data, size, aborted, (int64_t)chance(4));
    int64_t start = from;
    for (int turn = 0; turn < 30; turn++) {
        request_t request = any_request(start);
        request.until = start + 1 + (int64_t)chance(40);
        request.take = 1 + (int64_t)chance(30);
        chunk_t chunk;
        kg_collect(reader, &request, &chunk);
        if (chunk.records == 0) {
            if (chunk.follows == NOTHING || chunk.follows == DISORDER || chunk.follows == FOREIGN) break;
            if (chunk.follows == BEYOND) start = chunk.other_offset;
            continue;
        }
        assert(fill(reader, &request, &chunk, 0) == 0);
        assert(chunk.last_offset >= start); /* a reader never goes back */
        assert(!whole || chunk.last_offset < scan.next_offset); /* nor beyond where it goes on fetching */
        *records += chunk.records, start = chunk.last_offset + 1;
    }
    kg_free(reader);
    kb_free(batches);
    free(data);
}

int main(int count, char **arguments) {
    int64_t rounds = count > 1 ? atoll(arguments[1]) : 100000, first = count > 2 ? atoll(arguments[2]) : 0;
    int64_t records = 0, noticed = 0, from_batches = 0;
    kc_init();
    for (int64_t round = 0; round < rounds; round++) {
        seed = seed_of(first + round);
        read_messages(&records, &noticed);
        read_batches(&from_batches);
    }
    printf("%lld rounds, %lld records, %lld changes noticed, %lld records from batches\n", (long long)rounds,
           (long long)records, (long long)noticed, (long long)from_batches);
    return noticed > 0 && records > rounds && from_batches > rounds ? 0 : 1;
}
