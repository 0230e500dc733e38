#include "metrics/name_table.h"

namespace nccl_pulse {
namespace {

// Strings that callbacks can carry (NCCL 2.30, src/misc/utils.cc and src/include/plugin/profiler).
// The first eleven have fixed ids (name_table.h).
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

NameText Clean(const char* text) {
  NameText clean{};
  for (size_t i = 0; i + 1 < sizeof(clean.text) && text[i] != '\0'; ++i) {
    clean.text[i] = text[i] > 0x20 && text[i] < 0x7f ? text[i] : '_';
  }
  return clean;
}

}  // namespace

void NameTable::Initialize() {
  entries_[kNoName].Fill(Clean(""));
  entries_[kOtherName].Fill(Clean("other"));
  entries_[kOverflowName].Fill(Clean("overflow"));
  int id = kFirstNcclName;
  for (const char* name : kKnownNames) entries_[id++].Fill(Clean(name));
}

NameId NameTable::Intern(const char* text) {
  if (text == nullptr || text[0] == '\0') return kNoName;
  const NameText name = Clean(text);
  // Starts at "other", so that an NCCL name equal to one of ours gets the same label.
  for (int id = kOtherName; id < kMaxNames; ++id) {
    const NameEntry::Entered entered = entries_[id].Enter(name);
    if (entered == NameEntry::Entered::kHere) return static_cast<NameId>(id);
    // Another thread is writing here, perhaps this very name. Waiting is not allowed, and a second
    // entry would duplicate the name, so this event goes to "other".
    if (entered == NameEntry::Entered::kBusy) return kOtherName;
  }
  return kOtherName;
}

}  // namespace nccl_pulse
