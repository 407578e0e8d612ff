/* Columns of Arrow that grow while records are decoded.  For `_formats.c` and its fuzzers.
 *
 * Each function that may fail returns whether it succeeded; if not, `status` contains the reason.
 */

#ifndef KAFKA_GROUP_COLUMNS_H
#define KAFKA_GROUP_COLUMNS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The kind of a column.  Python mirrors this and the structures below. */
enum { BITS, NUMBERS, BINARY, LIST, STRUCT };

typedef struct {
    int64_t length;
    int64_t bytes;    /* of data */
    uint8_t *valid;   /* one bit per row; NULL: no nulls so far */
    int32_t *offsets; /* length + 1 */
    uint8_t *data;
    int64_t valid_room, offsets_room, data_room; /* in bytes */
    int32_t kind;
    int32_t width; /* of a number, in bytes */
    int32_t first_child;
    int32_t children; /* side by side */
} column_t;

enum { FINE, UNKNOWN_SCHEMA, NO_MEMORY, TOO_LARGE, SENSELESS };

typedef struct {
    int32_t status;         /* why ka_decode has stopped */
    int32_t count;          /* of columns; the first is the whole type */
    int64_t unknown_id;
    int64_t declined_count;
    int32_t *declined;      /* rows, in order; ~row if it is certainly malformed */
    column_t *columns;
    int64_t room_left;      /* bytes that may still be allocated before TOO_LARGE */
    /* Only for the C code. */
    int64_t declined_room, table_room;
    uint32_t *table;
} output_t;

enum { DECIMAL_BYTES = 16 };

/* Enlarge a buffer if necessary; `pointer` points to its address, for any type of buffer. */
static int room(output_t *out, void *pointer, int64_t *have, int64_t needed) {
    if (needed <= *have) return 1;
    int64_t larger = *have < 512 ? 1024 : *have * 2;
    if (larger < needed) larger = needed;
    if (larger - *have > out->room_left) return out->status = TOO_LARGE, 0;
    void *buffer;
    memcpy(&buffer, pointer, sizeof buffer);
    void *moved = realloc(buffer, (size_t)larger);
    if (moved == NULL) return out->status = NO_MEMORY, 0;
    memcpy(pointer, &moved, sizeof moved);
    out->room_left -= larger - *have;
    *have = larger;
    return 1;
}

static void set_bit(uint8_t *bits, int64_t at, int on) {
    uint8_t mask = (uint8_t)(1u << (at & 7));
    bits[at >> 3] = (uint8_t)(on ? bits[at >> 3] | mask : bits[at >> 3] & ~mask);
}

/* End a row after its data was appended. */
static int end_row(output_t *out, column_t *column, int valid) {
    int64_t bytes = (column->length >> 3) + 1;
    if (column->valid == NULL && !valid) {
        if (!room(out, &column->valid, &column->valid_room, bytes)) return 0;
        memset(column->valid, 0xFF, (size_t)column->valid_room);
    }
    if (column->valid != NULL) {
        if (!room(out, &column->valid, &column->valid_room, bytes)) return 0;
        set_bit(column->valid, column->length, valid);
    }
    column->length++;
    return 1;
}

static int end_at(output_t *out, column_t *column, int64_t offset) {
    if (offset > INT32_MAX || column->length >= INT32_MAX - 1) return out->status = TOO_LARGE, 0;
    if (!room(out, &column->offsets, &column->offsets_room, (column->length + 2) * 4)) return 0;
    column->offsets[column->length + 1] = (int32_t)offset;
    return 1;
}

/* Make room for the bit of one more row. */
static int more_bits(output_t *out, column_t *column) {
    return room(out, &column->data, &column->data_room, (column->length >> 3) + 1);
}

static int put(output_t *out, column_t *column, const void *value, int64_t size) {
    if (!room(out, &column->data, &column->data_room, column->bytes + size)) return 0;
    if (size > 0) memcpy(column->data + column->bytes, value, (size_t)size);
    column->bytes += size;
    return 1;
}

static int put_number(output_t *out, column_t *column, const void *value) {
    return put(out, column, value, column->width) && end_row(out, column, 1);
}

static int put_binary(output_t *out, column_t *column, const void *value, int64_t size) {
    if (column->bytes + size > INT32_MAX) return out->status = TOO_LARGE, 0;
    return put(out, column, value, size) && end_at(out, column, column->bytes) && end_row(out, column, 1);
}

static int put_null(output_t *out, column_t *column) {
    static const uint8_t zeros[DECIMAL_BYTES];
    column_t *child = out->columns + column->first_child;
    switch (column->kind) {
    case BITS:
        if (!more_bits(out, column)) return 0;
        set_bit(column->data, column->length, 0);
        break;
    case NUMBERS:
        if (!put(out, column, zeros, column->width)) return 0;
        break;
    case BINARY:
    case LIST:
        if (!end_at(out, column, column->offsets[column->length])) return 0;
        break;
    default:
        for (int32_t i = 0; i < column->children; i++)
            if (!put_null(out, child + i)) return 0;
    }
    return end_row(out, column, 0);
}

/* Remove all rows after the first `length`, including an unfinished row. */
static void cut(output_t *out, column_t *column, int64_t length) {
    column_t *child = out->columns + column->first_child;
    column->length = length;
    if (column->kind == NUMBERS) column->bytes = length * column->width;
    if (column->kind == BINARY) column->bytes = column->offsets[length];
    if (column->kind == LIST) cut(out, child, column->offsets[length]);
    if (column->kind == STRUCT)
        for (int32_t i = 0; i < column->children; i++) cut(out, child + i, length);
}

#endif
