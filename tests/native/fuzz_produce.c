/* Random columns of Arrow through the C code of the sink, under the sanitizers (`make sanitize`).
 *
 * Each buffer is allocated with exactly the size that Arrow needs, so one byte too many is an error of the address
 * sanitizer, as are headers that are used after they were let go, or never let go.  Functions in the place of librdkafka's
 * compare each record with what the columns were made from, and refuse some.
 */

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "../../connector/writing/_produce.c"

enum { MOST_ROWS = 24, MOST_ENTRIES = 100, LONGEST = 8, REFUSED = -184 };

/* A column as it was made: the bytes of each entry, or no bytes for null. */
typedef struct {
    int64_t count;
    int sizes[MOST_ENTRIES]; /* -1: null */
    uint8_t bytes[MOST_ENTRIES][LONGEST];
} made_t;

typedef struct {
    size_t wanted;
    int64_t at, end; /* entries that are due */
} headers_t;

static uint64_t seed;
static made_t keys, values, header_keys, header_values;
static int32_t header_ends[MOST_ROWS + 1], *topic_numbers, *partitions;
static int header_lists[MOST_ROWS], has_headers, has_keys, topics[3];
static void *handles[3];
static int64_t due, taken, refused, alive, out_of_memory; /* `due`: the row that is to be produced next */

