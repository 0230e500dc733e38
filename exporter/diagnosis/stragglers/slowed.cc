#include "exporter/diagnosis/stragglers/slowed.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/diagnosis/facts/exchange.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/stragglers/pace_history.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {

namespace {

// Returns the error of a sum of two independent terms. std::hypot would need glibc 2.35.
double Together(double a, double b) { return std::sqrt(a * a + b * b); }

// The job has become slower: least ratio of a step's time to the time of an earlier step, and the
// part of that increase that each of the last windows must have, so that it lasts.
constexpr double kMinSlower = 1.03;
constexpr double kMinOfEach = 0.5;
// Least extra time that a named process or host spends between its calls, as a share of an earlier
// step, and of the increase of a step.
constexpr double kMinLonger = 0.06;
constexpr double kMinShare = 0.6;
// Shares of the named host's extra time: least of each of its ranks, and most of every other host.
// If a process is named, most of every other process.
constexpr double kMinOfRank = 0.6;
constexpr double kMostOfOthers = 0.5;
constexpr double kLeastBusy = 0.02;  // share of a step that every process is assumed to be busy
constexpr double kMinErrors = 3;     // standard errors between the named host and any other
// A process is not comparable if its step has grown less or more than this, relative to the job's:
// it remembers another past.
constexpr double kLeastOfJob = 0.6, kMostOfJob = 1.6;
constexpr std::size_t kLeastProcesses = 4;

// How one process has changed. Times are shares of an earlier step.
struct Change {
  JobRank rank;
  double slower = 0;  // time of a step now, relative to an earlier step
  double least = 0;   // the least such ratio in the last windows
  double longer = 0;  // extra time between its calls
  double error = 0;   // standard error of `longer`
  double busy = 0;    // time between its calls in an earlier step
};

double BusyOf(const PaceWindow& window) {
  return 1 - static_cast<double>(window.inside_ms) / static_cast<double>(window.length_ms);
}

double ErrorOf(const PaceWindow& window) {
  return static_cast<double>(window.error_ms) / static_cast<double>(window.length_ms);
}

std::optional<Change> ChangeOf(const JobRank& rank) {
  const std::vector<PaceWindow>& pace = rank.process->pace;
  if (pace.size() != 2 + kPaceWindows) return std::nullopt;
  for (const PaceWindow& window : pace) {
    if (window.length_ms == 0 || window.collectives + window.others == 0) return std::nullopt;
  }
  const PaceWindow& now = pace[1];
  const PaceWindow& before = pace.front();
  // Collectives alone do not tell an evaluation from training. Where no process has Send or Recv,
  // ranks are compared by their calls in common.
  if (before.others == 0 || now.others == 0) return std::nullopt;
  if ((before.collectives == 0) != (now.collectives == 0) || !AreAlike(before, now)) {
    return std::nullopt;
  }
  Change change;
  change.rank = rank;
  change.slower = PaceOf(now) / PaceOf(before);
  if (!(change.slower > 1)) return std::nullopt;
  change.least = HUGE_VAL;
  for (std::size_t i = 2; i < pace.size(); ++i) {
    change.least = std::min(change.least, PaceOf(pace[i]) / PaceOf(before));
  }
  change.busy = BusyOf(before);
  change.longer = change.slower * BusyOf(now) - change.busy;
  change.error = Together(change.slower * ErrorOf(now), ErrorOf(before));
  return change;
}

double Median(const std::vector<Change>& changes, double Change::*of) {
  std::vector<double> values;
  for (const Change& change : changes) values.push_back(change.*of);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// All ranks of a host, or one process.
struct Group {
  std::vector<const Change*> changes;
  double longer = 0, error = 0, busy = 0;  // on average
};

// Returns the changes of all processes of a job. Empty if it has not become slower, or if too
// little is known.
std::vector<Change> ChangesOf(const JobProcesses& job) {
  if (!job.are_all_seen) return {};
  std::vector<Change> changes;
  for (const auto& [process, rank] : job.ranks) {
    if (const std::optional<Change> change = ChangeOf(rank)) changes.push_back(*change);
  }
  // The verdict says "the others have not" about every process, so all must be known.
  const auto are_enough = [&] {
    return changes.size() >= kLeastProcesses && changes.size() == job.ranks.size();
  };
  if (!are_enough()) return {};
  const double slower = Median(changes, &Change::slower);
  if (slower < kMinSlower || Median(changes, &Change::least) - 1 < kMinOfEach * (slower - 1)) {
    return {};
  }
  const auto has_another_past = [slower](const Change& change) {
    const double part = (change.slower - 1) / (slower - 1);
    return part < kLeastOfJob || part > kMostOfJob;
  };
  changes.erase(std::remove_if(changes.begin(), changes.end(), has_another_past), changes.end());
  return are_enough() ? changes : std::vector<Change>();
}

// True if `one` has far more extra time than `other`, both absolutely and relative to its earlier
// work: if all work grows in proportion, the busiest process has the most extra time.
bool IsFar(const Group& one, const Group& other) {
  const double part = one.longer / std::max(one.busy, kLeastBusy);
  const double part_of_other = other.longer / std::max(other.busy, kLeastBusy);
  return other.longer <= kMostOfOthers * one.longer && part_of_other <= kMostOfOthers * part &&
         one.longer - other.longer >= kMinErrors * Together(one.error, other.error);
}

double UsualError(const std::vector<Change>& changes) {
  double sum = 0;
  for (const Change& change : changes) sum += change.error;
  return sum / static_cast<double>(changes.size());
}

// By name of the host, or by number of the process.
using Groups = std::map<std::string, Group>;

Groups GroupBy(const std::vector<Change>& changes, bool by_host) {
  Groups groups;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    Group& group = groups[by_host ? change.rank.process->hostname : absl::StrCat(i)];
    group.changes.push_back(&change);
    group.longer += change.longer;
    group.error += change.error;
    group.busy += change.busy;
  }
  const double usual_error = UsualError(changes);
  for (auto& [name, group] : groups) {
    const auto count = static_cast<double>(group.changes.size());
    group.longer /= count;
    group.busy /= count;
    // Ranks of a host are timed in the same calls, so more ranks do not make the mean more certain.
    group.error = std::max(group.error / count, usual_error);
  }
  return groups;
}

// Returns the changes of the group that is far slower than all others. Empty if there is none.
std::vector<const Change*> Slowest(const Groups& groups, double least) {
  const Group& longest =
      std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
        return a.second.longer < b.second.longer;
      })->second;
  if (longest.longer < least) return {};
  for (const auto& [name, group] : groups) {
    if (&group != &longest && !IsFar(longest, group)) return {};
  }
  for (const Change* change : longest.changes) {
    if (change->longer < kMinOfRank * longest.longer) return {};
  }
  return longest.changes;
}

