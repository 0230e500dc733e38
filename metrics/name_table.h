// NameTable maps NCCL's strings that become label values (op, datatype, algo, proto) to small
// integers.
//
// Append only: an id means the same string for the life of the segment, so a series key can hold
// it. Known NCCL names are entered when the table is created. The first callback that meets a name
// of a later NCCL appends it.
//
// Thread: Intern any, lock-free, no allocation. Cost: a linear search, up to 128 short compares.
// Callbacks use a cache by pointer (plugin/tracker/name_cache.h).
#ifndef METRICS_NAME_TABLE_H_
#define METRICS_NAME_TABLE_H_

#include <cstdint>

#include "metrics/segment_layout.h"

namespace nccl_pulse {

using NameId = uint8_t;
inline constexpr NameId kNoName = 0;        // "": NCCL passed none
inline constexpr NameId kOtherName = 1;     // "other": the table is full, or being written
inline constexpr NameId kOverflowName = 2;  // "overflow": series past the budget
inline constexpr NameId kFirstNcclName = 3;
// Operations with their own rule for bus bytes (plugin/tracker/bus_bytes.h).
inline constexpr NameId kAllReduceName = 3;
inline constexpr NameId kAllGatherName = 4;
inline constexpr NameId kReduceScatterName = 5;
inline constexpr NameId kAlltoAllName = 6;
inline constexpr NameId kGatherName = 7;
inline constexpr NameId kScatterName = 8;
// A launch of several operations that was timed only as a whole.
inline constexpr NameId kGroupedName = 9;
// Operations with a root or a peer.
inline constexpr NameId kBroadcastName = 10;
inline constexpr NameId kReduceName = 11;
inline constexpr NameId kSendName = 12;
inline constexpr NameId kReceiveName = 13;

// Returns the operation's row in tables with one row per NCCL operation. All others share the last.
constexpr uint32_t OperationRowOf(uint32_t op) {
  const uint32_t row = op - kFirstNcclName;  // wraps to a large number for smaller ids
  return row < kOperationRows ? row : kOperationRows - 1;
}

// True if no rank can leave the operation before all have entered. (A Broadcast's root can, and a
// Reduce's leaves.)
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

  // Returns the id of `text` (null: kNoName). Reads at most 27 characters and cuts longer names.
  // Replaces spaces and characters outside printable ASCII by '_'.
  NameId Intern(const char* text);

 private:
  NameEntry* entries_;
};

}  // namespace nccl_pulse

#endif  // METRICS_NAME_TABLE_H_
