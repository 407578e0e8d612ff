/* Copies messages into the buffers of Arrow columns, without a Python object per message.
 *
 * A plain C library without headers of Python or librdkafka.  So one build works with every Python, and with every
 * librdkafka of confluent-kafka.  Messages come from fetched record batches (_record_batches.c, direct_client.py).
 * Python passes the functions that take and read them, and owns all memory that outlives a call:
 *
 *   kg_collect   takes messages from the queue and measures the leading records of the range
 *   kg_fill      copies the measured records into buffers of exactly that size, and releases the messages
 *
 * Nothing is written beyond a measured size: kg_fill measures again while it copies, and fails instead.
 * One thread at a time uses a reader.
 */

#include "_native.h"

typedef struct {
    source_t source;
    void *queue;
    int64_t capacity;
    int64_t next; /* messages[next, count) are taken from the queue, but not read yet */
    int64_t count;
    message_t *messages[];
} reader_t;

/* A request.  Python mirrors this and the structures below. */
typedef struct {
    const char *topic;
    int64_t start; /* offsets in [start, until) are wanted */
    int64_t until;
    int64_t take; /* most messages to take from the queue, for all partitions together */
    int64_t max_records;
    int64_t max_bytes; /* of keys, values and headers; a single larger record comes alone */
    int32_t partition;
    int32_t timeout_ms; /* how long to wait for a first message */
    int32_t want_key;
    int32_t want_value;
    int32_t want_headers;
} request_t;

/* The item after the records, which ended the chunk. */
enum { NOTHING, EVENT, BEYOND, FOREIGN, DISORDER };

enum { ERROR_TEXT_BYTES = 512, TOPIC_BYTES = 256 };

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
    int32_t other_partition;
    int32_t timestamp_type; /* of the first record */
    int32_t timestamp_types_differ;
    int32_t follows;
    int32_t error;
    char other_topic[TOPIC_BYTES]; /* empty: an event without a partition */
    char error_text[ERROR_TEXT_BYTES];
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

TELL_SHARED(kg_shared, sizeof(source_t), sizeof(request_t), sizeof(chunk_t), sizeof(binary_t), sizeof(buffers_t))

static const int64_t MAX_TIMESTAMP_MS = INT64_MAX / 1000;

reader_t *kg_new(const source_t *source, void *queue, int64_t capacity) {
    if (capacity < 1) return NULL;
    reader_t *reader = calloc(1, sizeof *reader + (size_t)capacity * sizeof(message_t *));
    if (reader == NULL) return NULL;
    reader->source = *source;
    reader->queue = queue;
    reader->capacity = capacity;
    return reader;
}

/* Drop all messages that were taken from the queue. */
void kg_drop(reader_t *reader) {
    while (reader->next < reader->count) reader->source.destroy(reader->messages[reader->next++]);
    reader->next = reader->count = 0;
}

void kg_free(reader_t *reader) {
    kg_drop(reader);
    free(reader);
}

static void take(reader_t *reader, const request_t *request) {
    source_t *source = &reader->source;
    /* Deliberate: never a batch with a timeout.  It waits for all messages or the full time, but a range may have gaps.
     * Take fetched messages at once; otherwise wait once for the first message. */
    size_t size = (size_t)reader->capacity;
    if (request->take < reader->capacity) size = request->take > 0 ? (size_t)request->take : 1;
    ssize_t taken = source->consume_batch(reader->queue, 0, reader->messages, size);
    if (taken <= 0) {
        taken = source->consume_batch(reader->queue, request->timeout_ms, reader->messages, 1);
        if (taken == 1 && size > 1) {
            ssize_t more = source->consume_batch(reader->queue, 0, reader->messages + 1, size - 1);
            if (more > 0) taken += more;
        }
    }
    reader->next = 0;
    reader->count = taken > 0 ? taken : 0;
}

static void *headers_of(const source_t *source, const message_t *message, size_t *count) {
    void *headers = NULL;
    *count = 0;
    if (source->headers(message, &headers) != 0 || headers == NULL) return NULL;
    *count = source->header_count(headers);
    return headers;
}

static int header_at(const source_t *source, const void *headers, size_t index, const char **key, size_t *key_size,
                     const void **value, size_t *size) {
    if (source->sized_header_at) return source->sized_header_at(headers, index, key, key_size, value, size);
    int error = source->header_at(headers, index, key, value, size);
    if (error == 0) *key_size = strlen(*key);
    return error;
}

/* Measure one more record; return false if it belongs to the next chunk. */
static int measure(const source_t *source, const request_t *request, const message_t *message, chunk_t *chunk) {
    int64_t key_bytes = request->want_key && message->key != NULL ? (int64_t)message->key_len : 0;
    int64_t value_bytes = request->want_value && message->payload != NULL ? (int64_t)message->len : 0;
    int64_t header_key_bytes = 0, header_value_bytes = 0, header_value_nulls = 0;
    size_t header_count = 0;
    if (request->want_headers) {
        void *headers = headers_of(source, message, &header_count);
        for (size_t i = 0; i < header_count; i++) {
            const char *key;
            const void *value;
            size_t key_size, size;
            if (header_at(source, headers, i, &key, &key_size, &value, &size) != 0) {
                header_count = i;
                break;
            }
            header_key_bytes += (int64_t)key_size;
            if (value == NULL) header_value_nulls++;
            else header_value_bytes += (int64_t)size;
        }
    }
    int64_t before = chunk->key_bytes + chunk->value_bytes + chunk->header_key_bytes + chunk->header_value_bytes;
    int64_t headers = chunk->headers + (int64_t)header_count;
    int64_t after = before + key_bytes + value_bytes + header_key_bytes + header_value_bytes + headers * HEADER_BYTES;
    if (chunk->records > 0 && after > request->max_bytes) return 0;

    int type = 0;
    int64_t timestamp = source->timestamp(message, &type);
    if (chunk->records == 0) {
        chunk->timestamp_type = type;
    } else if (type != chunk->timestamp_type) {
        chunk->timestamp_types_differ = 1;
    }
    if (timestamp > MAX_TIMESTAMP_MS || timestamp < -MAX_TIMESTAMP_MS) {
        if (chunk->bad_timestamps++ == 0) chunk->first_bad_timestamp = message->offset;
    }
    chunk->records++;
    chunk->last_offset = message->offset;
    chunk->key_bytes += key_bytes;
    chunk->key_nulls += message->key == NULL;
    chunk->value_bytes += value_bytes;
    chunk->value_nulls += message->payload == NULL;
    chunk->header_lists += header_count > 0;
    chunk->headers += (int64_t)header_count;
    chunk->header_key_bytes += header_key_bytes;
    chunk->header_value_bytes += header_value_bytes;
    chunk->header_value_nulls += header_value_nulls;
    return 1;
}

