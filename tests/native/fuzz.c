/* Random record batches through the C code of the accelerated reader, under the sanitizers (`make sanitize`).
 *
 * Every buffer is allocated with exactly the size that was measured, so one byte too many is an error of the address
 * sanitizer.  In some rounds records change between being measured and being copied, which kg_fill must notice.
 */

#include <assert.h>
#include <stdio.h>

#include "_rounds.h"
#include "../../connector/columns/_crc32c.c"
#include "../../connector/columns/_native.c"
#include "../../connector/columns/_record_batches.c"

static uint64_t seed;

static uint64_t chance(uint64_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

static void *exactly(int64_t size) { return calloc(1, size > 0 ? (size_t)size : 1); }

static binary_t binary(int64_t length, int64_t size, int64_t nulls) {
    binary_t column = {exactly(4 * (length + 1)), malloc((size_t)size), nulls ? exactly((length + 7) / 8) : NULL};
    return column;
}

static void release(binary_t column) { free(column.offsets), free(column.data), free(column.valid); }

/* Change one measured record: its key or its value is longer, shorter, or null, or it has other headers. */
static void tamper(batches_t *batches, const chunk_t *chunk) {
    static const uint8_t bytes[80], headers[] = {2, 'K', 2, 'V', 10, 'K', 'E', 'Y', 'K', 'E', 10, 'V', 'A', 'L', 'U', 'E'};
    record_t *record = &batches->records[batches->next + (int64_t)chance((uint64_t)chunk->records)];
    switch (chance(3)) {
    case 0:
        record->key = chance(4) ? bytes : NULL;
        record->key_size = chance(sizeof bytes);
        return;
    case 1:
        record->value = chance(4) ? bytes : NULL;
        record->value_size = chance(sizeof bytes);
        return;
    default:
        record->headers = headers + 4 * chance(2);
        record->headers_end = headers + sizeof headers - chance(3);
        record->header_count = (int32_t)chance(3);
    }
}

/* Copy what was measured into buffers of exactly that size; what kg_fill returns. */
static int fill(batches_t *batches, const request_t *request, const chunk_t *chunk, int tampered) {
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
    int result = kg_fill(batches, chunk, &to);
    if (result == 0) {
        for (int64_t i = 1; i < n; i++) assert(to.offsets[i] > to.offsets[i - 1]);
        assert(tampered || !request->want_value || to.values.offsets[n] == chunk->value_bytes);
    }
    release(to.keys), release(to.values), release(to.header_keys), release(to.header_values);
    free(to.offsets), free(to.timestamps), free(to.timestamps_valid), free(to.timestamp_types);
    free(to.header_offsets), free(to.header_valid);
    return result;
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
static void read_batches(int64_t *records, int64_t *noticed) {
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
    batches_t *batches = kb_new(1 + (int64_t)chance(20));
    /* Also what the scan has refused: the decoder must not rely on it. */
    int whole = chance(4) && scan.problem == FINE;
    if (whole) kb_load(batches, from, data + scan.begin, scan.bytes - scan.begin, aborted, (int64_t)chance(4));
    else kb_load(batches, from, data, size, aborted, (int64_t)chance(4));
    int64_t start = from;
    for (int turn = 0; turn < 30; turn++) {
        request_t request = {start,
                             start + 1 + (int64_t)chance(40),
                             (int64_t)chance(200),
                             (int32_t)chance(2),
                             (int32_t)chance(2),
                             (int32_t)chance(2)};
        chunk_t chunk;
        kg_collect(batches, &request, &chunk);
        if (chunk.records == 0) {
            if (chunk.follows == NOTHING || chunk.follows == DISORDER) break;
            if (chunk.follows == BEYOND) start = chunk.other_offset;
            continue;
        }
        int tampered = chance(10) == 0;
        if (tampered) tamper(batches, &chunk);
        int result = fill(batches, &request, &chunk, tampered);
        assert(result == 0 || tampered);
        *noticed += result != 0;
        if (result != 0) break;
        assert(chunk.last_offset >= start); /* a reader never goes back */
        assert(!whole || chunk.last_offset < scan.next_offset); /* nor beyond where it goes on fetching */
        *records += chunk.records, start = chunk.last_offset + 1;
    }
    kb_free(batches);
    free(data);
}

int main(int count, char **arguments) {
    int64_t rounds = count > 1 ? atoll(arguments[1]) : 100000, first = count > 2 ? atoll(arguments[2]) : 0;
    int64_t records = 0, noticed = 0;
    kc_init();
    for (int64_t round = 0; round < rounds; round++) {
        seed = seed_of(first + round);
        read_batches(&records, &noticed);
    }
    printf("%lld rounds, %lld records, %lld changes noticed\n", (long long)rounds, (long long)records, (long long)noticed);
    return noticed > 0 && records > rounds ? 0 : 1;
}
