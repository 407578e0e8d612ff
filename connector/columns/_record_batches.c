/* Decodes Kafka's record batches into the records that `_native.c` copies into Arrow columns.
 *
 * The batches are the part of a Fetch response for one partition, already decompressed.  Records point into the
 * response.  Nothing is allocated or copied for a record.
 *
 *   kb_scan   checks the batches of a response: how many are whole, which are compressed, and their checksums
 *   kb_load   sets the batches of a partition to read next
 *
 * The layout is that of message format 2 (KIP-98), the only one since Kafka 4.0.
 */

#include "_crc32c.h"
#include "_record_batches.h"

enum { OFFSET_AT = 0, LENGTH_AT = 8, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_DELTA_AT = 23 };
enum { FIRST_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_AT = 43, COUNT_AT = 57, RECORDS_AT = 61 };
enum { BEFORE_LENGTH = 12, CODEC = 0x07, APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };
enum { CREATE_TIME_TYPE = 0, APPEND_TIME_TYPE = 1 }; /* Kafka's numbers */

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

TELL_SHARED(kb_shared, sizeof(scan_t), sizeof(aborted_t))

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

/* Forget the loaded batches and their records. */
void kb_unload(batches_t *batches) {
    batches->next = batches->count = 0;
    batches->batch = batches->end = NULL;
    batches->at = batches->batch_end = NULL;
    batches->left = 0;
    batches->aborted = NULL;
    batches->aborted_count = batches->open = batches->ahead = 0;
}

void kb_free(batches_t *batches) { free(batches); }

/* Read these whole, uncompressed batches next, from this offset on.  `data` and `aborted` must live until they are
 * read.  Reading notes in `aborted` which transactions have ended. */
void kb_load(
    batches_t *batches, int64_t from, const uint8_t *data, int64_t size, aborted_t *aborted, int64_t aborted_count
) {
    kb_unload(batches);
    batches->aborted = aborted;
    batches->aborted_count = aborted_count;
    while (batches->open < aborted_count && aborted[batches->open].state == OPEN) batches->open++;
    batches->ahead = batches->open;
    while (batches->ahead < aborted_count && aborted[batches->ahead].state == OVER) batches->ahead++;
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

/* Read a length and as many bytes; a negative length means null, as in Java's client. */
static int sized(const uint8_t **at, const uint8_t *end, const uint8_t **data, size_t *size) {
    int64_t length;
    if (!varint(at, end, &length) || length > end - *at) return 0;
    *data = length < 0 ? NULL : *at;
    *size = length < 0 ? 0 : (size_t)length;
    if (length > 0) *at += length;
    return 1;
}

int kb_header(const uint8_t **at, const uint8_t *end, header_t *header) {
    return sized(at, end, &header->key, &header->key_size) && header->key != NULL &&
           sized(at, end, &header->value, &header->value_size);
}

/* Decode the next record of the current batch; return false if it is malformed.  Its offset must be in the batch and
 * above the previous one.  Otherwise a reader would end its range there, or go back. */
static int decode(batches_t *batches, record_t *record) {
    const uint8_t *at = batches->at;
    int64_t length, timestamp_delta, offset_delta, headers;
    if (!varint(&at, batches->batch_end, &length) || length < 1 || length > batches->batch_end - at) return 0;
    const uint8_t *end = at + length;
    at++; /* attributes, unused */
    if (!varint(&at, end, &timestamp_delta) || !varint(&at, end, &offset_delta)) return 0;
    if (offset_delta <= batches->previous_delta || offset_delta > batches->last_delta) return 0;
    if (!sized(&at, end, &record->key, &record->key_size) || !sized(&at, end, &record->value, &record->value_size))
        return 0;
    if (!varint(&at, end, &headers) || headers < 0 || headers > end - at) return 0;
    record->malformed = 0;
    record->offset = (int64_t)((uint64_t)batches->base_offset + (uint64_t)offset_delta);
    record->timestamp_type = batches->timestamp_type;
    record->timestamp = batches->timestamp_type == APPEND_TIME_TYPE
                            ? batches->append_timestamp
                            : (int64_t)((uint64_t)batches->base_timestamp + (uint64_t)timestamp_delta);
    record->header_count = (int32_t)headers;
    record->headers = at; /* checked below, so that nothing fails later */
    record->headers_end = end;
    batches->at = end;
    batches->previous_delta = offset_delta;
    for (header_t header; headers > 0; headers--)
        if (!kb_header(&at, end, &header)) return 0;
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
    if (!decode(batches, &marker) || marker.key == NULL || marker.key_size < 4) return;
    if (int16_at(marker.key + 2) != 0) return;
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
    batches->timestamp_type = attributes & APPEND_TIME ? APPEND_TIME_TYPE : CREATE_TIME_TYPE;
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

void kb_decode(batches_t *batches) {
    batches->next = batches->count = 0;
    while (batches->count < batches->capacity) {
        record_t *record = &batches->records[batches->count];
        int fine = 1;
        if (batches->left == 0) {
            fine = batches->at == batches->batch_end; /* otherwise it has more records than its count */
            if (fine && batches->batch == batches->end) break;
            fine = fine && next_batch(batches);
            if (fine) continue;
        } else {
            fine = decode(batches, record);
            batches->left--;
            if (fine && record->offset < batches->from) continue;
        }
        batches->count++;
        if (!fine) {
            memset(record, 0, sizeof *record);
            record->malformed = 1;
            record->offset = batches->base_offset;
            batches->batch = batches->end; /* the rest cannot be read */
            pass_over(batches);
            break;
        }
    }
}