/* Measure the leading records of the range.  If the first message is an event, report and remove it. */
void kg_collect(reader_t *reader, const request_t *request, chunk_t *chunk) {
    source_t *source = &reader->source;
    const void *known_topic = NULL;
    memset(chunk, 0, sizeof *chunk);
    if (reader->next == reader->count) take(reader, request);
    int64_t previous = request->start - 1;
    for (int64_t at = reader->next; at < reader->count && chunk->records < request->max_records; at++) {
        message_t *message = reader->messages[at];
        chunk->other_offset = message->offset;
        chunk->other_partition = message->partition;
        if (message->err != 0) {
            chunk->follows = EVENT;
            break;
        }
        /* librdkafka drops messages of an earlier assignment; this checks it. */
        if (message->topic != known_topic && strcmp(source->topic_name(message->topic), request->topic) != 0) {
            chunk->follows = FOREIGN;
            break;
        }
        known_topic = message->topic;
        if (message->partition != request->partition) {
            chunk->follows = FOREIGN;
            break;
        }
        if (message->offset <= previous) {
            chunk->follows = DISORDER;
            break;
        }
        if (message->offset >= request->until) {
            chunk->follows = BEYOND;
            break;
        }
        if (!measure(source, request, message, chunk)) break;
        previous = message->offset;
    }
    if (chunk->records > 0 || chunk->follows == NOTHING) return;
    message_t *message = reader->messages[reader->next];
    if (message->topic != NULL) strncpy(chunk->other_topic, source->topic_name(message->topic), TOPIC_BYTES - 1);
    if (chunk->follows == EVENT) {
        const char *text = source->error_text(message);
        chunk->error = message->err;
        if (text != NULL) strncpy(chunk->error_text, text, ERROR_TEXT_BYTES - 1);
        reader->next++;
        source->destroy(message);
    }
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

/* Copy the records that kg_collect has measured, and release their messages.  The buffers of bits must be zeroed.
 * Return 0, or -1 if these are not the measured messages. */
int kg_fill(reader_t *reader, const chunk_t *chunk, const buffers_t *to) {
    source_t *source = &reader->source;
    int64_t keys = 0, values = 0, headers = 0, header_keys = 0, header_values = 0;
    if (chunk->records > reader->count - reader->next) return -1;
    if (to->keys.offsets) to->keys.offsets[0] = 0;
    if (to->values.offsets) to->values.offsets[0] = 0;
    if (to->header_offsets) to->header_offsets[0] = to->header_keys.offsets[0] = to->header_values.offsets[0] = 0;
    for (int64_t at = 0; at < chunk->records; at++) {
        message_t *message = reader->messages[reader->next + at];
        if (to->keys.offsets && !append(&to->keys, at, &keys, chunk->key_bytes, message->key, message->key_len))
            return -1;
        if (to->values.offsets && !append(&to->values, at, &values, chunk->value_bytes, message->payload, message->len))
            return -1;
        if (to->offsets) to->offsets[at] = message->offset;
        if (to->timestamps || to->timestamp_types) {
            int type = 0;
            int64_t timestamp = source->timestamp(message, &type);
            if (type == 0) timestamp = -1; /* librdkafka says 0, and Kafka's own client -1 */
            int possible = timestamp <= MAX_TIMESTAMP_MS && timestamp >= -MAX_TIMESTAMP_MS;
            if (to->timestamps) to->timestamps[at] = possible ? timestamp * 1000 : 0;
            if (to->timestamps_valid && possible) set_bit(to->timestamps_valid, at);
            /* librdkafka's types are Kafka's plus 1: without a timestamp, 0 here and -1 there */
            if (to->timestamp_types) to->timestamp_types[at] = type - 1;
        }
        if (to->header_offsets) {
            size_t count;
            void *list = headers_of(source, message, &count);
            int64_t end = headers + (int64_t)count;
            if (end > chunk->headers) return -1;
            for (size_t i = 0; headers < end; i++, headers++) {
                const char *key;
                const void *value;
                size_t key_size, size;
                if (header_at(source, list, i, &key, &key_size, &value, &size) != 0) return -1;
                if (!append(&to->header_keys, headers, &header_keys, chunk->header_key_bytes, key, key_size))
                    return -1;
                if (!append(&to->header_values, headers, &header_values, chunk->header_value_bytes, value, size))
                    return -1;
            }
            if (to->header_valid && count > 0) set_bit(to->header_valid, at);
            to->header_offsets[at + 1] = (int32_t)headers;
        }
    }
    for (int64_t at = 0; at < chunk->records; at++) source->destroy(reader->messages[reader->next++]);
    return 0;
}
