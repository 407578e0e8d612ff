/* Random and damaged messages of Protobuf through one program with all operations, under the sanitizers.
 *
 * Each record lies in memory of exactly its size.
 */

#include <assert.h>
#include <stdio.h>

#include "_rounds.h"
#include "../../connector/formats/_formats.c"

enum { COLUMNS = 13, MOST_RECORD = 4096 };

/* Columns: 0 the message; 1 number, 2 text, 3 numbers, 4 entries, 5 time, 6 enum, 7 decimal; 8 of 3; 9 of 4; 10 key and
 * 11 value, a message with 12. */
static const int32_t layout[4 * COLUMNS] = {
    STRUCT, 0, 1, 7, NUMBERS, 4, 0, 0, BINARY, 0, 0, 0, LIST, 0, 8, 1, LIST, 0, 9, 1, NUMBERS, 8, 0, 0, BINARY, 0, 0, 0,
    NUMBERS, 16, 0, 0, NUMBERS, 8, 0, 0, STRUCT, 0, 10, 2, BINARY, 0, 0, 0, STRUCT, 0, 12, 1, BITS, 0, 0, 0,
};

enum { FAILING = 6, NULLS = 7, NUMBER_OP = 9, TEXT_OP = 12, PACKED_OP = 15, TIME_OP = 18, ENUM_OP = 21, DECIMAL_OP = 28,
       FLAG_OP = 31, KEY_OP = 34, NO_NUMBER = 37, NO_FLAG = 41, NO_KEY = 45, NO_VALUE = 49, VALUE_OP = 53, ENTRY_OP = 64,
       ROOT_OP = 82, NULL_6 = 135, NULL_7 = 137 };

static const int32_t code[] = {
    PROTO_RECORD, 0, ROOT_OP, 8, 2, 1, FAIL, NULL_VALUE, 2,
    PROTO_NUMBER, 1, SINT32, PROTO_TEXT, 2, 1, PROTO_NUMBER, 8, SINT64, PROTO_TIME, 5, 0,
    PROTO_ENUM, 6, 1, 1, 3, 10, 2, PROTO_NUMBER, 7, FIXED64, PROTO_NUMBER, 12, VARINT, PROTO_TEXT, 10, 1,
    DEFAULT, NUMBER_OP, 0, 1, DEFAULT, FLAG_OP, 0, 1, DEFAULT, KEY_OP, 0, 1, DEFAULT, VALUE_OP, 0, 1,
    PROTO_MESSAGE, 11, 0, 1, 1, WIRE_VARINT, SINGLE, 12, FLAG_OP, NO_FLAG, -1,
    PROTO_MESSAGE, 9, 1, 2, 1, WIRE_BYTES, SINGLE, 10, KEY_OP, NO_KEY, -1, 2, WIRE_BYTES, MERGED, 11, VALUE_OP, NO_VALUE, -1,
    PROTO_MESSAGE, 0, 0, 7, 1, WIRE_VARINT, SINGLE, 1, NUMBER_OP, NO_NUMBER, -1,
    2, WIRE_BYTES, SINGLE, 2, TEXT_OP, NULLS, 0, 3, WIRE_VARINT, REPEATED, 3, PACKED_OP, 0, -1,
    4, WIRE_BYTES, ENTRIES, 4, ENTRY_OP, 0, -1, 5, WIRE_BYTES, MERGED, 5, TIME_OP, FAILING, -1,
    6, WIRE_VARINT, SINGLE, 6, ENUM_OP, NULL_6, 0, 9, WIRE_64, SINGLE, 7, DECIMAL_OP, NULL_7, -1,
    NULL_VALUE, 6, NULL_VALUE, 7,
};
static const uint8_t constants[] = {0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 'O', 'K'};

static uint64_t seed;
static uint64_t chance(uint64_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

int main(int count, char **arguments) {
    static const char *const parts[] = {
        "\x08\x05", "\x12\x02\xc3\xa4", "\x18\x07", "\x1a\x03\x01\x02\x03", "\x22\x08\x0a\x02kk\x12\x02\x08\x01",
        "\x22\x03\x0a\x01x", "\x2a\x04\x08\x05\x10\x07", "\x2a\x01\x08", "\x30\x03", "\x30\x09", "\x49" "abcdefgh", "\xf8\x01\x05",
        "\x12\x01\xff", "\x22\x80\x80\x01", "\x4b", "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x12\x7f",
    };
    int64_t rounds = count > 1 ? atoll(arguments[1]) : 100000, first = count > 2 ? atoll(arguments[2]) : 0, decoded = 0, declined = 0, too_large = 0;
    int32_t *exact = malloc(sizeof code);
    memcpy(exact, code, sizeof code);
    assert(sizeof code / 4 == NULL_7 + 2 && code[NULL_6] == NULL_VALUE);
    assert(code[ROOT_OP] == PROTO_MESSAGE && code[ENTRY_OP] == PROTO_MESSAGE && code[VALUE_OP] == PROTO_MESSAGE);
    for (int64_t round = 0; round < rounds; round++) {
        seed = seed_of(first + round);
        program_t program = {8, exact, constants};
        output_t *out = ka_new(layout, COLUMNS, chance(5) ? INT32_MAX : 12000 + (int64_t)chance(20000));
        assert(out != NULL);
        for (int row = 0; row < 12; row++) {
            uint8_t record[MOST_RECORD] = {0, 0, 0, 0, 8, 0};
            size_t size = 6;
            if (chance(9)) memcpy(record + size, "\x2a\x02\x08\x05", 4), size += 4;
            for (uint64_t more = chance(40); more > 0; more--) {
                const char *part = parts[chance(chance(30) ? 4 : sizeof parts / sizeof *parts)];
                memcpy(record + size, part, strlen(part)), size += strlen(part);
            }
            for (uint64_t changes = chance(2) ? 0 : chance(4); changes > 0; changes--) {
                if (chance(3) == 0) size = chance(size + 1);
                else if (size) record[chance(size)] = (uint8_t)chance(256);
            }
            uint8_t *data = malloc(size ? size : 1);
            memcpy(data, record, size);
            int32_t offsets[] = {0, (int32_t)size};
            rows_t rows = {offsets, data, NULL, 0};
            int64_t before = out->declined_count, length = out->columns->length;
            int64_t stopped = ka_decode(out, &program, 1, 1, &rows, 0, 1);
            free(data);
            if (stopped == 0 && out->status == TOO_LARGE) {
                too_large++;
                break;
            }
            if (stopped == 0) continue; /* another id */
            for (int i = 0; i <= 7; i++) assert(out->columns[i].length == length + 1);
            assert(out->columns[8].length == out->columns[3].offsets[length + 1]);
            for (int i = 9; i < COLUMNS; i++) assert(out->columns[i].length == out->columns[4].offsets[length + 1]);
            declined += out->declined_count - before, decoded += out->declined_count == before;
        }
        ka_free(out);
    }
    free(exact);
    printf("%lld rounds, %lld messages of Protobuf, %lld declined, %lld times too large\n", (long long)rounds,
           (long long)decoded, (long long)declined, (long long)too_large);
    return decoded > rounds && declined > rounds && too_large > rounds / 100 ? 0 : 1;
}
