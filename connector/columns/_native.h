/* The source of messages, and a function that reports the structures that a file shares with Python. */

#ifndef KAFKA_GROUP_NATIVE_H
#define KAFKA_GROUP_NATIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* rd_kafka_message_t, whose layout is part of librdkafka's stable interface. */
typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload; /* the text of an event */
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} message_t;

/* Functions of librdkafka, or of another source that offers the same. */
typedef struct {
    ssize_t (*consume_batch)(void *queue, int timeout_ms, message_t **messages, size_t size);
    void (*destroy)(message_t *);
    int64_t (*timestamp)(const message_t *, int *type);
    int (*headers)(const message_t *, void **headers);
    size_t (*header_count)(const void *headers);
    int (*header_at)(const void *headers, size_t index, const char **key, const void **value, size_t *size);
    const char *(*topic_name)(const void *topic);
    const char *(*error_text)(const message_t *);
    /* Replaces header_at for keys that do not end with a zero.  Called in order. */
    int (*sized_header_at)(const void *headers, size_t index, const char **key, size_t *key_size, const void **value,
                           size_t *size);
} source_t;

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
