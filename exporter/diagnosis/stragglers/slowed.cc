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

#include "absl/strings/str_format.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/stragglers/pace_history.h"
#include "exporter/diagnosis/stragglers/rounds.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {

namespace {

// Least ratio of a step's time to the time of an earlier step, if the job has become slower.
constexpr double kMinSlower = 1.03;
// Least extra time that a named process or host spends between its calls, as a share of an earlier
// step, and of the increase of a step.
constexpr double kMinLonger = 0.06;
constexpr double kMinShare = 0.6;
// Limits as shares of the named process' or host's extra time: minimum for each process of a named
// host, maximum for every other process or host.
constexpr double kMinOfEach = 0.6;
constexpr double kMostOfOthers = 0.5;
constexpr double kLeastBusy = 0.02;  // share of a step that every process is assumed to be busy
constexpr double kMinErrors = 3;     // standard errors between the named process or host and others
// Largest difference between the increases of two processes' steps, as a part of the usual
// increase. Beyond it, they remember different pasts.
constexpr double kMostApart = 0.5;
constexpr std::size_t kLeastProcesses = 4;

// How a process has changed, or the processes of a host on average. Times are shares of an earlier
// step.
struct Change {
  std::vector<JobRank> ranks;
  double slower = 0;  // time of a step now, relative to an earlier step
  double longer = 0;  // extra time between its calls
  double least = 0;   // the least such time of one process
  double error = 0;   // standard error of `longer`
  double busy = 0;    // time between its calls in an earlier step

  double longer_of_busy() const { return longer / std::max(busy, kLeastBusy); }
};

// Returns the error of a sum of two independent terms. std::hypot would need glibc 2.35.
double Together(double a, double b) { return std::sqrt(a * a + b * b); }

double BusyOf(const PaceWindow& window) {
  return 1 - static_cast<double>(window.inside_ms) / static_cast<double>(window.length_ms);
}

double ErrorOf(const PaceWindow& window) {
  return static_cast<double>(window.error_ms) / static_cast<double>(window.length_ms);
}

std::optional<Change> ChangeOf(const JobRank& rank) {
  if (rank.process->pace.size() < 2) return std::nullopt;
  const PaceWindow& before = rank.process->pace[0];
  const PaceWindow& now = rank.process->pace[1];
  // Collectives alone do not distinguish an evaluation from training. Where no process has Send or
  // Recv, ranks are compared by their calls in common.
  if (before.length_ms == 0 || now.length_ms == 0 || before.others == 0) return std::nullopt;
  const double slower = PaceOf(now) / PaceOf(before);
  const double longer = slower * BusyOf(now) - BusyOf(before);
  const double error = Together(slower * ErrorOf(now), ErrorOf(before));
  return Change{{rank}, slower, longer, longer, error, BusyOf(before)};
}

// Returns the changes of all processes of a job, in the order of `slower`. Empty if it has not
// become slower, or if too little is known: the verdict says "the others have not" about every
// process.
std::vector<Change> ChangesOf(const JobProcesses& job) {
  if (!job.are_all_seen || job.ranks.size() < kLeastProcesses) return {};
  std::vector<Change> changes;
  for (const auto& [process, rank] : job.ranks) {
    const std::optional<Change> change = ChangeOf(rank);
    if (!change) return {};
    changes.push_back(*change);
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.slower < b.slower; });
  const double least = changes.front().slower;
  const double most = changes.back().slower;
  if (!(least >= kMinSlower) || most - least > kMostApart * (least - 1)) return {};
  return changes;
}

std::vector<Change> ByHost(const std::vector<Change>& changes) {
  std::map<std::string, Change> hosts;
  for (const Change& change : changes) {
    Change& host = hosts[change.ranks.front().process->hostname];
    const auto before = static_cast<double>(host.ranks.size());
    // Ranks of a host are timed in the same calls, so more ranks do not make the mean more certain.
    for (double Change::*each : {&Change::longer, &Change::error, &Change::busy}) {
      host.*each = (host.*each * before + change.*each) / (before + 1);
    }
    host.least = host.ranks.empty() ? change.least : std::min(host.least, change.least);
    host.ranks.push_back(change.ranks.front());
  }
  std::vector<Change> means;
  if (hosts.count("") != 0) return means;
  for (auto& [name, host] : hosts) means.push_back(std::move(host));
  return means;
}

// True if `one` has far more extra time than `other`, both absolutely and relative to its earlier
// work: if all work grows in proportion, the busiest process has the most extra time.
bool IsFar(const Change& one, const Change& other) {
  return other.longer <= kMostOfOthers * one.longer &&
         other.longer_of_busy() <= kMostOfOthers * one.longer_of_busy() &&
         one.longer - other.longer >= kMinErrors * Together(one.error, other.error);
}

// Returns the ranks of the process or host that is far slower than all others. Empty if there is
// none.
std::vector<JobRank> Slowest(const std::vector<Change>& changes, double least) {
  const auto longest =
      std::max_element(changes.begin(), changes.end(),
                       [](const Change& a, const Change& b) { return a.longer < b.longer; });
  if (changes.size() < 2 || longest->longer < least) return {};
  if (longest->least < kMinOfEach * longest->longer) return {};
  const bool is_far = std::all_of(changes.begin(), changes.end(), [&](const Change& each) {
    return &each == &*longest || IsFar(*longest, each);
  });
  return is_far ? longest->ranks : std::vector<JobRank>();
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
    const bool has_peers = IsOfPipeline(view);
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
  const double slower = changes[changes.size() / 2].slower;
  const double least = std::max(kMinLonger, kMinShare * (slower - 1));
  JobStraggler straggler;
  straggler.ranks = Slowest(changes, least);
  if (straggler.ranks.empty()) straggler.ranks = Slowest(ByHost(changes), least);
  if (straggler.ranks.empty()) return std::nullopt;
  std::sort(straggler.ranks.begin(), straggler.ranks.end(),
            [](const auto& a, const auto& b) { return a.process->pid < b.process->pid; });
  straggler.is_whole_host = straggler.ranks.size() > 1;
  straggler.seconds_per_second = (slower - 1) / slower;
  straggler.text = absl::StrFormat(
      "%s become slower, and the others have not: a step of the job takes %.0f %% longer than "
      "before, and the others spend that time waiting. (More work on it would look the same.)",
      straggler.is_whole_host ? absl::StrFormat("All %d ranks of %s have", straggler.ranks.size(),
                                                straggler.ranks.front().process->hostname)
                              : "It has",
      (slower - 1) * 100);
  return straggler;
}

std::string DoubtOfBusiestHost(const JobProcesses& job) {
  const bool has_pipeline = std::any_of(job.views.begin(), job.views.end(),
                                        [](const auto* view) { return IsOfPipeline(*view); });
  if (!job.are_all_seen || !has_pipeline) return "";
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
