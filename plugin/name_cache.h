// Strings of NCCL as ids, found by address.
//
// The strings of a descriptor (func, datatype, algo, proto) are literals in libnccl, so equal
// addresses mean equal strings for as long as libnccl is mapped. The first callback that meets an
// address looks its text up in the name table; later ones find it here with one or two loads.
//
// Thread: Find any, lock-free, no allocation. Clear when no communicator is left (libnccl may be
// unmapped then and another one mapped in its place). Cost: about 2 ns; about 100 ns for a new
// address.
#ifndef PLUGIN_NAME_CACHE_H_
#define PLUGIN_NAME_CACHE_H_

#include <atomic>
#include <cstdint>
#include <cstring>

#include "metrics/name_table.h"

namespace nccl_pulse {

struct CachedName {
  NameId id;
  uint8_t element_bytes;  // of a data type, else 1
};

class NameCache {
 public:
  explicit NameCache(NameTable table) : table_(table) {}

  CachedName Find(const char* text) {
    if (text == nullptr) return {kNoName, 1};
    const Entry& first = entries_[Hash(text)];
    if (first.address.load(std::memory_order_acquire) == text) {  // value comes before it
      const uint32_t value = first.value.load(std::memory_order_relaxed);
      if (value != 0) return Unpack(value);
    }
    return Probe(text);
  }
  void Clear() {
    for (Entry& entry : entries_) {
      entry.value.store(0, std::memory_order_relaxed);
      entry.address.store(nullptr,
                          std::memory_order_release);  // a finder sees no address with an old value
    }
  }

 private:
  static constexpr int kEntries = 256;
  static constexpr int kProbes = 16;
  struct Entry {
    std::atomic<const char*> address{nullptr};
    std::atomic<uint32_t> value{0};  // 1 << 16 | element_bytes << 8 | id; 0: not yet
  };

  static uint32_t Hash(const char* text) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(text) * 0x9e3779b97f4a7c15ULL >> 56);
  }
  static CachedName Unpack(uint32_t value) {
    return {static_cast<NameId>(value & 0xff), static_cast<uint8_t>(value >> 8 & 0xff)};
  }

  [[gnu::cold, gnu::noinline]] CachedName Probe(const char* text) {
    uint32_t at = Hash(text);
    for (int probe = 0; probe < kProbes; ++probe) {
      Entry& entry = entries_[at];
      const char* address = entry.address.load(std::memory_order_acquire);  // value comes before it
      if (address == text) {
        const uint32_t value = entry.value.load(std::memory_order_relaxed);
        if (value != 0) return Unpack(value);
        break;  // being entered by another thread right now
      }
      if (address == nullptr) {
        return Enter(entry, text);
      }
      at = (at + 1) % kEntries;
    }
    return Look(text);
  }

  __attribute__((noinline)) CachedName Look(const char* text) {
    return {table_.Intern(text), ElementBytes(text)};
  }

  __attribute__((noinline)) CachedName Enter(Entry& entry, const char* text) {
    const CachedName name = Look(text);
    if (name.id == kOtherName)
      return name;  // may be a passing state of the table: ask again next time
    const char* expected = nullptr;
    // Relaxed: the value is published by its own store; a finder that comes between falls back to
    // Look.
    if (entry.address.compare_exchange_strong(expected, text, std::memory_order_relaxed)) {
      entry.value.store(1u << 16 | uint32_t{name.element_bytes} << 8 | name.id,
                        std::memory_order_release);
    }
    return name;
  }

  // ncclFloat32 and the like: the digits say the bits (nccl.h 2.28, ncclDataType_t). ncclUint8 has
  // no name in the callbacks ("Unknown"), so what has no digits is one byte.
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
  Entry entries_[kEntries];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_NAME_CACHE_H_
