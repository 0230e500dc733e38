#include "exporter/fleet/dump_look.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/flight_recorder/folder.h"
#include "exporter/flight_recorder/snapshots.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostMissing = 200'000;  // ranks; each takes about 2 KiB

using flight_recorder::Dump;

constexpr std::size_t kMostListed = 16;

std::set<int32_t> RanksWithoutDump(const std::vector<Dump>& dumps) {
  std::set<const flight_recorder::Group*> groups;
  for (const Dump& dump : dumps) {
    for (const flight_recorder::Membership& each : dump.groups) groups.insert(each.group);
  }
  std::set<int32_t> ranks;
  for (const flight_recorder::Group* group : groups) {
    ranks.insert(group->ranks.begin(), group->ranks.end());
  }
  for (const Dump& dump : dumps) ranks.erase(dump.rank);
  return ranks;
}

std::string MissingWords(const std::set<int32_t>& ranks) {
  const auto end =
      std::next(ranks.begin(), static_cast<std::ptrdiff_t>(std::min(ranks.size(), kMostListed)));
  const std::size_t more = ranks.size() - std::min(ranks.size(), kMostListed);
  return absl::StrCat("No dump of global rank", ranks.size() == 1 ? " " : "s ",
                      absl::StrJoin(ranks.begin(), end, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"), " could be used.");
}

// Replaces ranks without a process in the verdict by their number in the job. Dumps know this
// number; endpoints do not.
void NameAbsent(const std::map<uint64_t, std::vector<int32_t>>& ranks_of, JobLook* look) {
  std::map<std::string, const ProcessSnapshot*> absent;
  for (const ProcessSnapshot& process : look->set.ended) absent[process.global_rank] = &process;
  for (JobRoot& root : look->verdict.roots) {
    std::set<const ProcessSnapshot*> named;
    std::vector<JobRank> ranks;
    for (JobRank rank : root.ranks) {
      const auto of_communicator = ranks_of.find(rank.comm_id);
      if (rank.process == nullptr && of_communicator != ranks_of.end()) {
        const int32_t global = of_communicator->second[static_cast<std::size_t>(rank.rank)];
        const auto found = absent.find(absl::StrCat(global));
        if (found != absent.end()) {
          rank.process = found->second;
          rank.communicator = &found->second->communicators.front();
        }
      }
      if (rank.process == nullptr || named.insert(rank.process).second) ranks.push_back(rank);
    }
    root.ranks = std::move(ranks);
  }
}

}  // namespace

bool LookAtDumps(const std::string& path, JobLook* look, std::string* error) {
  const auto start = std::chrono::steady_clock::now();
  flight_recorder::Common common;
  flight_recorder::Folder folder;
  if (!flight_recorder::ReadFolder(path, &common, &folder, error)) return false;
  *look = JobLook();
  look->is_of_dumps = true;
  look->endpoints = folder.found;
  look->heard = folder.dumps.size();
  look->unheard = std::move(folder.left_out);
  look->looks = 1;
  bool are_dated = true;
  for (const Dump& dump : folder.dumps) {
    look->now_realtime_ns = std::max({look->now_realtime_ns, dump.newest_ns, dump.written_ns});
    are_dated = are_dated && dump.written_ns != 0;
  }
  // PyTorch writes its dumps when a call has timed out, so work in flight counts as stalled, unless
  // all ranks had moved seconds before their files were written.
  const int64_t now_ns =
      look->now_realtime_ns +
      (are_dated ? 0 : 2 * std::chrono::nanoseconds(Diagnosis::kDefaultHangAfter).count());
  flight_recorder::Snapshots snapshots =
      flight_recorder::MakeSnapshots(folder.dumps, now_ns, common);
  look->set = std::move(snapshots.set);
  const std::set<int32_t> missing = RanksWithoutDump(folder.dumps);
  if (missing.size() > kMostMissing) {
    *error = absl::StrCat(path, ": by the dumps' process groups, more than ", kMostMissing,
                          " ranks have no dump");
    return false;
  }
  for (const int32_t rank : missing) {
    ProcessSnapshot& process = look->set.ended.emplace_back();
    process.is_of_dump = true;
    process.global_rank = absl::StrCat(rank);
    process.communicators.emplace_back();  // without an ID, so skipped
  }
  look->diagnosis = Diagnosis().Update(look->set, now_ns);
  look->verdict = JudgeJob(look->set, look->diagnosis, now_ns);
  NameAbsent(snapshots.ranks, look);
  look->health = HealthOf(look->set, look->diagnosis, now_ns);
  if (look->health.communicators == 0) {
    look->health.summary = "By these dumps no call is in flight.";
  }
  if (!missing.empty()) {
    look->health.missing_ranks = missing.size();
    if (look->health.status != HealthStatus::kHang) {
      look->health.status = HealthStatus::kIncomplete;
    }
    look->health.notes.insert(look->health.notes.begin(), MissingWords(missing));
  }
  look->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return true;
}

}  // namespace nccl_pulse
