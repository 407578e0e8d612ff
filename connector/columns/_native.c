/* Copies records into the buffers of Arrow columns, without a Python object per record.
 *
 * A plain C library without headers of Python or librdkafka, so one build works with every Python.  Records come from
 * fetched record batches (_record_batches.c).  Python owns all memory that outlives a call:
 *
 *   kg_collect   decodes and measures the next records of the range
 *   kg_fill      copies the measured records into buffers of exactly that size
 *
 * Nothing is written beyond a measured size: kg_fill measures again while it copies, and fails instead.
 */

#include "_record_batches.h"

/* A request.  Python mirrors this and the structures below. */
typedef struct {
    int64_t start; /* offsets in [start, until) are wanted */
    int64_t until;
    int64_t max_bytes; /* of keys, values and headers; a single larger record comes alone */
    int32_t want_key;
    int32_t want_value;
    int32_t want_headers;
} request_t;

/* The item after the records, which ended the chunk. */
enum { NOTHING, MALFORMED, BEYOND, DISORDER };

/* The size of a header besides its key and its value: an offset of each. */
enum { HEADER_BYTES = 8 };

/* The answer: the sizes of all buffers, and the item after the records. */
typedef struct {
    int64_t records;
    int64_t last_offset;
    int64_t key_bytes;
    int64_t key_nulls;
    int64_t value_bytes;
    int64_t value_nulls;
    int64_t header_lists; /* records with headers */
    int64_t headers;
    int64_t header_key_bytes;
    int64_t header_value_bytes;
    int64_t header_value_nulls;
    int64_t bad_timestamps; /* do not fit into 64 bits of microseconds */
    int64_t first_bad_timestamp; /* its offset */
    int64_t other_offset; /* of the item after the records */
    int32_t timestamp_type; /* of the first record */
    int32_t timestamp_types_differ;
    int32_t follows;
} chunk_t;

/* A variable-length column: `records + 1` offsets, the data, and one bit per record.  No bits: no nulls. */
typedef struct {
    int32_t *offsets;
    uint8_t *data;
    uint8_t *valid;
} binary_t;

typedef struct {
    binary_t keys;
    binary_t values;
    int64_t *offsets;
    int64_t *timestamps; /* microseconds */
    uint8_t *timestamps_valid;
    int32_t *timestamp_types;
    int32_t *header_offsets;
    uint8_t *header_valid;
    binary_t header_keys;
    binary_t header_values;
} buffers_t;

TELL_SHARED(kg_shared, sizeof(request_t), sizeof(chunk_t), sizeof(binary_t), sizeof(buffers_t))

static const int64_t MAX_TIMESTAMP_MS = INT64_MAX / 1000;

/* Measure one more record; return false if it belongs to the next chunk. */
static int measure(const request_t *request, const record_t *record, chunk_t *chunk) {
    int64_t key_bytes = request->want_key && record->key != NULL ? (int64_t)record->key_size : 0;
    int64_t value_bytes = request->want_value && record->value != NULL ? (int64_t)record->value_size : 0;
    int64_t header_key_bytes = 0, header_value_bytes = 0, header_value_nulls = 0;
    int32_t header_count = request->want_headers ? record->header_count : 0;
    const uint8_t *at = record->headers;
    for (int32_t i = 0; i < header_count; i++) {
        header_t header;
        if (!kb_header(&at, record->headers_end, &header)) {
            header_count = i; /* never: checked when the record was decoded.  kg_fill fails then */
            break;
        }
        header_key_bytes += (int64_t)header.key_size;
        if (header.value == NULL) header_value_nulls++;
        else header_value_bytes += (int64_t)header.value_size;
    }
    int64_t before = chunk->key_bytes + chunk->value_bytes + chunk->header_key_bytes + chunk->header_value_bytes;
    int64_t headers = chunk->headers + header_count;
    int64_t after = before + key_bytes + value_bytes + header_key_bytes + header_value_bytes + headers * HEADER_BYTES;
    if (chunk->records > 0 && after > request->max_bytes) return 0;

    if (chunk->records == 0) {
        chunk->timestamp_type = record->timestamp_type;
    } else if (record->timestamp_type != chunk->timestamp_type) {
        chunk->timestamp_types_differ = 1;
    }
    if (record->timestamp > MAX_TIMESTAMP_MS || record->timestamp < -MAX_TIMESTAMP_MS) {
        if (chunk->bad_timestamps++ == 0) chunk->first_bad_timestamp = record->offset;
    }
    chunk->records++;
    chunk->last_offset = record->offset;
    chunk->key_bytes += key_bytes;
    chunk->key_nulls += record->key == NULL;
    chunk->value_bytes += value_bytes;
    chunk->value_nulls += record->value == NULL;
    chunk->header_lists += header_count > 0;
    chunk->headers += header_count;
    chunk->header_key_bytes += header_key_bytes;
    chunk->header_value_bytes += header_value_bytes;
    chunk->header_value_nulls += header_value_nulls;
    return 1;
}

