// SnapshotUnion merges the snapshots of many endpoints, for the diagnosis of a whole job.
//
// Times: all messages are shifted to one current time (exporter/exposition/snapshot_message.h), so
// ages can be compared even if the nodes' clocks differ.
//
// A process that two endpoints report (an agent and the job, or an endpoint at two addresses)
// counts once: the report of the live process, or the newer report.
//
// Nodes with one host name (containers started with the same --hostname) are distinguished by their
// endpoint: "trainer" becomes "trainer at 10.0.0.4:9410". A host name belongs to several nodes if
// several endpoints report it in a communicator with more nodes (NCCL's count) than host names.
//
// Thread: one.
#ifndef EXPORTER_FLEET_SNAPSHOT_UNION_H_
#define EXPORTER_FLEET_SNAPSHOT_UNION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/exposition/snapshot_message.h"

namespace nccl_pulse {

// Selects jobs: processes that share communicators, whatever their job IDs say. A job that meets
// the filter is kept whole.
struct JobFilter {
  std::string job_id;               // job ID of one of the job's processes; "": any
  std::optional<uint64_t> comm_id;  // ID of one of its communicators; none: any
};

class SnapshotUnion {
 public:
  explicit SnapshotUnion(JobFilter filter) : filter_(std::move(filter)) {}

  // `address`: address of endpoint number `endpoint`; "": no endpoint reported the processes.
  void Add(SnapshotMessage message, const std::string& address = "", std::size_t endpoint = 0);

  // Returns the jobs that meet the filter, and clears the union.
  SnapshotSet Take();

  // Returns IDs of jobs that the filter left out, kMostOtherJobs at most. Call after Take.
  static constexpr std::size_t kMostOtherJobs = 16;
  const std::set<std::string>& other_jobs() const { return other_jobs_; }
  // Number of the endpoint that reported each process, by host and pid. Call after Take.
  using EndpointOf = std::map<std::pair<std::string, int32_t>, std::size_t>;
  EndpointOf TakeEndpoints() { return std::move(endpoint_of_); }

 private:
  // Removes the jobs that do not meet the filter.
  void Filter(SnapshotSet* set);

  // Gives nodes with one host name different ones.
  void SeparateHosts();

  struct Source {
    std::string address;
    std::size_t endpoint = 0;
    std::size_t first = 0, behind = 0;  // its processes in `set_`: [first, behind)
  };

  const JobFilter filter_;
  SnapshotSet set_;
  std::vector<Source> sources_;
  EndpointOf endpoint_of_;
  std::set<std::string> other_jobs_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_SNAPSHOT_UNION_H_
