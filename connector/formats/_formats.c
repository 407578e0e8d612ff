/* Decodes records of Avro and Protobuf into the buffers of Arrow columns, without a Python object per field or record.
 *
 * Python compiles the schemas to a program (avro_program.py, protobuf_program.py).  `step` runs it over the bytes of a
 * record and appends to columns.  A record that does not fit its program is declined: its row is null, all
 * columns are restored, and Python's decoder decodes the record.  So this code may decline any unusual record.  If
 * Python's decoder would accept a malformed record, this code reports it as malformed: SENSELESS.
 *
 * Programs and layouts are trusted, records are not.  No read goes beyond the end of a record.  A record cannot have
 * more elements than bytes left.  Lengths are compared before they are added to anything.  A few bytes may need much
 * memory: an element of an array may be a null, and a null takes room in each part of its column.  So all columns
 * together have a limit.  No operation without bytes is repeated: the compiler omits them.
 *
 * One thread at a time uses a set of columns.  Python reads their buffers, and frees them when Arrow releases them.
 */

#include "_columns.h"
#include "../columns/_native.h"

typedef struct {
    int64_t id;
    const int32_t *code; /* NULL: decline records of this schema */
    const uint8_t *constants;
} program_t;

/* A binary column of Arrow. */
typedef struct {
    const int32_t *offsets;
    const uint8_t *data;
    const uint8_t *valid; /* or NULL */
    int64_t first;        /* where `valid` begins, in bits; `offsets` begins with the first row */
} rows_t;

typedef struct {
    const uint8_t *at, *end;
    const int32_t *code;
    const uint8_t *constants;
    output_t *out;
    int32_t depth;
    int32_t to_end; /* the value has no length: it reaches to the end of the record */
} run_t;

enum {
    FAIL, SKIP_FIXED, SKIP_VARINT, SKIP_BYTES, SKIP_ARRAY, SKIP_MAP, SEQUENCE, BRANCH, DEFAULT,
    TO_END,
    NULL_VALUE, BOOLEAN, INT, LONG, LONG_TIMES, INT_AS_FLOAT, INT_AS_DOUBLE, FLOAT, FLOAT_AS_DOUBLE, DOUBLE,
    BYTES, STRING, FIXED, DECIMAL, ENUM, RECORD, ARRAY, MAP, MEMBER,
    PROTO_RECORD, PROTO_MESSAGE, PROTO_NUMBER, PROTO_TEXT, PROTO_ENUM, PROTO_TIME,
    OPERATIONS /* their number */
};

TELL_SHARED(ka_shared, sizeof(column_t), sizeof(program_t), sizeof(rows_t), sizeof(output_t), OPERATIONS)

enum { DEEPEST = 64, PAIRWISE = 16, MOST_PROBES = 64, HEAD_BYTES = 5 };

/* Bytes of a record. */

static int take(run_t *run, int64_t size, const uint8_t **found) {
    if (size < 0 || size > run->end - run->at) return 0;
    *found = run->at;
    run->at += size;
    return 1;
}

static int varint(run_t *run, int64_t *found) {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (run->at >= run->end) return 0;
        uint8_t byte = *run->at++;
        if (shift == 63 && byte > 1) break; /* more than 64 bits */
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *found = (int64_t)((number >> 1) ^ (0 - (number & 1)));
            return 1;
        }
    }
    return run->out->status = SENSELESS, 0;
}

/* Read the index of a branch or a symbol. */
static int which(run_t *run, int64_t count, int64_t *found) {
    if (!varint(run, found)) return 0;
    if (*found < 0) return run->out->status = SENSELESS, 0;
    return *found < count;
}

static int sized(run_t *run, const uint8_t **found, int64_t *size) {
    if (run->to_end) *size = run->end - run->at;
    else if (!varint(run, size)) return 0;
    return take(run, *size, found);
}

static uint64_t little_endian(const uint8_t *from, int bytes) {
    uint64_t found = 0;
    for (int i = 0; i < bytes; i++) found |= (uint64_t)from[i] << (8 * i);
    return found;
}

static int read_float(run_t *run, float *found) {
    const uint8_t *from;
    if (!take(run, 4, &from)) return 0;
    uint32_t bits = (uint32_t)little_endian(from, 4);
    memcpy(found, &bits, 4);
    return 1;
}

static int read_double(run_t *run, double *found) {
    const uint8_t *from;
    if (!take(run, 8, &from)) return 0;
    uint64_t bits = little_endian(from, 8);
    memcpy(found, &bits, 8);
    return 1;
}

