// TextHash is a hash (FNV-1a) that is the same in every process and release: for names that other
// programs derive too, and for ids in files. Not for tables filled with untrusted keys.
//
// Thread: any, no state. Cost: a multiplication for each byte.
#ifndef EXPORTER_BASE_TEXT_HASH_H_
#define EXPORTER_BASE_TEXT_HASH_H_

#include <cstdint>
#include <string_view>

namespace nccl_pulse {

constexpr uint64_t TextHash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The published value (draft-eastlake-fnv).
static_assert(TextHash("a") == 0xaf63dc4c8601ec8cULL);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_TEXT_HASH_H_