static uint64_t chance(uint64_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

static void make(made_t *column, int64_t count, int nulls) {
    column->count = count;
    for (int64_t i = 0; i < count; i++) {
        column->sizes[i] = nulls && chance(4) == 0 ? -1 : (int)chance(LONGEST);
        for (int k = 0; k < LONGEST; k++) column->bytes[i][k] = (uint8_t)chance(256);
    }
}

/* Lay a column out as Arrow does, as a slice that begins with the entry `first` of a longer one. */
static column_t laid_out(const made_t *made, int64_t first) {
    int64_t count = first + made->count, size = 0, nulls = 0;
    for (int64_t i = 0; i < made->count; i++) size += made->sizes[i] > 0 ? made->sizes[i] : 0, nulls += made->sizes[i] < 0;
    int32_t *offsets = malloc((size_t)(count + 1) * 4);
    uint8_t *data = size > 0 ? malloc((size_t)size) : NULL, *valid = NULL;
    if (nulls > 0 || chance(3) == 0) {
        valid = malloc((size_t)(count + 7) / 8);
        memset(valid, 0xFF, (size_t)(count + 7) / 8);
    }
    for (int64_t i = 0; i <= first; i++) offsets[i] = 0;
    for (int64_t i = 0; i < made->count; i++) {
        int32_t at = offsets[first + i];
        int length = made->sizes[i] > 0 ? made->sizes[i] : 0;
        if (made->sizes[i] < 0) valid[(first + i) >> 3] &= (uint8_t) ~(1u << ((first + i) & 7));
        if (length > 0) memcpy(data + at, made->bytes[i], (size_t)length);
        offsets[first + i + 1] = at + length;
    }
    return (column_t){offsets, data, valid, first};
}

static void release(column_t column) { free((void *)column.offsets), free((void *)column.data), free((void *)column.valid); }

static void check_entry(const made_t *made, int64_t at, const void *found, size_t size) {
    if (made->sizes[at] < 0) {
        assert(found == NULL && size == 0);
        return;
    }
    assert(found != NULL && size == (size_t)made->sizes[at]);
    assert(memcmp(found, made->bytes[at], size) == 0);
}

static int check_row(void *topic, int32_t partition, int flags, const void *value, size_t value_size, const void *key,
                     size_t key_size) {
    assert(flags == COPY);
    assert(topic == handles[topic_numbers ? topic_numbers[due] : 0]);
    assert(partition == (partitions ? partitions[due] : NO_PARTITION));
    check_entry(&values, due, value, value_size);
    if (has_keys) check_entry(&keys, due, key, key_size);
    else assert(key == NULL && key_size == 0);
    if (chance(20) == 0) return refused++, 1;
    due++, taken++;
    return 0;
}

static int produce(void *topic, int32_t partition, int flags, const void *value, size_t value_size, const void *key,
                   size_t key_size, void *opaque) {
    assert(opaque == NULL && !(has_headers && header_lists[due]));
    return check_row(topic, partition, flags, value, value_size, key, key_size) ? -1 : 0;
}

static int producev(void *producer, ...) {
    va_list given;
    va_start(given, producer);
    assert(producer == &seed);
    void *topic = NULL;
    const void *value = NULL, *key = NULL;
    size_t value_size = 0, key_size = 0;
    int32_t partition = 0;
    int flags = 0;
    headers_t *headers = NULL;
    for (int tag; (tag = va_arg(given, int)) != TAG_END;) {
        switch (tag) {
        case TAG_RKT: topic = va_arg(given, void *); break;
        case TAG_PARTITION: partition = va_arg(given, int32_t); break;
        case TAG_FLAGS: flags = va_arg(given, int); break;
        case TAG_VALUE: value = va_arg(given, void *), value_size = va_arg(given, size_t); break;
        case TAG_KEY: key = va_arg(given, void *), key_size = va_arg(given, size_t); break;
        case TAG_HEADERS: headers = va_arg(given, headers_t *); break;
        default: assert(0);
        }
    }
    va_end(given);
    assert(headers != NULL && headers->at == headers->end);
    assert(headers->wanted == (size_t)(header_ends[due + 1] - header_ends[due]));
    if (check_row(topic, partition, flags, value, value_size, key, key_size)) return REFUSED;
    alive--;
    free(headers); /* as librdkafka takes them over */
    return 0;
}

static void *headers_new(size_t count) {
    assert(has_headers && header_lists[due]);
    if (chance(50) == 0) return out_of_memory++, NULL;
    headers_t *headers = malloc(sizeof *headers);
    *headers = (headers_t){count, header_ends[due], header_ends[due + 1]};
    alive++;
    return headers;
}

static int header_add(void *to, const char *key, ssize_t key_size, const void *value, ssize_t value_size) {
    headers_t *headers = to;
    assert(headers->at < headers->end && key_size >= 0 && value_size >= 0);
    check_entry(&header_keys, headers->at, key, (size_t)key_size);
    check_entry(&header_values, headers->at, value, (size_t)value_size);
    if (chance(100) == 0) return out_of_memory++, -1;
    headers->at++;
    return 0;
}

static void headers_destroy(void *headers) {
    alive--;
    free(headers);
}

static int last_error(void) { return REFUSED; }

/* Numbers, as a slice of a longer column. */
static int32_t *numbers(int64_t count, int64_t first, int32_t below, int32_t **found) {
    if (chance(2)) return *found = NULL;
    int32_t *all = malloc((size_t)(first + count) * 4);
    for (int64_t i = 0; i < first + count; i++) all[i] = (int32_t)chance((uint64_t)below);
    *found = all + first;
    return all;
}

static void one_round(void) {
    static const producer_t kafka = {produce, producev, headers_new, header_add, headers_destroy, last_error};
    int64_t count = 1 + (int64_t)chance(MOST_ROWS);
    int32_t *all_topics = numbers(count, (int64_t)chance(4), 3, &topic_numbers);
    int32_t *all_partitions = numbers(count, (int64_t)chance(4), 50, &partitions);
    has_keys = chance(3) != 0, has_headers = chance(3) != 0;
    make(&values, count, 1), make(&keys, count, 1);

    /* A list that is null may have entries all the same. */
    int64_t lists_first = (int64_t)chance(9), entries = 0;
    int32_t *list_offsets = malloc((size_t)(lists_first + count + 1) * 4);
    uint8_t *list_valid = malloc((size_t)(lists_first + count + 7) / 8);
    memset(list_valid, 0, (size_t)(lists_first + count + 7) / 8);
    for (int64_t i = 0; i <= lists_first; i++) list_offsets[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        header_ends[i] = (int32_t)entries;
        header_lists[i] = chance(3) != 0;
        if (header_lists[i]) list_valid[(lists_first + i) >> 3] |= (uint8_t)(1u << ((lists_first + i) & 7));
        entries += (int64_t)chance(5);
        list_offsets[lists_first + i + 1] = (int32_t)entries;
    }
    header_ends[count] = (int32_t)entries;
    make(&header_keys, entries, 0), make(&header_values, entries, 1);

    rows_t rows = {.topics = handles, .topic = topic_numbers, .partition = partitions};
    rows.values = laid_out(&values, (int64_t)chance(9));
    column_t key_column = laid_out(&keys, (int64_t)chance(9));
    if (has_keys) rows.keys = key_column;
    if (has_headers) rows.headers = (column_t){list_offsets, NULL, list_valid, lists_first};
    rows.header_keys = laid_out(&header_keys, (int64_t)chance(9));
    rows.header_values = laid_out(&header_values, (int64_t)chance(9));

    due = 0;
    for (int64_t at = 0; at < count;) {
        int64_t until = at + 1 + (int64_t)chance((uint64_t)(count - at)), no_memory = out_of_memory;
        int32_t error = 7;
        int64_t next = kg_produce(&kafka, &seed, &rows, at, until, &error);
        assert(next == due && next <= until && alive == 0);
        if (error == 0) assert(next == until);
        else assert(error == (out_of_memory > no_memory ? OUT_OF_MEMORY : REFUSED));
        at = next;
    }
    static const uint32_t table[8 * 256], seeds[3]; /* what it adds up does not matter here */
    assert(kg_digest(table, seeds, &rows, count) == kg_digest(table, seeds, &rows, count));
    release(rows.values), release(key_column), release(rows.header_keys), release(rows.header_values);
    free(list_offsets), free(list_valid), free(all_topics), free(all_partitions);
}

int main(int count, char **arguments) {
    int64_t rounds = count > 1 ? atoll(arguments[1]) : 100000;
    for (int i = 0; i < 3; i++) handles[i] = topics + i;
    for (int64_t round = 0; round < rounds; round++) {
        seed = (uint64_t)round * 0x9E3779B97F4A7C15u + 1;
        one_round();
    }
    printf("%lld rounds, %lld rows produced, %lld refused, %lld without memory\n", (long long)rounds, (long long)taken,
           (long long)refused, (long long)out_of_memory);
    return taken > rounds && refused > 0 && out_of_memory > 0 ? 0 : 1;
}
