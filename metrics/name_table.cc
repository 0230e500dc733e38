#include "metrics/name_table.h"

#include <cstring>

namespace nccl_pulse {
namespace {

// The strings that callbacks can carry (NCCL 2.30, src/misc/utils.cc and
// src/include/plugin/profiler). The first seven have fixed ids (name_table.h).
constexpr const char* kKnownNames[] = {"AllReduce",
                                       "AllGather",
                                       "ReduceScatter",
                                       "AlltoAll",
                                       "Gather",
                                       "Scatter",
                                       "Grouped",
                                       "Broadcast",
                                       "Reduce",
                                       "Send",
                                       "Recv",
                                       "SendRecv",
                                       "PutSignal",
                                       "Signal",
                                       "WaitSignal",
                                       "RING",
                                       "TREE",
                                       "NVLS",
                                       "NVLS_TREE",
                                       "PAT",
                                       "COLLNET_DIRECT",
                                       "COLLNET_CHAIN",
                                       "LL",
                                       "LL128",
                                       "SIMPLE",
                                       "ncclInt8",
                                       "ncclInt32",
                                       "ncclUint32",
                                       "ncclInt64",
                                       "ncclUint64",
                                       "ncclFloat16",
                                       "ncclFloat32",
                                       "ncclFloat64",
                                       "ncclBfloat16",
                                       "ncclFloat8e4m3",
                                       "ncclFloat8e5m2",
                                       "Unknown"};

struct CleanName {
  char text[sizeof(NameEntry::text)];
};

CleanName Clean(const char* text) {
  CleanName clean{};
  for (size_t i = 0; i + 1 < sizeof(clean.text) && text[i] != '\0'; ++i) {
    clean.text[i] = text[i] > 0x20 && text[i] < 0x7f ? text[i] : '_';
  }
  return clean;
}

}  // namespace

void NameTable::Initialize() {
  const auto enter = [this](int id, const char* text) {
    const CleanName clean = Clean(text);
    memcpy(entries_[id].text, clean.text, sizeof(clean.text));
    entries_[id].state.store(NameState::kValid, std::memory_order_release);  // publishes the text
  };
  enter(kNoName, "");
  enter(kOtherName, "other");
  enter(kOverflowName, "overflow");
  int id = kFirstNcclName;
  for (const char* name : kKnownNames) enter(id++, name);
}

NameId NameTable::Intern(const char* text) {
  if (text == nullptr || text[0] == '\0') return kNoName;
  const CleanName clean = Clean(text);
  // Starts at "other", so that a name from NCCL that equals one of ours gets the same label.
  for (int id = kOtherName; id < kMaxNames; ++id) {
    NameEntry& entry = entries_[id];
    NameState state = entry.state.load(std::memory_order_acquire);  // sees the text, see above
    if (state == NameState::kFree) {
      // Acquire on failure: if another thread published here meanwhile, its text is compared below.
      if (entry.state.compare_exchange_strong(state, NameState::kWriting,
                                              std::memory_order_acquire)) {
        memcpy(entry.text, clean.text, sizeof(clean.text));
        entry.state.store(NameState::kValid, std::memory_order_release);  // publishes the text
        return static_cast<NameId>(id);
      }
    }
    // Another thread is writing here, perhaps this very name. Waiting is not allowed, and a second
    // entry would double the name, so this one event goes to "other".
    if (state == NameState::kWriting) return kOtherName;
    if (memcmp(entry.text, clean.text, sizeof(clean.text)) == 0) return static_cast<NameId>(id);
  }
  return kOtherName;
}

}  // namespace nccl_pulse
