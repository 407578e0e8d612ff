/* Encodes rows from Arrow columns as records of Kafka's message format 2, without a Python object per row.
 *
 * A writer has at most one open batch for each partition.  Only the records are encoded here.  Python adds the header of
 * the batch (record_writer.py), sends it, and gives the memory back:
 *
 *   kw_topic       sets the partitions of a topic
 *   kw_write       appends rows to the batches of their partitions, up to a row that has no place
 *   kw_take        ends a batch; its memory now belongs to the caller
 *   kw_give_back   takes the memory of a batch for later ones
 *
 * One thread at a time uses a writer.
 */

#include "_rows.h"

#include "../columns/_native.h"

enum { DONE, FULL, NO_PARTITION, TOO_LARGE, NO_MEMORY };

enum { HEADER_BYTES = 61, LEAST_BYTES = 4096, MOST_SPARE_BYTES = 16 * 1024 * 1024 };

/* After so many bytes, rows without a key go to another partition: the default batch of Java's producer.  A larger number
 * makes fewer and larger batches, but a reader of the topic gets less even partitions. */
enum { STICKY_BYTES = 16 * 1024 };

/* Records of one partition.  Without records, there is no memory either. */
typedef struct {
    uint8_t *data;
    int64_t size;
    int64_t capacity;
    int64_t first_ms; /* timestamp of the first record */
    int64_t last_ms; /* the largest timestamp */
    int32_t count;
    int32_t open_at; /* its index in `open` of the writer */
} batch_t;

typedef struct {
    batch_t *batches; /* one for each partition */
    int32_t count;
    int32_t sticky; /* the partition of rows without a key; -1: not chosen yet */
    int32_t sticky_bytes; /* what it has got since it was chosen */
    int64_t batch_bytes; /* the largest size of several records, if the topic takes less than the writer */
    int32_t *led; /* the partitions that have a leader */
    int32_t led_count;
} topic_t;

typedef struct {
    int32_t topic;
    int32_t partition;
} place_t;

/* Memory for a later batch; this is written into the memory itself. */
typedef struct spare {
    struct spare *next;
    int64_t capacity;
} spare_t;

typedef struct {
    int64_t batch_bytes; /* the largest size of several records */
    int64_t record_bytes; /* the largest size of a record */
    uint64_t random; /* never 0 */
    topic_t *topics;
    int32_t topic_count;
    int32_t partition_count; /* of all topics: the capacity of `open` */
    place_t *open; /* the partitions with records */
    int32_t open_count;
    int64_t open_bytes; /* the size of all records */
    spare_t *spare;
    int64_t spare_bytes;
} writer_t;

/* The results; mirrored in Python. */
typedef struct {
    int64_t at; /* the first row that was not written */
    int32_t stop;
    int32_t topic; /* of this row, as a number of the writer */
    int32_t partition; /* -1: not chosen */
} written_t;

typedef struct {
    uint8_t *data;
    int64_t size;
    int64_t capacity;
    int64_t first_ms;
    int64_t last_ms;
    int32_t count;
} taken_t;

TELL_SHARED(
    kw_shared, sizeof(column_t), sizeof(rows_t), sizeof(written_t), sizeof(taken_t), sizeof(place_t), HEADER_BYTES
)

/* ------------------------------------------------------------------------------------------------------- memory */

/* The fuzzer replaces this, to run out of memory. */
#ifndef RESIZE
#define RESIZE realloc
#endif

writer_t *kw_new(int64_t batch_bytes, int64_t record_bytes, uint64_t seed) {
    writer_t *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    writer->batch_bytes = batch_bytes;
    writer->record_bytes = record_bytes;
    writer->random = seed ? seed : 1;
    return writer;
}

void kw_free(writer_t *writer) {
    while (writer->open_count > 0) {
        place_t place = writer->open[--writer->open_count];
        free(writer->topics[place.topic].batches[place.partition].data);
    }
    while (writer->spare != NULL) {
        spare_t *next = writer->spare->next;
        free(writer->spare);
        writer->spare = next;
    }
    for (int32_t i = 0; i < writer->topic_count; i++) {
        free(writer->topics[i].batches);
        free(writer->topics[i].led);
    }
    free(writer->topics);
    free(writer->open);
    free(writer);
}