/* Measure the next records of the range.  If the first one is malformed, report and remove it. */
void kg_collect(batches_t *batches, const request_t *request, chunk_t *chunk) {
    memset(chunk, 0, sizeof *chunk);
    if (batches->next == batches->count) kb_decode(batches);
    int64_t previous = request->start - 1;
    for (int64_t at = batches->next; at < batches->count; at++) {
        const record_t *record = &batches->records[at];
        chunk->other_offset = record->offset;
        if (record->offset >= request->until) { /* also if it is malformed: then its whole batch is beyond */
            chunk->follows = BEYOND;
            break;
        }
        if (record->malformed) {
            chunk->follows = MALFORMED;
            break;
        }
        if (record->offset <= previous) {
            chunk->follows = DISORDER;
            break;
        }
        if (!measure(request, record, chunk)) break;
        previous = record->offset;
    }
    if (chunk->records == 0 && chunk->follows == MALFORMED) batches->next++;
}

static void set_bit(uint8_t *bits, int64_t at) { bits[at >> 3] |= (uint8_t)(1u << (at & 7)); }

/* Append one value; return false if it does not fit into the measured size. */
static int append(const binary_t *column, int64_t at, int64_t *used, int64_t size, const void *value, size_t length) {
    if (value != NULL) {
        if (length > (size_t)(size - *used)) return 0;
        if (length > 0) memcpy(column->data + *used, value, length);
        *used += (int64_t)length;
        if (column->valid != NULL) set_bit(column->valid, at);
    } else if (column->valid == NULL) {
        return 0;
    }
    column->offsets[at + 1] = (int32_t)*used;
    return 1;
}

/* Copy the records that kg_collect has measured, and remove them.  The buffers of bits must be zeroed.
 * Return 0, or -1 if these are not the measured records. */
int kg_fill(batches_t *batches, const chunk_t *chunk, const buffers_t *to) {
    int64_t keys = 0, values = 0, headers = 0, header_keys = 0, header_values = 0;
    if (chunk->records > batches->count - batches->next) return -1;
    if (to->keys.offsets) to->keys.offsets[0] = 0;
    if (to->values.offsets) to->values.offsets[0] = 0;
    if (to->header_offsets) to->header_offsets[0] = to->header_keys.offsets[0] = to->header_values.offsets[0] = 0;
    for (int64_t at = 0; at < chunk->records; at++) {
        const record_t *record = &batches->records[batches->next + at];
        if (to->keys.offsets && !append(&to->keys, at, &keys, chunk->key_bytes, record->key, record->key_size))
            return -1;
        if (to->values.offsets &&
            !append(&to->values, at, &values, chunk->value_bytes, record->value, record->value_size))
            return -1;
        if (to->offsets) to->offsets[at] = record->offset;
        if (to->timestamps) {
            int possible = record->timestamp <= MAX_TIMESTAMP_MS && record->timestamp >= -MAX_TIMESTAMP_MS;
            to->timestamps[at] = possible ? record->timestamp * 1000 : 0;
            if (to->timestamps_valid && possible) set_bit(to->timestamps_valid, at);
        }
        if (to->timestamp_types) to->timestamp_types[at] = record->timestamp_type;
        if (to->header_offsets) {
            const uint8_t *next = record->headers;
            int64_t end = headers + record->header_count;
            if (end > chunk->headers) return -1;
            for (; headers < end; headers++) {
                header_t one;
                if (!kb_header(&next, record->headers_end, &one)) return -1;
                if (!append(&to->header_keys, headers, &header_keys, chunk->header_key_bytes, one.key, one.key_size) ||
                    !append(&to->header_values, headers, &header_values, chunk->header_value_bytes, one.value,
                            one.value_size))
                    return -1;
            }
            if (to->header_valid && record->header_count > 0) set_bit(to->header_valid, at);
            to->header_offsets[at + 1] = (int32_t)headers;
        }
    }
    batches->next += chunk->records;
    return 0;
}
