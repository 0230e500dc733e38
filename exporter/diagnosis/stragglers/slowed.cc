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

// Of two errors that do not depend on each other. std::hypot would need glibc 2.35.
double Together(double a, double b) { return std::sqrt(a * a + b * b); }

constexpr double kMinSlower = 1.03;  // a step, than before
constexpr double kMinOfEach = 0.5;   // of that, in each window: it lasts
// What those who are named do longer between their calls: of a step before, and of what it takes
// longer.
constexpr double kMinLonger = 0.06;
constexpr double kMinShare = 0.6;
// Of what those who are named do longer: each rank of such a host, and every other host, or every
// other process where one is named.
constexpr double kMinOfRank = 0.6;
constexpr double kMostOfOthers = 0.5;
constexpr double kLeastBusy = 0.02;  // of a step: who did less is taken to have done so much
constexpr double kMinErrors = 3;     // standard errors between them
// A process whose step has become that much more or less longer than the job's is not comparable:
// it remembers another past.
constexpr double kLeastOfJob = 0.6, kMostOfJob = 1.6;
constexpr std::size_t kLeastProcesses = 4;

// What is known of one process.
struct Change {
  JobRank rank;
  double slower = 0;  // a step, than before
  double least = 0;   // in one of the last windows
  // What it does longer between its calls, of a step before.
  double longer = 0;
  double error = 0;  // standard error of that
  double busy = 0;   // what it did between its calls before, of a step
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

// What is known of a job; empty where it has not become slower, or too little is known.
std::vector<Change> ChangesOf(const JobProcesses& job) {
  if (!job.are_all_seen) return {};
  std::vector<Change> changes;
  for (const auto& [process, rank] : job.ranks) {
    if (const std::optional<Change> change = ChangeOf(rank)) changes.push_back(*change);
  }
  // "The others have not" is said of all of them.
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

// Whether one does far more than another one: in time, and of what each did before. If all work
// grows alike, who has most to do does most longer.
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

// By host or process.
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
    // Ranks of a host are timed in the same calls: many of them do not make it more certain.
    group.error = std::max(group.error / count, usual_error);
  }
  return groups;
}

// Of the one that is far slower than all others; empty: there is none.
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

constexpr double kMinLess = 0.1;  // seconds per second

struct BusyHost {
  double inside = 0;  // what its processes spend in calls, waiting for others included
  // Those of which it is known are of a communicator of the pipeline, where a stage waits.
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
      // Elsewhere, a communicator with hardly any timed calls takes hardly any time.
      host.inside += share.value_or(0);
    }
    // Ranks that do the same: of others one may wait for another by right.
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