/* Take the memory of a batch for later ones. */
void kw_give_back(writer_t *writer, uint8_t *data, int64_t capacity) {
    /* More is not kept: a partition with few records would hold the memory of a full batch. */
    if (writer->spare_bytes + capacity > MOST_SPARE_BYTES) {
        free(data);
        return;
    }
    spare_t *spare = (spare_t *)data;
    *spare = (spare_t){writer->spare, capacity};
    writer->spare = spare;
    writer->spare_bytes += capacity;
}

/* Make room for `size` more bytes; return false without memory. */
static int make_room(writer_t *writer, batch_t *batch, int64_t size) {
    int64_t needed = batch->size + size;
    if (batch->data == NULL && writer->spare != NULL) {
        batch->data = (uint8_t *)writer->spare;
        batch->capacity = writer->spare->capacity;
        writer->spare = writer->spare->next;
        writer->spare_bytes -= batch->capacity;
    }
    if (needed <= batch->capacity) return 1;
    int64_t capacity = 2 * batch->capacity;
    if (capacity > writer->batch_bytes) capacity = writer->batch_bytes;
    if (capacity < needed) capacity = needed;
    if (capacity < LEAST_BYTES) capacity = LEAST_BYTES;
    uint8_t *data = RESIZE(batch->data, (size_t)capacity);
    if (data == NULL) return 0;
    batch->data = data;
    batch->capacity = capacity;
    return 1;
}

/* Note which partitions have a leader.  Return false without memory. */
static int set_led(topic_t *topic, const int32_t *led, int32_t led_count) {
    int32_t *copy = led_count > 0 ? RESIZE(topic->led, (size_t)led_count * sizeof *copy) : topic->led;
    if (led_count > 0 && copy == NULL) {
        /* The old ones may be beyond the last partition by now. */
        topic->led_count = 0;
        topic->sticky = -1;
        return 0;
    }
    topic->led = copy;
    topic->led_count = 0;
    int kept = led_count == 0;
    for (int32_t i = 0; i < led_count; i++) {
        if (led[i] < 0 || led[i] >= topic->count) continue;
        copy[topic->led_count++] = led[i];
        kept |= led[i] == topic->sticky;
    }
    if (!kept) topic->sticky = -1;
    return 1;
}

/* Set the number of partitions of a topic, and those that have a leader.  The topic is a known one, or the next number.
 * Partitions with an open batch stay, and those before them.  Return how many there are now; -1 without memory. */
int32_t kw_topic(writer_t *writer, int32_t topic, int32_t count, const int32_t *led, int32_t led_count) {
    int32_t before = topic < writer->topic_count ? writer->topics[topic].count : 0;
    if (count < before) {
        for (int32_t i = count; i < before; i++)
            if (writer->topics[topic].batches[i].count > 0) count = i + 1;
        writer->topics[topic].count = count;
        writer->partition_count -= before - count;
        if (writer->topics[topic].sticky >= count) writer->topics[topic].sticky = -1;
    }
    if (count <= before) return set_led(&writer->topics[topic], led, led_count) ? count : -1;
    int64_t all = (int64_t)writer->partition_count + count - before;
    if (all > INT32_MAX) return -1;
    place_t *open = RESIZE(writer->open, (size_t)all * sizeof *open);
    if (open == NULL) return -1;
    writer->open = open;
    if (topic == writer->topic_count) {
        topic_t *topics = RESIZE(writer->topics, (size_t)(topic + 1) * sizeof *topics);
        if (topics == NULL) return -1;
        writer->topics = topics;
        topics[topic] = (topic_t){.sticky = -1, .batch_bytes = writer->batch_bytes};
    }
    topic_t *found = &writer->topics[topic];
    batch_t *batches = RESIZE(found->batches, (size_t)count * sizeof *batches);
    if (batches == NULL) return -1;
    memset(batches + before, 0, (size_t)(count - before) * sizeof *batches);
    found->batches = batches;
    found->count = count;
    writer->partition_count = (int32_t)all;
    if (topic == writer->topic_count) writer->topic_count++;
    return set_led(found, led, led_count) ? count : -1;
}

