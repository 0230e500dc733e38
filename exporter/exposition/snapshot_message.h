// What an endpoint knows, for `pulse diagnose`: /api/v1/snapshots, a protobuf message from which
// the SnapshotSet of the endpoint can be rebuilt as far as the diagnosis reads it.
//
//   diagnosis of what was read == diagnosis of what was written, on all communicators
//
// Left out is what no diagnosis reads: of the latencies all but what calls took in all; bytes and
// data types (but for the order of the last calls of communicators that make no progress),
// algorithms, counts of untimed operations (but for calls that made nothing), network steps, and
// what the exporter says of itself.
//
// Times travel as ages: nanoseconds before the moment at which the endpoint wrote the message. The
// reader puts that moment where its own now is, so clocks that differ between nodes do not matter.
// The endpoint's own time is there, too.
//
// Versions: a reader skips fields that it does not know, so a new field takes no new version. A
// change of meaning does; a reader refuses a version that is not its own, and says which it met.
// The message begins with a mark by which anything else is told from it.
//
// Thread: any, no state. Cost of writing: docs/prometheus.md#alerts-on-hangs-pulse-watch.
// Reading trusts nothing: it is bounded in memory, texts are made printable, numbers are taken as
// they come, as those of a segment are.
#ifndef EXPORTER_EXPOSITION_SNAPSHOT_MESSAGE_H_
#define EXPORTER_EXPOSITION_SNAPSHOT_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/base/work_budget.h"
#include "exporter/diagnosis/snapshot_set.h"

namespace nccl_pulse {

inline constexpr uint32_t kSnapshotMessageVersion = 1;
inline constexpr std::string_view kSnapshotMessageType = "application/x-protobuf";

struct SnapshotMessage {
  SnapshotSet set;
  int64_t written_realtime_ns = 0;  // by the endpoint's clock
  int64_t hang_after_ns = 0;        // that the endpoint goes by
  uint64_t bytes = 0;               // that the set takes in memory, about
};

std::string WriteSnapshots(const SnapshotSet& set, int64_t now_realtime_ns, int64_t hang_after_ns);

// `now_realtime_ns`: where to put the moment of writing; none: where the endpoint's clock had it.
// `most_bytes`: that the set may take in memory. `share`: of processor time; null: no limit. False
// with what is wrong in `error`, to be put behind "it answers with"; the message is then empty.
bool ReadSnapshots(std::string_view text, std::optional<int64_t> now_realtime_ns,
                   uint64_t most_bytes, SnapshotMessage* message, std::string* error,
                   const WorkBudget::Share* share = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_SNAPSHOT_MESSAGE_H_
