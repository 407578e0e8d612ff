/* The records of loaded record batches: `_record_batches.c` decodes them, and `_native.c` copies them. */

#ifndef KAFKA_GROUP_RECORD_BATCHES_H
#define KAFKA_GROUP_RECORD_BATCHES_H

#include "_native.h"

/* A record.  Its pointers lead into the loaded batches. */
typedef struct {
    int64_t offset;
    int64_t timestamp; /* milliseconds */
    const uint8_t *key; /* NULL: null */
    const uint8_t *value; /* NULL: null */
    size_t key_size;
    size_t value_size;
    const uint8_t *headers;
    const uint8_t *headers_end;
    int32_t header_count;
    int32_t timestamp_type; /* Kafka's number: 0 is CreateTime, 1 is LogAppendTime */
    int32_t malformed; /* only `offset` is set, to that of its batch */
} record_t;

typedef struct {
    const uint8_t *key; /* never NULL */
    const uint8_t *value; /* NULL: null */
    size_t key_size;
    size_t value_size;
} header_t;

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

/* The loaded batches of one partition, and the records that were decoded last. */
typedef struct {
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
    int32_t timestamp_type;
    aborted_t *aborted;
    int64_t aborted_count;
    int64_t open; /* aborted transactions, the first ones */
    int64_t ahead; /* the first one that is ahead */
    int64_t capacity;
    int64_t next; /* records[next, count) are decoded, but not copied yet */
    int64_t count;
    record_t records[];
} batches_t;

/* Decode the next records, as many as there is room for, when all decoded ones are copied. */
void kb_decode(batches_t *batches);

/* Read one header at `*at`; return false if it is malformed. */
int kb_header(const uint8_t **at, const uint8_t *end, header_t *header);

#endif