/* Return whether bytes are UTF-8, as strictly as Python: the shortest form, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const uint8_t *at, int64_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8 && (memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        uint8_t first = *at++;
        if (first < 0x80) continue;
        int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || end - at < more) return 0;
        uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (at[0] < low || at[0] > high) return 0;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xC0) != 0x80) return 0;
        at += more;
    }
    return 1;
}

/* Convert a big-endian number of any length to 16 little-endian bytes; `limit` is little-endian also. */
static int decimal(const uint8_t *from, int64_t size, const uint8_t *limit, uint8_t *found) {
    uint8_t sign = size > 0 && from[0] & 0x80 ? 0xFF : 0;
    while (size > DECIMAL_BYTES && *from == sign) from++, size--;
    if (size > DECIMAL_BYTES || (size == DECIMAL_BYTES && ((from[0] ^ sign) & 0x80))) return 0;
    memset(found, sign, DECIMAL_BYTES);
    for (int64_t i = 0; i < size; i++) found[i] = from[size - 1 - i];
    uint8_t magnitude[DECIMAL_BYTES];
    unsigned carry = 1;
    for (int i = 0; i < DECIMAL_BYTES; i++) {
        carry += sign ? (uint8_t)~found[i] : found[i] + 0xFFu;
        magnitude[i] = sign ? (uint8_t)carry : found[i];
        carry >>= 8;
    }
    for (int i = DECIMAL_BYTES - 1; i >= 0; i--)
        if (magnitude[i] != limit[i]) return magnitude[i] < limit[i];
    return 0;
}

/* Return where the bytes of a key begin. */
static int64_t key_at(const column_t *keys, int64_t row) {
    return keys->kind == BINARY ? keys->offsets[row] : row * keys->width;
}

static int same_keys(const column_t *keys, int64_t one, int64_t other) {
    int64_t at = key_at(keys, one), size = key_at(keys, one + 1) - at, from = key_at(keys, other);
    return key_at(keys, other + 1) - from == size &&
           (size == 0 || memcmp(keys->data + at, keys->data + from, (size_t)size) == 0);
}

/* Return whether two of the rows from `first` on are equal. */
static int has_twins(output_t *out, const column_t *keys, int64_t first) {
    int64_t count = keys->length - first;
    if (count <= PAIRWISE) {
        for (int64_t i = 1; i < count; i++)
            for (int64_t j = 0; j < i; j++)
                if (same_keys(keys, first + i, first + j)) return 1;
        return 0;
    }
    int64_t slots = 64;
    while (slots < count * 2) slots *= 2;
    if (!room(out, &out->table, &out->table_room, slots * 4)) return 1;
    memset(out->table, 0, (size_t)slots * 4);
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = 0xCBF29CE484222325u;
        for (int64_t at = key_at(keys, first + i); at < key_at(keys, first + i + 1); at++)
            hash = (hash ^ keys->data[at]) * 0x100000001B3u;
        uint64_t slot = (hash ^ hash >> 32) & (uint64_t)(slots - 1);
        /* An attacker may write colliding keys: decline a record with too many collisions. */
        for (int probes = 0; out->table[slot] != 0; slot = (slot + 1) & (uint64_t)(slots - 1)) {
            if (same_keys(keys, first + i, first + out->table[slot] - 1) || ++probes > MOST_PROBES) return 1;
        }
        out->table[slot] = (uint32_t)(i + 1);
    }
    return 0;
}

static int step(run_t *run, int32_t at);

#include "_protobuf.h"

/* Read the blocks of an array or a map; append the number of elements to `column`. */
static int blocks(run_t *run, column_t *column, int32_t element, column_t *keys) {
    output_t *out = run->out;
    column_t *child = out->columns + column->first_child;
    int64_t first_key = keys ? keys->length : 0;
    for (;;) {
        int64_t count, size;
        const uint8_t *from;
        if (!varint(run, &count)) return 0;
        if (count == 0) break;
        if (count < 0) {
            if (count == INT64_MIN || !varint(run, &size)) return 0;
            count = -count;
        }
        if (count > run->end - run->at) return 0; /* each element takes at least a byte */
        for (; count > 0; count--) {
            if (keys) {
                if (!sized(run, &from, &size) || !is_utf8(from, size) || !put_binary(out, keys, from, size)) return 0;
            }
            if (!step(run, element)) return 0;
            if (keys && !end_row(out, child, 1)) return 0;
        }
    }
    if (keys && has_twins(out, keys, first_key)) return 0;
    return end_at(out, column, child->length) && end_row(out, column, 1);
}