/* Set the largest size of several records of a topic.  The writer's own limit holds as well. */
void kw_limit(writer_t *writer, int32_t topic, int64_t batch_bytes) {
    writer->topics[topic].batch_bytes = batch_bytes < writer->batch_bytes ? batch_bytes : writer->batch_bytes;
}

/* --------------------------------------------------------------------------------------------------- partitions */

/* Compute murmur2 as Kafka's Java client does. */
static uint32_t murmur2(const uint8_t *data, size_t size) {
    const uint32_t factor = 0x5bd1e995;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4) {
        uint32_t four = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        four *= factor;
        four ^= four >> 24;
        hash = hash * factor ^ four * factor;
    }
    if (size > 2) hash ^= (uint32_t)data[2] << 16;
    if (size > 1) hash ^= (uint32_t)data[1] << 8;
    if (size > 0) hash = (hash ^ data[0]) * factor;
    hash = (hash ^ hash >> 13) * factor;
    return hash ^ hash >> 15;
}

static uint32_t random_number(writer_t *writer) {
    writer->random ^= writer->random << 13, writer->random ^= writer->random >> 7, writer->random ^= writer->random << 17;
    return (uint32_t)(writer->random >> 32);
}

/* Choose the partition of a row that has none. */
static int32_t choose(writer_t *writer, topic_t *topic, const uint8_t *key, size_t key_size) {
    if (key != NULL) return (int32_t)((murmur2(key, key_size) & 0x7fffffff) % (uint32_t)topic->count);
    /* Deliberate: the same one for some time, like Java's producer.  So batches are large. */
    if (topic->sticky < 0) {
        topic->sticky_bytes = 0;
        uint32_t number = random_number(writer);
        topic->sticky = topic->led_count > 0 ? topic->led[number % (uint32_t)topic->led_count]
                                             : (int32_t)(number % (uint32_t)topic->count);
    }
    return topic->sticky;
}

/* ------------------------------------------------------------------------------------------------------ records */

static uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (value < 0 ? ~(uint64_t)0 : 0); }

static int64_t varint_size(int64_t value) {
    int64_t size = 1;
    for (uint64_t bits = zigzag(value); bits >= 0x80; bits >>= 7) size++;
    return size;
}

static uint8_t *put_varint(uint8_t *to, int64_t value) {
    uint64_t bits = zigzag(value);
    for (; bits >= 0x80; bits >>= 7) *to++ = (uint8_t)(bits | 0x80);
    *to++ = (uint8_t)bits;
    return to;
}

static int64_t sized_size(const void *data, size_t size) {
    return data == NULL ? 1 : varint_size((int64_t)size) + (int64_t)size;
}

static uint8_t *put_sized(uint8_t *to, const void *data, size_t size) {
    if (data == NULL) return put_varint(to, -1);
    to = put_varint(to, (int64_t)size);
    memcpy(to, data, size);
    return to + size;
}

