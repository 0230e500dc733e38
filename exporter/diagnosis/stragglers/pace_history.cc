#include "exporter/diagnosis/stragglers/pace_history.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;
constexpr double kMostInsideNs = 1e18;  // of a hostile segment
constexpr int kMostExponent = 24;       // the sampler's largest; a hostile segment says anything
// A run with what a process does otherwise (an evaluation) is not compared with the last windows.
constexpr double kSameMix = 0.15;
constexpr double kNearly = 0.7;

void Add(const PaceWindow& more, PaceWindow* window) {
  window->length_ms += more.length_ms;
  window->collectives += more.collectives;
  window->others += more.others;
  window->inside_ms += more.inside_ms;
}

uint64_t KeyOf(uint64_t comm_id, const std::string& op, int size_class) {
  return (comm_id ^ std::hash<std::string>()(op)) * 0x9e3779b97f4a7c15u +
         static_cast<uint64_t>(size_class);
}

uint64_t CallsOf(const PaceWindow& window) { return window.collectives + window.others; }

double OutsideMs(const PaceWindow& window) {
  return static_cast<double>(window.length_ms) - static_cast<double>(window.inside_ms);
}

}  // namespace

double PaceOf(const PaceWindow& window) {
  const uint64_t calls = window.collectives != 0 ? window.collectives : window.others;
  return static_cast<double>(window.length_ms) / static_cast<double>(std::max<uint64_t>(calls, 1));
}

bool AreAlike(const PaceWindow& a, const PaceWindow& b) {
  const double left = static_cast<double>(a.others) * static_cast<double>(b.collectives);
  const double right = static_cast<double>(b.others) * static_cast<double>(a.collectives);
  return std::abs(left - right) <= kSameMix * std::max(left, right);
}

ProcessPace::Counts ProcessPace::CountsOf(const ProcessSnapshot& process) {
  Counts counts;
  for (const CommunicatorSnapshot& communicator : process.communicators) {
    const auto kind_of = [&](const std::string& op, int size_class) -> Kind& {
      const uint64_t key = KeyOf(communicator.comm_id, op, size_class);
      Kind& kind = counts.try_emplace(key).first->second;
      kind.is_collective = IsCollective(op);
      return kind;
    };
    const bool has_groups =
        std::any_of(communicator.latencies.begin(), communicator.latencies.end(),
                    [](const auto& latency) { return IsGrouped(latency.op); });
    for (const CallCountSnapshot& call : communicator.calls) {
      kind_of(call.op, call.size_class).calls += call.calls;
    }
    for (const LatencySnapshot& latency : communicator.latencies) {
      if (latency.kind != LatencyKind::kDurationStream) continue;
      Kind& kind = kind_of(latency.op, latency.size_class);
      kind.is_of_groups = has_groups;
      kind.timed += latency.histogram.Count();
      kind.timed_ns += latency.histogram.sum_ns;
    }
  }
  return counts;
}

void ProcessPace::Update(const ProcessSnapshot& process, int64_t now_realtime_ns) {
  const bool is_seen = process.sampling_exponent >= 0 &&
                       process.sampling_exponent <= kMostExponent &&
                       std::none_of(process.communicators.begin(), process.communicators.end(),
                                    [](const auto& communicator) { return communicator.captured; });
  const int64_t length_ns = ElapsedNs(now_realtime_ns, began_realtime_ns_);
  if (!is_seen || began_realtime_ns_ == 0 || process.sampling_exponent != exponent_ ||
      length_ns < 0) {
    exponent_ = is_seen ? process.sampling_exponent : -1;
    began_realtime_ns_ = is_seen ? now_realtime_ns : 0;
    counts_ = is_seen ? CountsOf(process) : Counts();
    if (!is_seen) windows_.clear();
    return;
  }
  if (length_ns < kMinWindowNs) return;
  Counts counts = CountsOf(process);
  PaceWindow window;
  window.length_ms = static_cast<uint64_t>(length_ns / kMs);
  uint64_t rounds = UINT64_MAX;
  uint64_t timed = 0;
  double inside_ns = 0;
  for (const auto& [key, kind] : counts) {
    const auto before = counts_.find(key);
    const Kind had = before == counts_.end() ? Kind() : before->second;
    const uint64_t calls = kind.calls > had.calls ? kind.calls - had.calls : 0;
    (kind.is_collective ? window.collectives : window.others) += calls;
    if (kind.is_collective && calls != 0) rounds = std::min(rounds, calls);
    if (kind.timed <= had.timed) continue;
    const uint64_t more = kind.timed - had.timed;
    timed += more;
    // How many there were is known, but where some were made in groups.
    const double each = calls == 0 || kind.is_of_groups
                            ? std::ldexp(1.0, exponent_)
                            : static_cast<double>(calls) / static_cast<double>(more);
    inside_ns += static_cast<double>(kind.timed_ns - had.timed_ns) * each;
  }
  if (window.collectives == 0) rounds = window.others;
  const bool is_enough = rounds >= kMinRounds || length_ns >= kLongWindowNs;
  if (!is_enough || timed < kMinTimed) return;
  window.inside_ms = inside_ns < kMostInsideNs ? static_cast<uint64_t>(inside_ns / kMs) : 0;
  Close(window);
  counts_ = std::move(counts);
  began_realtime_ns_ = now_realtime_ns;
}

