/* What all C files share: a function that reports the structures that a file shares with Python. */

#ifndef KAFKA_GROUP_NATIVE_H
#define KAFKA_GROUP_NATIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Write the numbers with which this file was built, mainly sizes of structures; return how many there are.  Python
 * compares them before it calls anything else (native_library.py). */
#define TELL_SHARED(name, ...) \
    int32_t name(int64_t *numbers, int32_t count) { \
        static const int64_t shared[] = {__VA_ARGS__}; \
        const int32_t have = (int32_t)(sizeof shared / sizeof *shared); \
        for (int32_t i = 0; i < have && i < count; i++) numbers[i] = shared[i]; \
        return have; \
    }

#endif
