// The snapshots of many endpoints as one set, over which the diagnosis runs as over a node's.
//
// Times: each message was read with its moment of writing put at one common now
// (exporter/exposition/snapshot_message.h), so ages compare whatever the nodes' clocks say.
//
// A process of which two endpoints speak (an agent and the job itself, an endpoint under two
// addresses) counts once: the one that lives, or was looked at last.
//
// Thread: one.
#ifndef EXPORTER_FLEET_SNAPSHOT_UNION_H_
#define EXPORTER_FLEET_SNAPSHOT_UNION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/exposition/snapshot_message.h"

namespace nccl_pulse {

// It says which processes are of interest; others are left out.
struct JobFilter {
  std::string job_id;  // "": all
  // Those that have it, those that have a communicator with one of them, and so on: its job.
  std::optional<uint64_t> comm_id;
};

class SnapshotUnion {
 public:
  explicit SnapshotUnion(JobFilter filter) : filter_(std::move(filter)) {}

  // Returns how many of its processes are of interest.
  std::size_t Add(SnapshotMessage message);

  // Returns what was added; after that there is nothing.
  SnapshotSet Take();

  // Returns ids of jobs that the filter left out, kMostOtherJobs at most.
  static constexpr std::size_t kMostOtherJobs = 16;
  const std::set<std::string>& other_jobs() const { return other_jobs_; }

 private:
  bool IsWanted(const ProcessSnapshot& process) const;

  const JobFilter filter_;
  SnapshotSet set_;
  std::set<std::string> other_jobs_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_SNAPSHOT_UNION_H_