static int skip_blocks(run_t *run, int32_t element, int is_map) {
    for (;;) {
        int64_t count, size;
        const uint8_t *from;
        if (!varint(run, &count)) return 0;
        if (count == 0) return 1;
        if (count < 0) {
            if (!sized(run, &from, &size)) return 0;
            continue;
        }
        if (count > run->end - run->at) return 0;
        for (; count > 0; count--) {
            if (is_map && !sized(run, &from, &size)) return 0;
            if (!step(run, element)) return 0;
        }
    }
}

static int step_in(run_t *run, const int32_t *op) {
    output_t *out = run->out;
    /* Operations without a column do not use this. */
    column_t *column = op[0] >= NULL_VALUE ? out->columns + op[1] : NULL;
    const uint8_t *from;
    int64_t number, size;
    int32_t narrow;
    float single;
    double wide;
    uint8_t wider[DECIMAL_BYTES];
    switch (op[0]) {
    case SKIP_FIXED: return take(run, op[1], &from);
    case SKIP_VARINT: return varint(run, &number);
    case SKIP_BYTES: return sized(run, &from, &size);
    case SKIP_ARRAY:
    case SKIP_MAP: return skip_blocks(run, op[1], op[0] == SKIP_MAP);
    case SEQUENCE:
        for (int32_t i = 0; i < op[1]; i++)
            if (!step(run, op[2 + i])) return 0;
        return 1;
    case BRANCH: return which(run, op[1], &number) && step(run, op[2 + number]);
    case DEFAULT: {
        run_t constant = *run;
        constant.at = run->constants + op[2], constant.end = constant.at + op[3];
        return step(&constant, op[1]) && constant.at == constant.end;
    }
    case TO_END: return run->to_end = 1, step(run, op[1]);
    case NULL_VALUE: return put_null(out, column);
    case BOOLEAN:
        if (!take(run, 1, &from) || !more_bits(out, column)) return 0;
        set_bit(column->data, column->length, *from != 0);
        return end_row(out, column, 1);
    case INT:
        if (!varint(run, &number) || number < INT32_MIN || number > INT32_MAX) return 0;
        narrow = (int32_t)number;
        return put_number(out, column, &narrow);
    case LONG: return varint(run, &number) && put_number(out, column, &number);
    case LONG_TIMES:
        if (!varint(run, &number) || number > INT64_MAX / op[2] || number < INT64_MIN / op[2]) return 0;
        number *= op[2];
        return put_number(out, column, &number);
    case INT_AS_FLOAT:
        if (!varint(run, &number)) return 0;
        single = (float)(double)number; /* Deliberate: rounded twice, as Python does */
        return put_number(out, column, &single);
    case INT_AS_DOUBLE:
        if (!varint(run, &number)) return 0;
        wide = (double)number;
        return put_number(out, column, &wide);
    case FLOAT: return read_float(run, &single) && put_number(out, column, &single);
    case FLOAT_AS_DOUBLE:
        if (!read_float(run, &single)) return 0;
        wide = single;
        return put_number(out, column, &wide);
    case DOUBLE: return read_double(run, &wide) && put_number(out, column, &wide);
    case BYTES: return sized(run, &from, &size) && put_binary(out, column, from, size);
    case STRING: return sized(run, &from, &size) && is_utf8(from, size) && put_binary(out, column, from, size);
    case FIXED: return take(run, op[2], &from) && put_binary(out, column, from, op[2]);
    case DECIMAL: /* op[2]: the size, or -1 for bytes; op[3]: the exclusive upper limit */
        size = op[2];
        if (!(size < 0 ? sized(run, &from, &size) : take(run, size, &from))) return 0;
        return decimal(from, size, run->constants + op[3], wider) && put_number(out, column, wider);
    case ENUM: /* op[2]: the number of symbols; then position, or -1, and size of each */
        if (!which(run, op[2], &number) || op[3 + 2 * number] < 0) return 0;
        return put_binary(out, column, run->constants + op[3 + 2 * number], op[4 + 2 * number]);
    case RECORD:
        for (int32_t i = 0; i < op[2]; i++)
            if (!step(run, op[3 + i])) return 0;
        return end_row(out, column, 1);
    case ARRAY: return blocks(run, column, op[2], NULL);
    case MAP: return blocks(run, column, op[2], out->columns + out->columns[column->first_child].first_child);
    case MEMBER: /* op[2]: the child; op[3]: the operation that fills it */
        for (int32_t i = 0; i < column->children; i++)
            if (!(i == op[2] ? step(run, op[3]) : put_null(out, out->columns + column->first_child + i))) return 0;
        return end_row(out, column, 1);
    case PROTO_RECORD: return proto_record(run, op, column);
    case PROTO_MESSAGE: return proto_message(run, op, column);
    case PROTO_NUMBER: return proto_number(run, op[2], column);
    case PROTO_TEXT: return proto_text(run, op, column);
    case PROTO_ENUM: return proto_enum(run, op, column);
    case PROTO_TIME: return proto_time(run, op, column);
    default: return 0;
    }
}

