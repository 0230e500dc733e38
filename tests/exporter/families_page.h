// A page of example snapshots, and its lines.
#ifndef TESTS_EXPORTER_FAMILIES_PAGE_H_
#define TESTS_EXPORTER_FAMILIES_PAGE_H_

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gtest/gtest.h"
#include "metrics/size_class.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {

inline constexpr char kCommLabels[] = "{comm=\"00ab12cd34ef5678\",rank=\"3\"";

inline std::string Page(std::vector<ProcessSnapshot> processes, const StaticLabels& labels = {}) {
  return TextFormat(BuildFamilies(SnapshotSet(std::move(processes)), labels, {}));
}

// Lines that start with `name`, then '{' or ' '.
inline std::vector<std::string> Lines(const std::string& page, const std::string& name) {
  std::vector<std::string> lines;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) == 0 && line.size() > name.size() &&
        (line[name.size()] == '{' || line[name.size()] == ' ')) {
      lines.push_back(line);
    }
  }
  return lines;
}

// Prometheus refuses a page with the same series twice.
inline void ExpectNoSeriesTwice(const std::string& page) {
  std::set<std::string> seen;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '#') continue;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
}

// Graphs with stamps in them that were replayed.
inline void AddReplays(ProcessSnapshot* process) {
  process->graph_captures = {12, 9, 1, 2, 1};
  CommunicatorSnapshot& comm = process->communicators[0];
  comm.captured = true;
  comm.work = {WorkState::kProven, {}, true, 2154, 1760000002400000000, 0, {}};
  comm.graph_replays = 1077;
  comm.graph_replays_in_flight = 1;
  comm.graph_moved_realtime_ns = 1760000002500000000;
  comm.replayed = {{"AllReduce", SizeClassOf(4096), 32310, 132341760}};
}

// Every metric, also what only an ended process has, or one whose calls were captured.
inline SnapshotSet LiveAndEnded() {
  ProcessSnapshot live = ExampleProcess();
  live.pid_namespace = 4026532331;
  live.event_mask_changes = 2;
  live.foreign_event_mask = 0x2;
  live.communicators[0].longest_waits = {{"AllReduce", 4, 540000000000, 1760000600000000000}};
  live.run_state = RunState::kTraced;
  CommunicatorSnapshot unknown = ExampleCommunicator();
  unknown.rank = 5;
  unknown.launches_completed = unknown.launches;
  unknown.driver_error = 214;
  unknown.driver_error_realtime_ns = 1760000002250000000;
  live.communicators.push_back(unknown);
  ProcessSnapshot ended = live;
  ended.pid = 4712;
  ended.end = ProcessEnd::kExit;
  ended.end_realtime_ns = 1760000004000000000;
  CommunicatorSnapshot& comm = ended.communicators[0];
  comm.rank = 4;
  comm.captured = true;
  comm.finalized = true;
  comm.latencies[0].kind = LatencyKind::kDurationNetwork;
  AddReplays(&live);
  SnapshotSet set({live, ended});
  set.rejected[static_cast<int>(Rejection::kNoRoom)] = 1;
  return set;
}

inline const Family* Find(const std::vector<Family>& families, std::string_view name) {
  for (const Family& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_FAMILIES_PAGE_H_
