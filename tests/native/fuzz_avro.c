/* Random records of Avro through random programs of the decoder in C, under the sanitizers (`make sanitize`).
 *
 * A round makes columns, a program that fills them, and records that fit it; some of these are damaged then.  Each record
 * lies in memory of exactly its size, so one byte too many is an error of the address sanitizer.
 */

#include <assert.h>
#include <stdio.h>

#include "_rounds.h"
#include "../../connector/formats/_formats.c"

enum { MOST_COLUMNS = 400, MOST_CODE = 20000, MOST_RECORD = 1 << 16, RECORDS = 12 };

static uint64_t seed;
static int32_t layout[4 * MOST_COLUMNS], columns;
static int is_map[MOST_COLUMNS];
static int32_t code[MOST_CODE], codes;
static uint8_t record[MOST_RECORD];
static int64_t size;
static int spoilt; /* what is written may be declined */

/* The symbols "A" and "BB", a default of the number 3, and what decimals have to be below: 10 ** 9. */
static const uint8_t constants[] = {'A', 'B', 'B', 6, 0x00, 0xCA, 0x9A, 0x3B, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

static uint64_t chance(uint64_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

static void make_column(int32_t at, int depth) {
    static const int32_t widths[] = {4, 8, 16};
    int32_t *shape = layout + 4 * at;
    uint64_t kind = chance(depth > 0 && columns < MOST_COLUMNS - 20 ? 6 : 3);
    is_map[at] = kind == 5;
    shape[0] = kind == 5 ? LIST : (int32_t)kind;
    shape[1] = kind == NUMBERS ? widths[chance(3)] : 0;
    shape[3] = kind == STRUCT ? 1 + (int32_t)chance(4) : kind >= LIST ? 1 : 0;
    shape[2] = columns;
    columns += shape[3];
    if (kind == 5) { /* a struct of keys and values */
        int32_t *entry = layout + 4 * shape[2], *keys = layout + 4 * columns;
        entry[0] = STRUCT, entry[1] = 0, entry[2] = columns, entry[3] = 2;
        keys[0] = BINARY, keys[1] = keys[2] = keys[3] = 0;
        columns += 2;
        make_column(entry[2] + 1, depth - 1);
    } else {
        for (int32_t i = 0; i < shape[3]; i++) make_column(shape[2] + i, depth - 1);
    }
}

static int32_t op(int count, const int32_t *numbers) {
    assert(codes + count < MOST_CODE);
    memcpy(code + codes, numbers, (size_t)count * 4);
    return (codes += count) - count;
}
#define OP(...) op((int)(sizeof((int32_t[]){__VA_ARGS__}) / 4), (int32_t[]){__VA_ARGS__})

static int32_t make_skip(int depth) {
    int32_t at, choice = (int32_t)chance(depth > 0 ? 8 : 3);
    switch (choice) {
    case 0: return OP(SKIP_FIXED, 1 + (int32_t)chance(9));
    case 1: return OP(SKIP_VARINT);
    case 2: return OP(SKIP_BYTES);
    case 3:
    case 4:
        at = OP(choice == 3 ? SKIP_ARRAY : SKIP_MAP, 0);
        code[at + 1] = make_skip(depth - 1);
        return at;
    case 5: /* it contains itself */
        at = OP(BRANCH, 2, 0, 0);
        code[at + 2] = OP(SEQUENCE, 0);
        code[at + 3] = OP(SEQUENCE, 2, OP(SKIP_VARINT), at);
        return at;
    default:
        at = OP(choice == 6 ? SEQUENCE : BRANCH, 2, 0, 0);
        code[at + 2] = make_skip(depth - 1);
        code[at + 3] = make_skip(depth - 1);
        return at;
    }
}

static int32_t make_read(int32_t column, int plain) {
    const int32_t *shape = layout + 4 * column, first = shape[2], width = shape[1];
    int32_t at;
    if (!plain && chance(3) == 0) {
        at = OP(BRANCH, 3, 0, 0, 0);
        code[at + 2] = OP(NULL_VALUE, column);
        code[at + 3] = make_read(column, 1);
        code[at + 4] = chance(5) ? make_read(column, 1) : OP(FAIL);
        return at;
    }
    switch (shape[0]) {
    case BITS: return OP(BOOLEAN, column);
    case NUMBERS:
        if (width == 16) return OP(DECIMAL, column, chance(2) ? -1 : (int32_t)chance(20), 4);
        if (chance(8) == 0) return OP(DEFAULT, OP(width == 4 ? INT : LONG, column), 3, 1);
        if (width == 4) return OP(chance(2) ? INT : chance(2) ? INT_AS_FLOAT : FLOAT, column);
        if (chance(4) == 0) return OP(LONG_TIMES, column, 1000);
        return OP(chance(3) == 0 ? LONG : chance(3) == 0 ? INT_AS_DOUBLE : chance(2) ? FLOAT_AS_DOUBLE : DOUBLE, column);
    case BINARY:
        if (chance(4) == 0) return OP(ENUM, column, 3, 0, 1, 1, 2, -1, 0);
        if (chance(4) == 0) return OP(FIXED, column, (int32_t)chance(5));
        return OP(chance(2) ? STRING : BYTES, column);
    case LIST:
        at = OP(is_map[column] ? MAP : ARRAY, column, 0);
        code[at + 2] = make_read(is_map[column] ? layout[4 * first + 2] + 1 : first, 0);
        return at;
    default:
        if (chance(4) == 0) {
            int32_t member = (int32_t)chance((uint64_t)shape[3]);
            at = OP(MEMBER, column, member, 0);
            code[at + 3] = make_read(first + member, 1);
            return at;
        }
        at = OP(RECORD, column, 2 * shape[3], 0, 0, 0, 0, 0, 0, 0, 0);
        codes = at + 3 + 2 * shape[3];
        for (int32_t i = 0; i < shape[3]; i++) {
            code[at + 3 + 2 * i] = chance(4) ? OP(SEQUENCE, 0) : make_skip(2);
            code[at + 4 + 2 * i] = make_read(first + i, 0);
        }
        return at;
    }
}

/* A whole record; where that is bytes or a decimal it may have no length. */
static void make_record(void) {
    int32_t kind = layout[0], width = layout[1];
    int may_go_to_the_end = kind == BINARY || (kind == NUMBERS && width == 16);
    if (!may_go_to_the_end || chance(2)) {
        make_read(0, 0);
        return;
    }
    OP(TO_END, 2);
    if (kind == BINARY) OP(chance(2) ? STRING : BYTES, 0);
    else OP(DECIMAL, 0, -1, 4);
}

static void put_bytes(int64_t count, int text) {
    for (int64_t i = 0; i < count && size < MOST_RECORD; i++) record[size++] = (uint8_t)(text ? 'a' + chance(26) : chance(256));
}

static void put_varint(int64_t value) {
    uint64_t number = (uint64_t)value << 1 ^ (value < 0 ? ~(uint64_t)0 : 0);
    for (; number > 0x7F && size < MOST_RECORD; number >>= 7) record[size++] = (uint8_t)(number | 0x80);
    if (size < MOST_RECORD) record[size++] = (uint8_t)number;
}

/* Write what an operation reads. */
static void write_for(int32_t at, int depth) {
    const int32_t *now = code + at;
    int64_t count = (int64_t)chance(4);
    if (depth > DEEPEST - 2) spoilt = 1;
    if (depth > DEEPEST) return;
    switch (now[0]) {
    case FAIL: spoilt = 1; break;
    case TO_END:
        if (code[now[1]] == DECIMAL && count > 3) spoilt = 1;
        put_bytes(count, code[now[1]] == STRING);
        break;
    case SKIP_FIXED: put_bytes(now[1], 0); break;
    case SKIP_VARINT: put_varint((int64_t)seed); break;
    case SKIP_BYTES:
    case BYTES:
    case STRING:
        if (chance(20) == 0) count = 3000;
        put_varint(count), put_bytes(count, now[0] == STRING);
        break;
    case SEQUENCE:
        for (int32_t i = 0; i < now[1]; i++) write_for(now[2 + i], depth + 1);
        break;
    case BRANCH:
        count = (int64_t)chance((uint64_t)now[1]);
        put_varint(count), write_for(now[2 + count], depth + 1);
        break;
    case BOOLEAN: put_bytes(1, 0); break;
    case INT: put_varint((int32_t)seed); break;
    case LONG:
    case INT_AS_FLOAT:
    case INT_AS_DOUBLE: put_varint((int64_t)seed); break;
    case LONG_TIMES: put_varint((int64_t)seed / 2000); break;
    case FLOAT:
    case FLOAT_AS_DOUBLE: put_bytes(4, 0); break;
    case DOUBLE: put_bytes(8, 0); break;
    case FIXED: put_bytes(now[2], 0); break;
    case DECIMAL:
        count = now[2] < 0 ? (int64_t)chance(20) : now[2];
        if (now[2] < 0) put_varint(count);
        if (count > 3) spoilt = 1;
        put_bytes(count, 0);
        break;
    case ENUM:
        count = (int64_t)chance(3);
        put_varint(count), spoilt |= count == 2;
        break;
    case RECORD:
        for (int32_t i = 0; i < now[2]; i++) write_for(now[3 + i], depth + 1);
        break;
    case SKIP_ARRAY:
    case SKIP_MAP:
    case ARRAY:
    case MAP:
        if (chance(40) == 0) count = 60;
        if (count > 0) put_varint(count);
        for (int64_t i = 0; i < count; i++) {
            if (now[0] == MAP || now[0] == SKIP_MAP) put_varint(12), put_bytes(12, 1);
            int64_t before = size;
            write_for(now[now[0] == ARRAY || now[0] == MAP ? 2 : 1], depth + 1);
            /* What takes no bytes is refused long before, as here what is nothing but a default. */
            if (size == before) spoilt = 1;
        }
        put_varint(0);
        break;
    case MEMBER: write_for(now[3], depth + 1); break;
    default: break;
    }
    if (size >= MOST_RECORD) spoilt = 1;
}

static void check(const output_t *out, int32_t at, int64_t length) {
    const column_t *column = out->columns + at;
    assert(column->length == length);
    if (column->kind == NUMBERS) assert(column->bytes == length * column->width);
    if (column->kind == BINARY || column->kind == LIST) {
        assert(column->offsets[0] == 0);
        for (int64_t i = 0; i < length; i++) assert(column->offsets[i] <= column->offsets[i + 1]);
    }
    if (column->kind == BINARY) assert(column->bytes == column->offsets[length]);
    if (column->kind == LIST) check(out, column->first_child, column->offsets[length]);
    if (column->kind == STRUCT)
        for (int32_t i = 0; i < column->children; i++) check(out, column->first_child + i, length);
}

static void one_round(int64_t *decoded, int64_t *declined, int64_t *too_large) {
    columns = 1, codes = 0;
    make_column(0, 3);
    make_record();
    int32_t *exact = malloc((size_t)codes * 4);
    memcpy(exact, code, (size_t)codes * 4);
    int64_t most_bytes = chance(5) ? INT32_MAX : (int64_t)chance(100000);
    output_t *out = ka_new(layout, columns, most_bytes);
    assert(out != NULL || most_bytes < INT32_MAX);
    if (out == NULL) {
        free(exact);
        return;
    }
    program_t programs[] = {{7, NULL, NULL}, {8, exact, constants}};
    int32_t framed = (int32_t)chance(2);
    int64_t null_rows = 0;
    for (int64_t row = 0; row < RECORDS; row++) {
        size = 0, spoilt = 0;
        int32_t id = chance(10) ? 8 : 7 + (int32_t)chance(3);
        if (framed) size = HEAD_BYTES, memset(record, 0, HEAD_BYTES), record[4] = (uint8_t)id, spoilt = id != 8;
        write_for(0, 1);
        if (chance(2)) {
            spoilt = 1;
            for (int changes = 1 + (int)chance(3); changes > 0 && size > 0; changes--) {
                int64_t at = (int64_t)chance((uint64_t)size);
                if (chance(3) == 0) size = at;
                else if (chance(2)) record[at] = (uint8_t)chance(256);
                else record[at] = (uint8_t)(record[at] + 2 * chance(4));
            }
            if (chance(5) == 0) put_bytes(1, 0);
        }
        uint8_t *data = malloc(size ? (size_t)size : 1), bits = (uint8_t)chance(16);
        memcpy(data, record, (size_t)size);
        int32_t offsets[] = {0, (int32_t)size};
        rows_t rows = {offsets, data, chance(2) ? &bits : NULL, (int64_t)chance(4)};
        int is_null = rows.valid != NULL && !(bits >> rows.first & 1);
        int64_t before = out->declined_count;
        int64_t stopped = ka_decode(out, framed ? programs : programs + 1, framed ? 2 : 1, framed, &rows, 0, 1);
        assert(out->room_left >= 0 && out->room_left <= most_bytes);
        if (stopped == 0 && out->status == TOO_LARGE) { /* Python throws all away */
            assert(most_bytes < INT32_MAX);
            ++*too_large;
            free(data);
            break;
        }
        if (stopped == 0) { /* an id that no program has */
            assert(out->status == UNKNOWN_SCHEMA && framed && out->unknown_id != 7 && out->unknown_id != 8 && spoilt);
            null_rows++;
        } else {
            check(out, 0, row + 1 - null_rows);
            assert(out->declined_count == before || spoilt);
            *declined += out->declined_count - before, *decoded += out->declined_count == before && !is_null;
        }
        free(data);
    }
    ka_free(out);
    free(exact);
}

int main(int count, char **arguments) {
    int64_t rounds = count > 1 ? atoll(arguments[1]) : 100000, first = count > 2 ? atoll(arguments[2]) : 0;
    int64_t decoded = 0, declined = 0, too_large = 0;
    for (int64_t round = 0; round < rounds; round++) {
        seed = seed_of(first + round);
        one_round(&decoded, &declined, &too_large);
    }
    printf("%lld rounds, %lld records of Avro, %lld declined, %lld times too large\n", (long long)rounds,
           (long long)decoded, (long long)declined, (long long)too_large);
    return decoded > rounds && declined > rounds && too_large > rounds / 200 ? 0 : 1;
}
