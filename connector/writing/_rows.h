/* The rows to write, as Arrow columns. */

#ifndef KAFKA_GROUP_ROWS_H
#define KAFKA_GROUP_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* A column of variable length; its first entry is `first`.  Without offsets all entries are null, without bits none. */
typedef struct {
    const int32_t *offsets;
    const uint8_t *data;
    const uint8_t *valid;
    int64_t first;
} column_t;

/* Python mirrors this (native_rows.py). */
typedef struct {
    const void *topics; /* an entry for each topic of the rows, of the type that the function needs */
    const int32_t *topic; /* the index of each row's topic; NULL: all rows have the first */
    const int32_t *partition; /* of each row; NULL: no row has one */
    column_t keys;
    column_t values;
    column_t headers; /* without data: the offsets count entries of the two columns below */
    column_t header_keys;
    column_t header_values;
} rows_t;

static inline int is_null(const column_t *column, int64_t at) {
    at += column->first;
    return column->offsets == NULL || (column->valid != NULL && !(column->valid[at >> 3] >> (at & 7) & 1));
}

/* Return an entry; NULL for null.  An empty entry is not NULL, even if Arrow has no bytes for it. */
static inline const void *entry(const column_t *column, int64_t at, size_t *size) {
    *size = 0;
    if (is_null(column, at)) return NULL;
    int32_t start = column->offsets[column->first + at];
    *size = (size_t)(column->offsets[column->first + at + 1] - start);
    return *size == 0 ? (const void *)"" : column->data + start;
}

#endif
