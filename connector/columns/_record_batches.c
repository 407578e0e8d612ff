/* Decodes Kafka's record batches into the records that `_native.c` copies into Arrow columns.
 *
 * The source of messages is the part of a Fetch response for one partition, already decompressed.  Records point into
 * the response.  Nothing is allocated or copied for a record.
 *
 *   kb_scan   checks the batches of a response: how many are whole, which are compressed, and their checksums
 *   kb_load   sets the batches of a partition to read next
 *
 * The layout is that of message format 2 (KIP-98), the only one since Kafka 4.0.
 */

#include "_crc32c.h"
#include "_native.h"

enum { OFFSET_AT = 0, LENGTH_AT = 8, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_DELTA_AT = 23 };
enum { FIRST_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_AT = 43, COUNT_AT = 57, RECORDS_AT = 61 };
enum { BEFORE_LENGTH = 12, CODEC = 0x07, APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };
enum { BAD_MESSAGE = -199, NO_ENTITY = -156, CREATE_TIME_TYPE = 1, APPEND_TIME_TYPE = 2 }; /* librdkafka's numbers */

typedef struct {
    message_t message; /* first: a message is a record */
    int64_t timestamp;
    int type;
    int32_t header_count;
    const uint8_t *headers;
    const uint8_t *next_header; /* headers are read in order */
    const uint8_t *end;
} record_t;

/* An aborted transaction: skip the data of this producer from this offset on, until its abort marker.  These structures
 * belong to Python and outlive the loaded batches, because a response may be loaded piece by piece.
 *
 * Their array begins with the open ones, one for each producer.  Then come those that are over, and then those ahead, by
 * offset.  So a batch is compared with few of them: a response may have tens of thousands. */
typedef struct {
    int64_t producer;
    int64_t first_offset;
    int64_t state;
} aborted_t;

enum { AHEAD, OPEN, OVER };

typedef struct {
    const char *topic;
    int32_t partition;
    int64_t from; /* offsets before it are skipped: a batch may begin earlier */
    const uint8_t *batch; /* the next one */
    const uint8_t *end;
    const uint8_t *at; /* within the current batch */
    const uint8_t *batch_end;
    int64_t base_offset;
    int64_t last_delta; /* of its offsets */
    int64_t previous_delta; /* of the previous record, -1 at first */
    int64_t base_timestamp;
    int64_t append_timestamp;
    int32_t left; /* records in the current batch */
    int type;
    aborted_t *aborted;
    int64_t aborted_count;
    int64_t open; /* aborted transactions, the first ones */
    int64_t ahead; /* the first one that is ahead */
    int64_t capacity;
    record_t records[];
} batches_t;

/* The result of kb_scan; mirrored in Python. */
typedef struct {
    int64_t begin; /* of the first batch that does not end before the position */
    int64_t bytes; /* up to the end of the whole batches */
    int64_t next_offset; /* after the last of them, beyond the position */
    int64_t batches;
    int64_t compressed;
    int64_t bad_offset; /* of the batch with the problem */
    int32_t problem;
} scan_t;

TELL_SHARED(kb_shared, sizeof(source_t), sizeof(scan_t), sizeof(aborted_t))

enum { FINE, OLD_FORMAT, CORRUPT, DISORDERED, BEHIND, BEYOND_LOG };

