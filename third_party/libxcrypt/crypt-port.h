/* In place of the library's own header of this name: the little that crypt-bcrypt.c needs of it. */
#ifndef NCCL_PULSE_THIRD_PARTY_CRYPT_PORT_H_
#define NCCL_PULSE_THIRD_PARTY_CRYPT_PORT_H_

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bcrypt.h"

#define INCLUDE_bcrypt 1

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define XCRYPT_USE_BIGENDIAN 1
#endif

#define ARG_UNUSED(argument) argument __attribute__((unused))

#define CRYPT_OUTPUT_SIZE BCRYPT_OUTPUT_SIZE
#define ALG_SPECIFIC_SIZE BCRYPT_SCRATCH_SIZE

void gensalt_bcrypt_rn(unsigned long count, const uint8_t* random, size_t random_size,
                       uint8_t* output, size_t output_size);

#endif /* NCCL_PULSE_THIRD_PARTY_CRYPT_PORT_H_ */