void ProcessPace::Close(const PaceWindow& window) {
  windows_.push_back(window);
  if (windows_.size() <= kMostWindows) return;
  // The two neighbours that are shortest together, but not of the last ones.
  std::size_t at = 0;
  for (std::size_t i = 0; i + 1 < windows_.size() - 2 * kPaceWindows; ++i) {
    if (windows_[i].length_ms + windows_[i + 1].length_ms <
        windows_[at].length_ms + windows_[at + 1].length_ms) {
      at = i;
    }
  }
  Add(windows_[at + 1], &windows_[at]);
  windows_.erase(windows_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

ProcessPace::Run ProcessPace::FastestBefore(std::size_t last, const PaceWindow& now) const {
  std::vector<Run> runs;
  double most = 0;
  for (std::size_t end = last; end > 0; --end) {
    Run run{end, end, {}};
    while (run.first > 0 && CallsOf(run.sum) < CallsOf(now)) Add(windows_[--run.first], &run.sum);
    // Where the history begins two thirds will do.
    if (3 * CallsOf(run.sum) < 2 * CallsOf(now)) break;
    if (!AreAlike(run.sum, now)) continue;
    most = std::max(most, PaceOf(now) / PaceOf(run.sum) - 1);
    runs.push_back(run);
  }
  // The last one that is nearly as fast as the fastest: more may have changed before.
  for (const Run& run : runs) {
    if (PaceOf(now) / PaceOf(run.sum) - 1 >= std::max(kNearly * most, kSlower - 1)) return run;
  }
  return {};
}

std::vector<PaceWindow> ProcessPace::Told() const {
  if (windows_.size() < kPaceWindows + 1) return {};
  const std::size_t last = windows_.size() - kPaceWindows;
  Run now{last, windows_.size(), {}};
  for (std::size_t i = last; i < windows_.size(); ++i) Add(windows_[i], &now.sum);
  Run before = FastestBefore(last, now.sum);
  if (before.behind == 0) return {};
  // Each with its neighbours that went on like it rather than like the other one.
  const PaceWindow of_now = now.sum;
  const double middle = std::sqrt(PaceOf(of_now) * PaceOf(before.sum));
  // A window alone may be too short to tell, so that with the one behind it counts, too.
  const auto is_of = [&](std::size_t i, std::size_t next, bool is_slow) {
    if (!AreAlike(windows_[i], of_now)) return false;
    PaceWindow both = windows_[i];
    if (next < windows_.size()) Add(windows_[next], &both);
    return (PaceOf(windows_[i]) > middle) == is_slow || (PaceOf(both) > middle) == is_slow;
  };
  while (now.first > before.behind && is_of(now.first - 1, now.first - 2, true)) {
    Add(windows_[--now.first], &now.sum);
  }
  while (before.first > 0 && is_of(before.first - 1, before.first - 2, false)) {
    Add(windows_[--before.first], &before.sum);
  }
  while (before.behind < now.first && is_of(before.behind, before.behind + 1, false)) {
    Add(windows_[before.behind++], &before.sum);
  }
  now.sum.error_ms = ErrorOf(now);
  before.sum.error_ms = ErrorOf(before);
  std::vector<PaceWindow> told = {before.sum, now.sum};
  for (std::size_t i = last; i < windows_.size(); ++i) {
    // Of these it matters only how fast they were.
    told.push_back({windows_[i].length_ms, windows_[i].collectives, windows_[i].others});
  }
  return told;
}

// Of the time outside of calls, which is a ratio to their number: that of a sum of windows of
// unequal length.
uint64_t ProcessPace::ErrorOf(const Run& run) const {
  const auto count = static_cast<double>(run.behind - run.first);
  if (count < 2) return run.sum.length_ms;
  const double each = OutsideMs(run.sum) / static_cast<double>(CallsOf(run.sum));
  double squares = 0;
  for (std::size_t i = run.first; i < run.behind; ++i) {
    const double off = OutsideMs(windows_[i]) - each * static_cast<double>(CallsOf(windows_[i]));
    squares += off * off;
  }
  const double error = std::sqrt(squares * count / (count - 1));
  return static_cast<uint64_t>(std::min(error, static_cast<double>(run.sum.length_ms)));
}

void PaceHistory::Update(SnapshotSet* snapshots, int64_t now_realtime_ns) {
  std::map<Key, ProcessPace> kept;
  for (ProcessSnapshot& process : snapshots->processes) {
    const Key key{process.pid, process.pid_namespace, process.start_realtime_ns};
    ProcessPace& pace = kept[key];
    if (const auto found = paces_.find(key); found != paces_.end()) {
      pace = std::move(found->second);
    }
    pace.Update(process, now_realtime_ns);
    process.pace = pace.Told();
  }
  paces_ = std::move(kept);
}

}  // namespace nccl_pulse
