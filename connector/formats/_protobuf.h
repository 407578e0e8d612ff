/* The operations for Protobuf, as a part of `_formats.c`.
 *
 * The same rules apply.  A message that is in any way unusual is declined, and Google's library parses it: a field of
 * another wire type, a group, a message that is given in two parts, two members of a oneof, a key twice in a map.
 */

#ifndef KAFKA_GROUP_PROTOBUF_H
#define KAFKA_GROUP_PROTOBUF_H

#include <stdio.h>

enum { VARINT, UINT32, SINT32, SINT64, FIXED32, FIXED64 };          /* how a number is written */
enum { SINGLE, MERGED, REPEATED, ENTRIES };                         /* how a field is written */
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5, SECONDS = 1 << 3, NANOS = 2 << 3 };

/* A field of a message, sorted by number, as a part of its operation. */
typedef struct {
    int32_t number, wire, kind;
    int32_t column;
    int32_t value;  /* the operation that reads one value */
    int32_t absent; /* the operation for a field that is not there */
    int32_t oneof;  /* or -1 */
} field_t;

/* Tags and lengths have at most this many bytes, other numbers ten.  The library also refuses longer ones, although
 * zeros may fill them up. */
enum { TAG_BYTES = 5, NUMBER_BYTES = 10 };

static int plain_varint(run_t *run, int most, uint64_t *found) {
    uint64_t number = 0;
    for (int shift = 0; shift < 7 * most; shift += 7) {
        if (run->at >= run->end) return 0;
        uint8_t byte = *run->at++;
        if (shift == 63 && byte > 1) return 0;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return *found = number, 1;
    }
    return 0;
}

/* Take bytes with their length before them. */
static int delimited(run_t *run, const uint8_t **found, int64_t *size) {
    uint64_t length;
    if (!plain_varint(run, TAG_BYTES, &length) || length > (uint64_t)(run->end - run->at)) return 0;
    return *size = (int64_t)length, take(run, *size, found);
}

static int inner_run(run_t *run, run_t *inner) {
    int64_t size;
    const uint8_t *from;
    if (!delimited(run, &from, &size)) return 0;
    *inner = *run, inner->at = from, inner->end = from + size;
    return 1;
}

static int skip_field(run_t *run, int wire) {
    uint64_t number;
    int64_t size;
    const uint8_t *from;
    switch (wire) {
    case WIRE_VARINT: return plain_varint(run, NUMBER_BYTES, &number);
    case WIRE_64: return take(run, 8, &from);
    case WIRE_BYTES: return delimited(run, &from, &size);
    case WIRE_32: return take(run, 4, &from);
    default: return 0;
    }
}

static int proto_number(run_t *run, int32_t written, column_t *column) {
    uint64_t number[2] = {0, 0}; /* little-endian, as wide as a decimal */
    const uint8_t *from;
    if (written >= FIXED32) {
        int size = written == FIXED32 ? 4 : 8;
        if (!take(run, size, &from)) return 0;
        number[0] = little_endian(from, size);
    } else {
        if (!plain_varint(run, NUMBER_BYTES, number)) return 0;
        if (written == UINT32 || written == SINT32) number[0] = (uint32_t)number[0];
        if (written == SINT32 || written == SINT64) number[0] = (number[0] >> 1) ^ (0 - (number[0] & 1));
    }
    if (column->kind != BITS) return put_number(run->out, column, number);
    if (!more_bits(run->out, column)) return 0;
    set_bit(column->data, column->length, number[0] != 0);
    return end_row(run->out, column, 1);
}

/* op[2]: whether unknown numbers are values; op[3]: the number of names; then number, position and size of each, sorted by number. */
static int proto_enum(run_t *run, const int32_t *op, column_t *column) {
    uint64_t number;
    if (!plain_varint(run, NUMBER_BYTES, &number)) return 0;
    int32_t wanted = (int32_t)(uint32_t)number, low = 0, high = op[3];
    while (low < high) {
        int32_t half = (low + high) / 2;
        const int32_t *name = op + 4 + 3 * half;
        if (name[0] == wanted) return put_binary(run->out, column, run->constants + name[1], name[2]);
        if (name[0] < wanted) low = half + 1;
        else high = half;
    }
    char text[12];
    return op[2] && put_binary(run->out, column, text, snprintf(text, sizeof text, "%d", wanted));
}

