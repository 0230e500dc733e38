/* liblzma as a decoder of .xz and .lzma data, for Linux with GCC or Clang: no encoder, no threads.
 *
 * TUKLIB_FAST_UNALIGNED_ACCESS stays undefined: it only speeds up parts that are not built, and
 * without it the sources stay free of undefined behaviour.
 */
#ifndef NCCL_PULSE_THIRD_PARTY_XZ_CONFIG_H_
#define NCCL_PULSE_THIRD_PARTY_XZ_CONFIG_H_

/* Integrity checks: whatever `xz` writes can be verified. */
#define HAVE_CHECK_CRC32 1
#define HAVE_CHECK_CRC64 1
#define HAVE_CHECK_SHA256 1

/* Filters: the two LZMA variants, and the branch filters for the machines we run on. */
#define HAVE_DECODER_LZMA1 1
#define HAVE_DECODER_LZMA2 1
#define HAVE_DECODER_X86 1
#define HAVE_DECODER_ARM64 1

/* The C library and the compiler. */
#define HAVE_INTTYPES_H 1
#define HAVE_STDBOOL_H 1
#define HAVE_STDINT_H 1
#define HAVE__BOOL 1
#define HAVE___BUILTIN_ASSUME_ALIGNED 1
#define HAVE___BUILTIN_BSWAPXX 1
#define HAVE_VISIBILITY 0
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define TUKLIB_SYMBOL_PREFIX lzma_

#endif /* NCCL_PULSE_THIRD_PARTY_XZ_CONFIG_H_ */