static uint64_t big(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

static int16_t int16_at(const uint8_t *at) { return (int16_t)big(at, 2); }
static int32_t int32_at(const uint8_t *at) { return (int32_t)big(at, 4); }
static int64_t int64_at(const uint8_t *at) { return (int64_t)big(at, 8); }

/* ---------------------------------------------------------------------------------------------------- a response */

/* Return the size of the batch at `batch`; 0 if it is cut off, as the last one of a response may be; -1 if invalid. */
static int64_t whole_batch(const uint8_t *batch, const uint8_t *end) {
    if (end - batch < RECORDS_AT) return 0;
    int64_t size = (int64_t)int32_at(batch + LENGTH_AT) + BEFORE_LENGTH;
    if (size < RECORDS_AT) return -1;
    return size > end - batch ? 0 : size;
}

/* Return the problem of a whole batch that should begin at `least` or later.  The checksum covers neither its offset
 * nor its size. */
static int problem_of(const uint8_t *batch, int64_t length, int32_t check_crcs, int64_t least) {
    int64_t offset = int64_at(batch + OFFSET_AT), last_delta = int32_at(batch + LAST_DELTA_AT);
    if (check_crcs) {
        uint32_t crc = kc_crc(0, batch + ATTRIBUTES_AT, length - ATTRIBUTES_AT, 0);
        if (crc != (uint32_t)big(batch + CRC_AT, 4)) return CORRUPT;
    }
    if (last_delta < 0 || offset < 0 || offset > INT64_MAX - 1 - last_delta) return CORRUPT;
    return offset < least ? DISORDERED : FINE;
}

/* Check the whole batches of a response, up to a bad one.
 *
 * Their offsets must ascend and end beyond the requested position.  Otherwise a reader that continues at `next_offset`
 * would go back, or never move.
 *
 * No gap may lead beyond `log_end`, the end of the log when the broker answered (-1 if unknown).  Otherwise missing
 * records would look like compacted ones.  Without a gap, batches may lie beyond it: records are still written. */
void kb_scan(
    const uint8_t *data, int64_t size, int64_t position, int64_t log_end, int32_t check_crcs, scan_t *scan
) {
    const uint8_t *end = data + size, *batch = data;
    int64_t follows = 0;
    memset(scan, 0, sizeof *scan);
    while (batch < end) {
        /* An older format has a shorter header: check the magic byte before the size. */
        if (end - batch > MAGIC_AT && batch[MAGIC_AT] != 2) scan->problem = OLD_FORMAT;
        int64_t length = scan->problem ? -1 : whole_batch(batch, end);
        if (length == 0) break;
        if (!scan->problem) scan->problem = length < 0 ? CORRUPT : problem_of(batch, length, check_crcs, follows);
        int64_t due = follows > position ? follows : position;
        if (!scan->problem && log_end >= 0 && int64_at(batch + OFFSET_AT) > (due > log_end ? due : log_end))
            scan->problem = BEYOND_LOG;
        if (scan->problem) {
            scan->bad_offset = end - batch < 8 ? -1 : int64_at(batch + OFFSET_AT);
            break;
        }
        follows = int64_at(batch + OFFSET_AT) + int32_at(batch + LAST_DELTA_AT) + 1;
        batch += length;
        if (follows > position) {
            scan->compressed += (int16_at(batch - length + ATTRIBUTES_AT) & CODEC) != 0;
            scan->batches++;
        } else {
            scan->begin = batch - data;
        }
    }
    scan->bytes = batch - data;
    scan->next_offset = follows;
    if (!scan->problem && scan->batches == 0 && scan->bytes > 0) {
        scan->problem = BEHIND;
        scan->bad_offset = follows;
    }
}

/* ----------------------------------------------------------------------------------------------------- records */

batches_t *kb_new(int64_t capacity) {
    if (capacity < 1) return NULL;
    batches_t *batches = calloc(1, sizeof *batches + (size_t)capacity * sizeof(record_t));
    if (batches != NULL) batches->capacity = capacity;
    return batches;
}

/* Forget the loaded batches. */
void kb_unload(batches_t *batches) {
    batches->batch = batches->end = NULL;
    batches->at = batches->batch_end = NULL;
    batches->left = 0;
    batches->aborted = NULL;
    batches->aborted_count = batches->open = batches->ahead = 0;
}

void kb_free(batches_t *batches) { free(batches); }

/* Read these whole, uncompressed batches next, from this offset on.  `topic`, `data` and `aborted` must live until they
 * are read.  Reading notes in `aborted` which transactions have ended. */
void kb_load(
    batches_t *batches, const char *topic, int32_t partition, int64_t from, const uint8_t *data, int64_t size,
    aborted_t *aborted, int64_t aborted_count
) {
    kb_unload(batches);
    batches->aborted = aborted;
    batches->aborted_count = aborted_count;
    while (batches->open < aborted_count && aborted[batches->open].state == OPEN) batches->open++;
    batches->ahead = batches->open;
    while (batches->ahead < aborted_count && aborted[batches->ahead].state == OVER) batches->ahead++;
    batches->topic = topic;
    batches->partition = partition;
    batches->from = from;
    batches->batch = data;
    batches->end = data + size;
}

/* Read a zigzag variable-length integer; return false if it does not end within 10 bytes, or before `end`. */
static int varint(const uint8_t **at, const uint8_t *end, int64_t *value) {
    const uint8_t *byte = *at;
    if (byte < end && *byte < 0x80) { /* nearly always */
        *value = (int64_t)(*byte >> 1) ^ -(int64_t)(*byte & 1);
        *at = byte + 1;
        return 1;
    }
    uint64_t bits = 0;
    for (int shift = 0; byte < end && shift < 64; shift += 7) {
        bits |= (uint64_t)(*byte & 0x7f) << shift;
        if (*byte++ < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            *at = byte;
            return 1;
        }
    }
    return 0;
}

/* Read a length and as many bytes; a length of -1 means null. */
static int sized(const uint8_t **at, const uint8_t *end, const uint8_t **data, size_t *size) {
    int64_t length;
    if (!varint(at, end, &length) || length < -1 || length > end - *at) return 0;
    *data = length < 0 ? NULL : *at;
    *size = length < 0 ? 0 : (size_t)length;
    if (length > 0) *at += length;
    return 1;
}

/* Read one header; its key is never null. */
static int header(const uint8_t **at, const uint8_t *end, const uint8_t **key, size_t *key_size, const uint8_t **value,
                  size_t *size) {
    return sized(at, end, key, key_size) && *key != NULL && sized(at, end, value, size);
}

/* Decode the next record of the current batch; return false if it is malformed.  Its offset must be in the batch and
 * above the previous one.  Otherwise a reader would end its range there, or go back. */
static int decode(batches_t *batches, record_t *record) {
    const uint8_t *at = batches->at, *key, *value;
    int64_t length, timestamp_delta, offset_delta, headers;
    if (!varint(&at, batches->batch_end, &length) || length < 1 || length > batches->batch_end - at) return 0;
    const uint8_t *end = at + length;
    at++; /* attributes, unused */
    message_t *message = &record->message;
    if (!varint(&at, end, &timestamp_delta) || !varint(&at, end, &offset_delta)) return 0;
    if (offset_delta <= batches->previous_delta || offset_delta > batches->last_delta) return 0;
    if (!sized(&at, end, &key, &message->key_len) || !sized(&at, end, &value, &message->len)) return 0;
    if (!varint(&at, end, &headers) || headers < 0 || headers > end - at) return 0;
    message->err = 0;
    message->topic = (void *)batches->topic;
    message->partition = batches->partition;
    message->key = (void *)key;
    message->payload = (void *)value;
    message->offset = (int64_t)((uint64_t)batches->base_offset + (uint64_t)offset_delta);
    record->type = batches->type;
    record->timestamp = batches->type == APPEND_TIME_TYPE
                            ? batches->append_timestamp
                            : (int64_t)((uint64_t)batches->base_timestamp + (uint64_t)timestamp_delta);
    record->header_count = (int32_t)headers;
    record->headers = record->next_header = at; /* checked below, so that nothing fails later */
    record->end = end;
    batches->at = end;
    batches->previous_delta = offset_delta;
    const uint8_t *data;
    size_t size, value_size;
    for (int64_t i = 0; i < headers; i++)
        if (!header(&at, end, &data, &size, &value, &value_size)) return 0;
    return 1;
}

/* Return the open aborted transaction of a producer, or NULL. */
static aborted_t *open_of(batches_t *batches, int64_t producer) {
    for (int64_t i = 0; i < batches->open; i++)
        if (batches->aborted[i].producer == producer) return &batches->aborted[i];
    return NULL;
}

/* Return whether the data of this batch belongs to an aborted transaction. */
static int is_aborted(batches_t *batches, int16_t attributes) {
    if (batches->aborted_count == 0 || !(attributes & TRANSACTIONAL)) return 0;
    int64_t last_offset = batches->base_offset + batches->last_delta;
    while (batches->ahead < batches->aborted_count && batches->aborted[batches->ahead].first_offset <= last_offset) {
        aborted_t *next = &batches->aborted[batches->ahead++];
        next->state = OVER;
        if (open_of(batches, next->producer) != NULL) continue; /* one marker ends both */
        aborted_t *opened = &batches->aborted[batches->open++];
        *opened = *next; /* one that is over makes room, or it is the same */
        opened->state = OPEN;
    }
    return open_of(batches, int64_at(batches->batch + PRODUCER_AT)) != NULL;
}

/* Handle the end of a transaction.  The key of its marker contains a version and a type; type 0 is an abort. */
static void end_transaction(batches_t *batches) {
    record_t marker;
    if (!decode(batches, &marker) || marker.message.key == NULL || marker.message.key_len < 4) return;
    if (int16_at((const uint8_t *)marker.message.key + 2) != 0) return;
    aborted_t *ended = open_of(batches, int64_at(batches->batch + PRODUCER_AT));
    if (ended == NULL) return;
    aborted_t *last = &batches->aborted[--batches->open];
    *ended = *last;
    last->state = OVER;
}

/* Skip the rest of this batch. */
static void pass_over(batches_t *batches) {
    batches->left = 0;
    batches->at = batches->batch_end;
}

/* Go to the next batch; return false if there is none, or if it is invalid. */
static int next_batch(batches_t *batches) {
    const uint8_t *batch = batches->batch;
    int64_t length = whole_batch(batch, batches->end);
    if (length <= 0 || problem_of(batch, length, 0, 0) != FINE) return 0;
    int16_t attributes = int16_at(batch + ATTRIBUTES_AT);
    batches->at = batch + RECORDS_AT;
    batches->batch_end = batch + length;
    batches->base_offset = int64_at(batch + OFFSET_AT);
    batches->last_delta = int32_at(batch + LAST_DELTA_AT);
    batches->previous_delta = -1;
    batches->base_timestamp = int64_at(batch + FIRST_TIMESTAMP_AT);
    batches->append_timestamp = int64_at(batch + MAX_TIMESTAMP_AT);
    batches->type = attributes & APPEND_TIME ? APPEND_TIME_TYPE : CREATE_TIME_TYPE;
    batches->left = int32_at(batch + COUNT_AT);
    int aborted = is_aborted(batches, attributes);
    if (attributes & CONTROL || aborted) {
        if (attributes & CONTROL && aborted) end_transaction(batches);
        pass_over(batches);
    } else if (batches->left < 0 || attributes & CODEC) {
        return 0; /* a batch that could not be decompressed */
    }
    batches->batch = batches->batch_end;
    return 1;
}

/* The functions that `_native.c` calls, in place of librdkafka's. */

static ssize_t next_records(void *of, int timeout_ms, message_t **messages, size_t size) {
    batches_t *batches = of;
    (void)timeout_ms;
    size_t count = 0;
    if (size > (size_t)batches->capacity) size = (size_t)batches->capacity;
    while (count < size) {
        record_t *record = &batches->records[count];
        int fine = 1;
        if (batches->left == 0) {
            fine = batches->at == batches->batch_end; /* otherwise it has more records than its count */
            if (fine && batches->batch == batches->end) break;
            fine = fine && next_batch(batches);
            if (fine) continue;
        } else {
            fine = decode(batches, record);
            batches->left--;
            if (fine && record->message.offset < batches->from) continue;
        }
        messages[count++] = &record->message;
        if (!fine) {
            int64_t offset = batches->base_offset;
            memset(record, 0, sizeof *record);
            record->message.err = BAD_MESSAGE;
            record->message.topic = (void *)batches->topic;
            record->message.partition = batches->partition;
            record->message.offset = offset;
            batches->batch = batches->end; /* the rest cannot be read */
            pass_over(batches);
            break;
        }
    }
    return (ssize_t)count;
}

static void let_go(message_t *message) { (void)message; }

static int64_t timestamp_of(const message_t *message, int *type) {
    const record_t *record = (const record_t *)message;
    *type = record->type;
    return record->timestamp;
}

static int headers_of_record(const message_t *message, void **headers) {
    *headers = (void *)message;
    return ((const record_t *)message)->header_count > 0 ? 0 : NO_ENTITY;
}

static size_t header_count_of(const void *headers) { return (size_t)((const record_t *)headers)->header_count; }

static int header_of(const void *headers, size_t index, const char **key, size_t *key_size, const void **value,
                     size_t *size) {
    record_t *record = (record_t *)headers;
    if (index == 0) record->next_header = record->headers;
    const uint8_t *key_data, *value_data;
    if (!header(&record->next_header, record->end, &key_data, key_size, &value_data, size)) return NO_ENTITY;
    *key = (const char *)key_data;
    *value = value_data;
    return 0;
}

static const char *topic_of(const void *topic) { return topic; }

static const char *text_of(const message_t *message) {
    (void)message;
    return "a record batch is malformed";
}

/* Return these functions in `source`. */
void kb_functions(source_t *source) {
    *source = (source_t){
        .consume_batch = next_records,
        .destroy = let_go,
        .timestamp = timestamp_of,
        .headers = headers_of_record,
        .header_count = header_count_of,
        .topic_name = topic_of,
        .error_text = text_of,
        .sized_header_at = header_of,
    };
}