/* op[2]: whether it is a duration, which is rounded towards zero. */
static int proto_time(run_t *run, const int32_t *op, column_t *column) {
    run_t inner;
    uint64_t tag, number;
    int64_t seconds = 0, nanos = 0;
    if (!inner_run(run, &inner)) return 0;
    while (inner.at < inner.end) {
        if (!plain_varint(&inner, TAG_BYTES, &tag) || (tag != SECONDS && tag != NANOS)) return 0;
        if (!plain_varint(&inner, NUMBER_BYTES, &number)) return 0;
        if (tag == SECONDS) seconds = (int64_t)number;
        else nanos = (int32_t)(uint32_t)number;
    }
    if (seconds > INT64_MAX / 1000000 - 10000 || seconds < INT64_MIN / 1000000 + 10000) return 0;
    int64_t micros = seconds * 1000000 + nanos / 1000 - (!op[2] && nanos % 1000 < 0);
    return put_number(run->out, column, &micros);
}

/* Return the field with a number, or NULL.  Fields are usually written in order: look at the `next` one first. */
static const field_t *field_of(const field_t *fields, int32_t count, int32_t number, int32_t *next) {
    int32_t low = 0, high = count;
    if (*next > 0 && fields[*next - 1].number == number) return fields + *next - 1; /* repeated */
    if (*next < count && fields[*next].number == number) return fields + (*next)++;
    while (low < high) {
        int32_t half = (low + high) / 2;
        if (fields[half].number == number) return *next = half + 1, fields + half;
        if (fields[half].number < number) low = half + 1;
        else high = half;
    }
    return NULL;
}

static int read_field(run_t *run, const int32_t *op, const column_t *column, const field_t *field, int wire) {
    output_t *out = run->out;
    const field_t *fields = (const field_t *)(op + 4);
    column_t *child = out->columns + field->column;
    if (field->kind >= REPEATED && wire == WIRE_BYTES && field->wire != WIRE_BYTES) {
        run_t packed;
        if (!inner_run(run, &packed)) return 0;
        while (packed.at < packed.end)
            if (!step(&packed, field->value)) return 0;
        return 1;
    }
    if (wire != field->wire) return 0;
    if (field->kind < REPEATED && child->length > column->length) {
        if (field->kind == MERGED) return 0;
        cut(out, child, column->length); /* the last value counts */
    } else if (field->oneof >= 0) {
        for (int32_t i = 0; i < op[3]; i++)
            if (fields[i].oneof == field->oneof && out->columns[fields[i].column].length > column->length) return 0;
    }
    return step(run, field->value);
}

/* Read a message up to the end.  op[2]: whether unknown fields are declined; op[3]: the number of fields; the fields. */
static int message(run_t *run, const int32_t *op, column_t *column) {
    output_t *out = run->out;
    const field_t *fields = (const field_t *)(op + 4);
    int32_t next = 0;
    while (run->at < run->end) {
        uint64_t tag;
        if (!plain_varint(run, TAG_BYTES, &tag) || tag > UINT32_MAX || tag < 8) return 0;
        const field_t *field = field_of(fields, op[3], (int32_t)(tag >> 3), &next);
        if (!(field ? read_field(run, op, column, field, tag & 7) : !op[2] && skip_field(run, tag & 7))) return 0;
    }
    for (int32_t i = 0; i < op[3]; i++) {
        column_t *child = out->columns + fields[i].column, *elements = out->columns + child->first_child;
        if (fields[i].kind < REPEATED) {
            if (child->length == column->length && !step(run, fields[i].absent)) return 0;
            continue;
        }
        if (fields[i].kind == ENTRIES && has_twins(out, out->columns + elements->first_child, child->offsets[child->length]))
            return 0;
        if (!end_at(out, child, elements->length) || !end_row(out, child, 1)) return 0;
    }
    return end_row(out, column, 1);
}

/* Read a record.  op[2]: the operation of its message; op[3], op[4]: position and size of the expected indexes of the
 * message; op[5]: whether it is the first one, for which a zero is enough. */
static int proto_record(run_t *run, const int32_t *op, column_t *column) {
    if (op[5] && run->at < run->end && *run->at == 0) run->at++;
    else if (op[4] > run->end - run->at || memcmp(run->at, run->constants + op[3], (size_t)op[4]) != 0) return 0;
    else run->at += op[4];
    return message(run, run->code + op[2], column);
}

static int proto_text(run_t *run, const int32_t *op, column_t *column) {
    int64_t size;
    const uint8_t *from;
    return delimited(run, &from, &size) && (!op[2] || is_utf8(from, size)) && put_binary(run->out, column, from, size);
}

static int proto_message(run_t *run, const int32_t *op, column_t *column) {
    run_t inner;
    return inner_run(run, &inner) && message(&inner, op, column);
}

#endif