static int step(run_t *run, int32_t at) {
    if (run->depth >= DEEPEST) return 0;
    run->depth++;
    int done = step_in(run, run->code + at);
    run->depth--;
    return done;
}

/* The functions that Python calls. */

void ka_free(output_t *out) {
    if (out == NULL) return;
    for (int32_t i = 0; out->columns != NULL && i < out->count; i++) {
        free(out->columns[i].valid);
        free(out->columns[i].offsets);
        free(out->columns[i].data);
    }
    free(out->columns), free(out->declined), free(out->table), free(out);
}

/* Create columns.  `layout` has four numbers for each: kind, width, first child, children.  All columns together may
 * take `most_bytes`. */
output_t *ka_new(const int32_t *layout, int32_t count, int64_t most_bytes) {
    output_t *out = calloc(1, sizeof *out);
    if (out == NULL) return NULL;
    out->count = count, out->room_left = most_bytes;
    out->columns = calloc((size_t)count, sizeof *out->columns);
    int fine = out->columns != NULL;
    for (int32_t i = 0; fine && i < count; i++) {
        column_t *column = out->columns + i;
        column->kind = layout[4 * i], column->width = layout[4 * i + 1];
        column->first_child = layout[4 * i + 2], column->children = layout[4 * i + 3];
        if (column->kind == BINARY || column->kind == LIST) {
            fine = room(out, &column->offsets, &column->offsets_room, 4);
            if (fine) column->offsets[0] = 0;
        }
    }
    if (fine) return out;
    ka_free(out);
    return NULL;
}

static int decline(output_t *out, int64_t row) {
    if (!room(out, &out->declined, &out->declined_room, (out->declined_count + 1) * 4)) return 0;
    out->declined[out->declined_count++] = (int32_t)(out->status == SENSELESS ? ~row : row);
    out->status = FINE;
    return put_null(out, out->columns);
}

/* Return the program with an id, from programs that are sorted by id; NULL if there is none. */
static const program_t *program_of(const program_t *programs, int32_t count, int64_t id) {
    while (count > 0) {
        int32_t half = count / 2;
        if (programs[half].id == id) return programs + half;
        if (programs[half].id < id) programs += half + 1, count -= half + 1;
        else count = half;
    }
    return NULL;
}

/* Append the rows from `row` up to `until`; return the row at which it stopped, with the reason in `status`.
 *
 * With `framed`, records begin with the id of their program, and programs are sorted by id.  Otherwise there is only
 * one program.
 */
int64_t ka_decode(output_t *out, const program_t *programs, int32_t count, int32_t framed, const rows_t *rows, int64_t row,
                  int64_t until) {
    const program_t *program = count > 0 ? programs : NULL;
    for (; row < until; row++) {
        out->status = FINE;
        column_t *root = out->columns;
        int64_t bit = rows->first + row, length = root->length;
        if (rows->valid != NULL && !(rows->valid[bit >> 3] >> (bit & 7) & 1)) {
            if (!put_null(out, root)) return row;
            continue;
        }
        const uint8_t *at = rows->data + rows->offsets[row];
        run_t run = {.at = at, .end = rows->data + rows->offsets[row + 1], .out = out};
        int known = 1;
        if (framed) {
            known = run.end - at >= HEAD_BYTES && at[0] == 0;
            if (known) {
                int64_t id = (int64_t)at[1] << 24 | at[2] << 16 | at[3] << 8 | at[4];
                if (program == NULL || program->id != id) program = program_of(programs, count, id);
                if (program == NULL) return out->status = UNKNOWN_SCHEMA, out->unknown_id = id, row;
                run.at += HEAD_BYTES;
            }
        }
        if (known && program->code != NULL) {
            run.code = program->code, run.constants = program->constants;
            if (step(&run, 0) && run.at == run.end) continue;
            cut(out, root, length);
            if (out->status != FINE && out->status != SENSELESS) return row;
        }
        if (!decline(out, row)) return row;
    }
    return row;
}