// Least difference of the time in calls between two hosts, in seconds per second.
constexpr double kMinLess = 0.1;

struct BusyHost {
  double inside = 0;  // sum over its processes of the share of time in calls, with waiting
  // `known`: processes whose share is known for a communicator of the pipeline, where a stage
  // waits.
  std::set<const ProcessSnapshot*> processes, known;
  bool has_peers = false;
  bool shares_stages = false;  // with another host
};

std::map<std::string, BusyHost> BusyHostsOf(const JobProcesses& job) {
  std::map<std::string, BusyHost> hosts;
  for (const CommunicatorView* each : job.views) {
    const CommunicatorView& view = *each;
    std::set<std::string> names;
    const bool has_peers = view.has_point_to_point && !view.is_exchange;
    for (const RankView& rank : view.ranks) {
      if (rank.state != RankView::State::kLive) continue;
      names.insert(rank.process->hostname);
      BusyHost& host = hosts[rank.process->hostname];
      host.has_peers |= has_peers;
      host.processes.insert(rank.process);
      const std::optional<double> share =
          ShareInCalls(rank, [](const TimedCallSnapshot& /*call*/) { return true; });
      if (share && has_peers) host.known.insert(rank.process);
      // An unknown share is 0: a communicator with hardly any timed calls takes hardly any time.
      host.inside += share.value_or(0);
    }
    // Skips communicators in which ranks have different work, and legitimately wait for each other.
    if (view.spans_pipeline || has_peers) continue;
    for (const std::string& name : names) hosts[name].shares_stages |= names.size() > 1;
  }
  return hosts;
}

}  // namespace

