// NameCache finds the ID of one of NCCL's strings by its address.
//
// The strings in descriptors (func, datatype, algo, proto) are literals in libnccl, so equal
// addresses mean equal strings while libnccl is mapped. The first callback with an address looks
// the text up in the name table. Later ones find address and ID in one word of this cache.
//
// Thread: Find any; lock-free, no allocation. Call Clear when no communicator is left: libnccl may
// be unmapped then, and another one mapped at its place.
// Cost: about 2 ns; about 100 ns for a new address.
#ifndef PLUGIN_TRACKER_NAME_CACHE_H_
#define PLUGIN_TRACKER_NAME_CACHE_H_

#include <cstdint>
#include <cstring>

#include "metrics/atomic_cell.h"
#include "metrics/name_table.h"

namespace nccl_pulse {

struct CachedName {
  NameId id;
  uint8_t element_bytes;  // of a data type; otherwise 1
};

class NameCache {
 public:
  explicit NameCache(NameTable table) : table_(table) { Clear(); }

  CachedName Find(const char* text) {
    const uint64_t word = entries_[Hash(text)].load();
    if (__builtin_expect(IsOf(word, text), 1)) return Unpack(word);
    return Probe(text);
  }
  void Clear() {
    // The null pointer's entry always holds kNull, because a free entry would match null.
    for (auto& entry : entries_) {
      const bool is_null = &entry == &entries_[Hash(nullptr)];
      entry.store(is_null ? kNull : 0);
    }
  }

 private:
  static constexpr int kEntries = 256;
  static constexpr int kProbes = 16;
  // A word is address << 16 | element_bytes << 8 | id; 0: free. Addresses above 48 bits, which
  // Linux only maps on request, are not cached.
  static constexpr int kAddressShift = 16;
  static constexpr uint64_t kNull = 1 << 8 | kNoName;

  static bool IsOf(uint64_t word, const char* text) {
    return word >> kAddressShift == reinterpret_cast<uintptr_t>(text);
  }
  static uint32_t Hash(const char* text) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(text) * 0x9e3779b97f4a7c15ULL >> 56);
  }
  static CachedName Unpack(uint64_t word) {
    return {static_cast<NameId>(word & 0xff), static_cast<uint8_t>(word >> 8 & 0xff)};
  }

  [[gnu::cold, gnu::noinline]] CachedName Probe(const char* text) {
    uint32_t at = Hash(text);
    for (int probe = 0; probe < kProbes; ++probe) {
      const uint64_t word = entries_[at].load();
      if (IsOf(word, text)) return Unpack(word);
      if (word == 0) return Enter(entries_[at], text);
      at = (at + 1) % kEntries;
    }
    return Look(text);
  }

  __attribute__((noinline)) CachedName Look(const char* text) {
    return {table_.Intern(text), ElementBytes(text)};
  }

  __attribute__((noinline)) CachedName Enter(Relaxed<uint64_t>& entry, const char* text) {
    const CachedName name = Look(text);
    if (name.id == kOtherName)
      return name;  // may be a transient state of the table: look it up again next time
    const uint64_t word = uint64_t{reinterpret_cast<uintptr_t>(text)} << kAddressShift |
                          uint64_t{name.element_bytes} << 8 | name.id;
    uint64_t free = 0;
    // If another thread has taken the entry, the next lookup tries again.
    if (IsOf(word, text)) entry.replace(free, word);
    return name;
  }

  // Returns the element size of a data type, from the bits in names like ncclFloat32 (nccl.h 2.28,
  // ncclDataType_t). Names without digits have one byte: NCCL passes "Unknown" for ncclUint8.
  static uint8_t ElementBytes(const char* text) {
    if (strncmp(text, "nccl", 4) != 0) return 1;
    const char* digits = text + 4;
    while (*digits != '\0' && (*digits < '0' || *digits > '9')) ++digits;
    uint32_t bits = 0;
    while (*digits >= '0' && *digits <= '9')
      bits = bits * 10 + static_cast<uint32_t>(*digits++ - '0');
    return bits >= 8 && bits <= 1024 ? static_cast<uint8_t>(bits / 8) : 1;
  }

  NameTable table_;
  Relaxed<uint64_t> entries_[kEntries];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_NAME_CACHE_H_
