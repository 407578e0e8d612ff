/* CRC-32C, the checksum of record batches. */

#ifndef KAFKA_GROUP_CRC32C_H
#define KAFKA_GROUP_CRC32C_H

#include <stdint.h>

/* Call this once per process, before anything else. */
void kc_init(void);

/* Return the CRC-32C of some bytes and more; `crc` is that of the bytes before, 0 at first.  With `portable`, compute it
 * without a special instruction of the processor. */
uint32_t kc_crc(uint32_t crc, const uint8_t *data, int64_t size, int portable);

#endif
