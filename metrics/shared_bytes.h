// CopyToShared and CopyFromShared copy plain bytes (identity strings) that another thread or
// process may be writing. Each byte is a relaxed atomic: a reader can get a mixture of two strings,
// but no undefined behavior. It drops a mixture of two communicators' strings, because the record's
// generation has changed.
//
// Thread: any. Cost: one load and store per byte. Callbacks use it once (RecordWriter::Learn).
#ifndef METRICS_SHARED_BYTES_H_
#define METRICS_SHARED_BYTES_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccl_pulse {

// Writes `text` zero-terminated into field[0..N), cut to N - 1 bytes, and zeroes the rest.
template <size_t N>
void CopyToShared(char (&field)[N], std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    const char c = i < text.size() && i + 1 < N ? text[i] : '\0';
    __atomic_store_n(&field[i], c,
                     __ATOMIC_RELAXED);  // ordered by the record's state or generation
  }
}

// Reads up to the first zero. Replaces bytes that are control characters or not well-formed UTF-8
// by '?': the text becomes a label value.
std::string CopyFromShared(const char* field, size_t size);

template <size_t N>
std::string CopyFromShared(const char (&field)[N]) {
  return CopyFromShared(field, N);
}

}  // namespace nccl_pulse

#endif  // METRICS_SHARED_BYTES_H_
