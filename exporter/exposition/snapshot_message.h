// Writes and reads /api/v1/snapshots, for `pulse diagnose`: a protobuf message with the parts of
// the endpoint's SnapshotSet that the diagnosis reads.
//
//   diagnosis of the set as read == diagnosis of the set as written, for all communicators
//
// The message omits data that no diagnosis reads:
//   - latencies, except the total time of calls;
//   - bytes and data types, except in the order of last calls of stalled communicators;
//   - algorithms;
//   - counts of untimed operations, except of calls that launched no work;
//   - network steps;
//   - the exporter's own statistics.
//
// Times are sent as ages: nanoseconds before the endpoint wrote the message. The reader subtracts
// an age from the time of writing by its own clock, so clock differences between nodes do not
// matter. The time of writing by the endpoint's clock is also included.
//
// Versions: readers skip unknown fields, so a new field needs no new version; a field with a new
// meaning does. A reader refuses other versions, and its error names the version. The message
// begins with a mark that distinguishes it from other content.
//
// Thread: any, no state. Cost of writing: docs/prometheus.md#alerts-on-hangs-pulse-watch. Reading
// trusts no input: memory is bounded, texts are made printable, and numbers are as untrusted as a
// segment's.
#ifndef EXPORTER_EXPOSITION_SNAPSHOT_MESSAGE_H_
#define EXPORTER_EXPOSITION_SNAPSHOT_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/base/cpu_budget.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

inline constexpr uint32_t kSnapshotMessageVersion = 1;
inline constexpr std::string_view kSnapshotMessageType = "application/x-protobuf";

struct SnapshotMessage {
  SnapshotSet set;
  int64_t written_realtime_ns = 0;  // time of writing, by the endpoint's clock
  int64_t hang_after_ns = 0;        // the endpoint's threshold, for processes that report none
  uint64_t bytes = 0;               // approximate memory of the set
};

std::string WriteSnapshots(const SnapshotSet& set, int64_t now_realtime_ns, int64_t hang_after_ns);

// Returns the endpoint's time of writing; 0: not a message.
int64_t WrittenRealtimeNs(std::string_view text);

// Reads a message. `written_realtime_ns`: time of writing by the reader's clock, to convert ages;
// empty: uses the endpoint's clock. `most_bytes`: limit of the set's memory. `share`: limit of CPU
// time; null: none. On failure returns false, empties the message, and sets `error` to a noun
// phrase, such as "damaged snapshots".
bool ReadSnapshots(std::string_view text, std::optional<int64_t> written_realtime_ns,
                   uint64_t most_bytes, SnapshotMessage* message, std::string* error,
                   const WorkBudget::Share* share = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_SNAPSHOT_MESSAGE_H_
