/* Computes CRC-32C, with an instruction of the processor if it has one. */

#include "_crc32c.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

static uint32_t crc_table[8][256];

static void make_crc_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        crc_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc_table[k][n] = crc_table[k - 1][n] >> 8 ^ crc_table[0][crc_table[k - 1][n] & 0xff];
}

/* Compute CRC-32C with tables, eight bytes at a time. */
static uint32_t crc_portable(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^ crc_table[5][low >> 16 & 0xff] ^
              crc_table[4][low >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^
              crc_table[0][data[7]];
    }
    while (size-- > 0) crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
/* Deliberate: no intrinsics.  gcc has them in "sse4.2", and clang in "crc32", which old versions do not know. */
static uint32_t crc_hardware(uint32_t before, const uint8_t *data, size_t size) {
    uint64_t crc = ~before;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t eight;
        memcpy(&eight, data, 8);
        __asm__("crc32q %1, %0" : "+r"(crc) : "r"(eight));
    }
    for (; size > 0; data++, size--) __asm__("crc32b %1, %k0" : "+r"(crc) : "r"(*data));
    return ~(uint32_t)crc;
}
/* Deliberate: not __builtin_cpu_supports, which always returns false if the compiler's run-time library lacks a part,
 * like zig's. */
static int has_hardware(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
}
#else
static uint32_t crc_hardware(uint32_t crc, const uint8_t *data, size_t size) { return crc_portable(crc, data, size); }
static int has_hardware(void) { return 0; }
#endif

static int crc_in_hardware; /* set once: on a virtual machine, the check may take as long as a small batch */

void kc_init(void) {
    make_crc_table();
    crc_in_hardware = has_hardware();
}

uint32_t kc_crc(uint32_t crc, const uint8_t *data, int64_t size, int portable) {
    return !portable && crc_in_hardware ? crc_hardware(crc, data, (size_t)size) : crc_portable(crc, data, (size_t)size);
}

/* Return whether an instruction of this processor computes the CRC-32C. */
int kc_in_hardware(void) { return crc_in_hardware; }