std::vector<JobProcesses> JobsOf(const std::vector<CommunicatorView>& views) {
  Jobs numbers(views);
  std::map<std::size_t, JobProcesses> jobs;
  for (const CommunicatorView& view : views) {
    bool is_in_use = false;
    for (const RankView& rank : view.ranks) {
      JobProcesses& job = jobs[numbers.OfProcess(rank.process)];
      if (job.views.empty() || job.views.back() != &view) job.views.push_back(&view);
      if (rank.state != RankView::State::kLive) continue;
      is_in_use = true;
      job.ranks.try_emplace(rank.process,
                            JobRank{view.comm_id, rank.rank(), rank.process, rank.communicator});
    }
    if (!is_in_use) continue;
    jobs[numbers.OfProcess(view.ranks.front().process)].are_all_seen &=
        view.ranks.size() == static_cast<std::size_t>(view.nranks);
  }
  std::vector<JobProcesses> list;
  for (auto& [number, job] : jobs) list.push_back(std::move(job));
  return list;
}

std::optional<JobStraggler> FindSlowed(const JobProcesses& job) {
  const std::vector<Change> changes = ChangesOf(job);
  if (changes.empty()) return std::nullopt;
  const double slower = Median(changes, &Change::slower);
  const double least = std::max(kMinLonger, kMinShare * (slower - 1));
  const Groups hosts = GroupBy(changes, true);
  const bool has_names = hosts.size() > 1 && !hosts.begin()->first.empty();
  std::vector<const Change*> named;
  if (has_names) named = Slowest(hosts, least);
  if (named.empty()) named = Slowest(GroupBy(changes, false), least);
  if (named.empty()) return std::nullopt;
  JobStraggler straggler;
  for (const Change* change : named) straggler.ranks.push_back(change->rank);
  std::sort(straggler.ranks.begin(), straggler.ranks.end(),
            [](const auto& a, const auto& b) { return a.process->pid < b.process->pid; });
  straggler.is_whole_host = named.size() > 1;
  straggler.seconds_per_second = (slower - 1) / slower;
  straggler.text = absl::StrFormat(
      "%s become slower, and the others have not: a step of the job takes %.0f %% longer than "
      "before, and the others spend that time waiting. (More work on it would look the same.)",
      straggler.is_whole_host ? absl::StrFormat("All %d ranks of %s have", named.size(),
                                                named.front()->rank.process->hostname)
                              : "It has",
      (slower - 1) * 100);
  return straggler;
}

std::string DoubtOfBusiestHost(const JobProcesses& job) {
  if (!job.are_all_seen) return "";
  const std::map<std::string, BusyHost> hosts = BusyHostsOf(job);
  if (hosts.size() < 2) return "";
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, host] : hosts) {
    if (!host.has_peers || host.shares_stages || name.empty()) return "";
    if (host.known.size() != host.processes.size()) return "";
    order.emplace_back(host.inside / static_cast<double>(host.processes.size()), name);
  }
  std::sort(order.begin(), order.end());
  const double less = order[1].first - order[0].first;
  if (less < kMinLess) return "";
  return absl::StrFormat(
      "The ranks of %s wait less for others than the ranks of any other host, by %s of the time "
      "over their last timed calls. "
      "The host is slow, or its pipeline stage has more work. No other host has ranks of that "
      "stage to compare with.",
      order[0].second, ShareWords(less));
}

}  // namespace nccl_pulse