/* Append rows [at, count) to the batches of their partitions, up to the first one that has no place. */
void kw_write(writer_t *writer, const rows_t *rows, int64_t at, int64_t count, int64_t now_ms, written_t *written) {
    const int32_t *numbers = rows->topics;
    const int32_t no_headers[] = {0, 0};
    *written = (written_t){.stop = DONE, .partition = -1};
    for (; at < count; at++) {
        written->topic = numbers[rows->topic == NULL ? 0 : rows->topic[at]];
        topic_t *topic = &writer->topics[written->topic];
        size_t key_size, value_size;
        const void *key = entry(&rows->keys, at, &key_size);
        const void *value = entry(&rows->values, at, &value_size);
        int32_t partition = rows->partition == NULL ? -1 : rows->partition[at];
        written->partition = partition;
        if (partition >= topic->count) {
            written->stop = NO_PARTITION;
            break;
        }
        const int32_t *ends =
            is_null(&rows->headers, at) ? no_headers : rows->headers.offsets + rows->headers.first + at;

        /* Everything but the attributes and the deltas, of which the last one is the number in the batch. */
        int64_t rest = sized_size(key, key_size) + sized_size(value, value_size) + varint_size(ends[1] - ends[0]);
        for (int64_t i = ends[0]; i < ends[1]; i++) {
            size_t name_size, size;
            const void *name = entry(&rows->header_keys, i, &name_size), *data = entry(&rows->header_values, i, &size);
            rest += sized_size(name, name_size) + sized_size(data, size);
        }
        if (rest > writer->record_bytes) { /* before it has a partition: it may not become the first of a batch */
            written->stop = TOO_LARGE;
            break;
        }
        if (partition < 0) partition = choose(writer, topic, key, key_size);
        batch_t *batch = &topic->batches[partition];
        int64_t delta_ms = batch->count == 0 ? 0 : now_ms - batch->first_ms;
        int64_t body = 1 + varint_size(delta_ms) + varint_size(batch->count) + rest;
        int64_t size = varint_size(body) + body;
        if (batch->count > 0 && (batch->size + size > topic->batch_bytes || batch->count == INT32_MAX)) {
            written->partition = partition;
            written->stop = FULL;
            break;
        }
        if (batch->size + size > batch->capacity && !make_room(writer, batch, size)) {
            written->stop = NO_MEMORY;
            break;
        }
        if (batch->count == 0) {
            batch->first_ms = batch->last_ms = now_ms;
            batch->open_at = writer->open_count;
            writer->open[writer->open_count++] = (place_t){written->topic, partition};
        }
        if (now_ms > batch->last_ms) batch->last_ms = now_ms;

        uint8_t *to = put_varint(batch->data + batch->size, body);
        *to++ = 0; /* attributes, unused */
        to = put_varint(to, delta_ms);
        to = put_varint(to, batch->count);
        to = put_sized(to, key, key_size);
        to = put_sized(to, value, value_size);
        to = put_varint(to, ends[1] - ends[0]);
        for (int64_t i = ends[0]; i < ends[1]; i++) {
            size_t name_size, data_size;
            const void *name = entry(&rows->header_keys, i, &name_size);
            const void *data = entry(&rows->header_values, i, &data_size);
            to = put_sized(to, name, name_size);
            to = put_sized(to, data, data_size);
        }
        batch->size += size;
        batch->count++;
        writer->open_bytes += size;
        if (partition == topic->sticky && key == NULL) {
            topic->sticky_bytes += size < STICKY_BYTES ? (int32_t)size : STICKY_BYTES;
            if (topic->sticky_bytes >= STICKY_BYTES) topic->sticky = -1; /* its batch stays open */
        }
    }
    written->at = at;
}

/* ------------------------------------------------------------------------------------------------- open batches */

int64_t kw_open_bytes(const writer_t *writer) { return writer->open_bytes; }

int32_t kw_open_count(const writer_t *writer) { return writer->open_count; }

/* Write the partitions with records to `places`, which has room for kw_open_count. */
void kw_open(const writer_t *writer, place_t *places) {
    for (int32_t i = 0; i < writer->open_count; i++) places[i] = writer->open[i];
}

/* End the batch of a partition.  The caller owns its memory.  Return false if it has no records. */
int32_t kw_take(writer_t *writer, int32_t topic, int32_t partition, taken_t *taken) {
    topic_t *of = &writer->topics[topic];
    if (partition < 0 || partition >= of->count || of->batches[partition].count == 0) return 0;
    batch_t *batch = &of->batches[partition];
    *taken = (taken_t){batch->data, batch->size, batch->capacity, batch->first_ms, batch->last_ms, batch->count};
    writer->open_bytes -= batch->size;
    place_t last = writer->open[--writer->open_count];
    writer->open[batch->open_at] = last;
    writer->topics[last.topic].batches[last.partition].open_at = batch->open_at;
    *batch = (batch_t){0};
    if (of->sticky == partition) of->sticky = -1;
    return 1;
}
