// The strings of NCCL that become label values (op, datatype, algo, proto), as small integers.
//
// Append only: an id means the same string for the life of the segment, so a series key can hold
// it. NCCL's known names are entered when the table is made; a name that a later NCCL invents is
// appended by the first callback that meets it.
//
// Thread: Intern any, lock-free, no allocation. Cost: a search by content, up to 128 short
// compares; callbacks go through a cache by pointer (plugin/tracker/name_cache.h).
#ifndef METRICS_NAME_TABLE_H_
#define METRICS_NAME_TABLE_H_

#include <cstdint>

#include "metrics/segment_layout.h"

namespace nccl_pulse {

using NameId = uint8_t;
inline constexpr NameId kNoName = 0;  // "": NCCL gave none
inline constexpr NameId kOtherName =
    1;  // "other": the table was full, or is being written right now
inline constexpr NameId kOverflowName = 2;  // "overflow": series past the budget
inline constexpr NameId kFirstNcclName = 3;
// Operations whose bus bytes have a rule of their own (plugin/tracker/bus_bytes.h).
inline constexpr NameId kAllReduceName = 3;
inline constexpr NameId kAllGatherName = 4;
inline constexpr NameId kReduceScatterName = 5;
inline constexpr NameId kAlltoAllName = 6;
inline constexpr NameId kGatherName = 7;
inline constexpr NameId kScatterName = 8;
// A launch of several operations that only the launch as a whole could time.
inline constexpr NameId kGroupedName = 9;
// Operations with a root, or a peer.
inline constexpr NameId kBroadcastName = 10;
inline constexpr NameId kReduceName = 11;
inline constexpr NameId kSendName = 12;
inline constexpr NameId kReceiveName = 13;

// Its row in tables that have one for each of NCCL's operations; all others share the last.
constexpr uint32_t OperationRowOf(uint32_t op) {
  const uint32_t row = op - kFirstNcclName;  // very large for what comes before
  return row < kOperationRows ? row : kOperationRows - 1;
}

// No rank can leave it before all have come. (A Broadcast's root can, and a Reduce's leaves.)
constexpr bool WaitsForAllRanks(uint32_t op) {
  return op == kAllReduceName || op == kAllGatherName || op == kReduceScatterName ||
         op == kAlltoAllName;
}

class NameTable {
 public:
  // `entries` must stay mapped for the life of this object.
  explicit NameTable(NameEntry* entries) : entries_(entries) {}

  // Enters the fixed ids and NCCL's known names. Once, before any Intern.
  void Initialize();

  // Id of `text` (null: kNoName). Reads at most 27 characters; longer names are cut, characters
  // outside printable ASCII become '_'.
  NameId Intern(const char* text);

 private:
  NameEntry* entries_;
};

}  // namespace nccl_pulse

#endif  // METRICS_NAME_TABLE_H_
