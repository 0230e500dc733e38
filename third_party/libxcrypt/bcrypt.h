/* The one function of crypt-bcrypt.c that is built.
 *
 * Hashes `phrase` as `setting` ("$2b$10$" and 22 characters of salt; what follows them is ignored)
 * says, and writes 60 characters and a 0 to `output`, which is left alone when `setting` is not
 * one. $2a$, $2b$ and $2y$ are told apart by `setting`. Of `phrase` at most 72 bytes count; it ends
 * with its first 0. `scratch` is aligned as for uint32_t, and no secret is wiped from it.
 *
 * Thread: any. Cost: 2^cost times 0.06 ms or so.
 */
#ifndef NCCL_PULSE_THIRD_PARTY_BCRYPT_H_
#define NCCL_PULSE_THIRD_PARTY_BCRYPT_H_

#include <stddef.h>
#include <stdint.h>

#define BCRYPT_OUTPUT_SIZE 61
#define BCRYPT_SCRATCH_SIZE 8192

#ifdef __cplusplus
extern "C" {
#endif

void crypt_bcrypt_rn(const char* phrase, size_t phrase_size, const char* setting,
                     size_t setting_size, uint8_t* output, size_t output_size, void* scratch,
                     size_t scratch_size);

#ifdef __cplusplus
}
#endif

#endif /* NCCL_PULSE_THIRD_PARTY_BCRYPT_H_ */
