#include "exporter/diagnosis/stragglers/pace_history.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/stragglers/rounds.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;
constexpr double kMostInsideNs = 1e18;  // of a hostile segment
// A run with another mix of calls (an evaluation) is not compared with the last windows.
constexpr double kSameMix = 0.15;

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

// True if the mix of calls is similar in both windows.
bool AreAlike(const PaceWindow& a, const PaceWindow& b) {
  const double left = static_cast<double>(a.others) * static_cast<double>(b.collectives);
  const double right = static_cast<double>(b.others) * static_cast<double>(a.collectives);
  return std::abs(left - right) <= kSameMix * std::max(left, right);
}

}  // namespace

double PaceOf(const PaceWindow& window) {
  const uint64_t calls = window.collectives != 0 ? window.collectives : window.others;
  return static_cast<double>(window.length_ms) / static_cast<double>(std::max<uint64_t>(calls, 1));
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
                       process.sampling_exponent <= kMostSamplingExponent &&
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
    // The number of such calls is known, unless some were made in groups.
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
  // Merges the two neighboring windows that are shortest together, except the last ones.
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

std::vector<PaceWindow> ProcessPace::BeforeAndNow() const {
  if (windows_.size() <= kPaceWindows) return {};
  std::size_t first_now = windows_.size() - kPaceWindows;
  PaceWindow now = SumOf(first_now, windows_.size());
  std::size_t first = 0, behind = 0;
  PaceWindow before;
  for (std::size_t end = first_now; end > 1; --end) {
    std::size_t begin = end;
    uint64_t calls = 0;
    // A single window has no known error.
    while (begin > 0 && (end - begin < 2 || calls < CallsOf(now))) {
      calls += CallsOf(windows_[--begin]);
    }
    // At the beginning of the history, two thirds of the calls suffice.
    if (3 * calls < 2 * CallsOf(now)) break;
    const PaceWindow run = SumOf(begin, end);
    if (!AreAlike(run, now) || (behind != 0 && PaceOf(run) >= PaceOf(before))) continue;
    before = run;
    first = begin;
    behind = end;
  }
  if (behind == 0 || PaceOf(now) < kSlower * PaceOf(before)) return {};
  const double middle = (PaceOf(before) + PaceOf(now)) / 2;
  const auto is_slow = [&](const PaceWindow& each) { return PaceOf(each) >= middle; };
  if (!std::all_of(windows_.end() - kPaceWindows, windows_.end(), is_slow)) return {};
  // More windows make the error smaller.
  const auto is_like = [&](std::size_t i, bool slow) {
    return AreAlike(windows_[i], now) && is_slow(windows_[i]) == slow;
  };
  while (first > 0 && is_like(first - 1, false)) --first;
  while (first_now > behind && is_like(first_now - 1, true)) --first_now;
  return {SumOf(first, behind), SumOf(first_now, windows_.size())};
}

PaceWindow ProcessPace::SumOf(std::size_t first, std::size_t behind) const {
  PaceWindow sum;
  for (std::size_t i = first; i < behind; ++i) Add(windows_[i], &sum);
  // Windows differ in length, so each is expected to have the mean time outside per call.
  const double each = OutsideMs(sum) / static_cast<double>(CallsOf(sum));
  double squares = 0;
  for (std::size_t i = first; i < behind; ++i) {
    const double off = OutsideMs(windows_[i]) - each * static_cast<double>(CallsOf(windows_[i]));
    squares += off * off;
  }
  const auto count = static_cast<double>(behind - first);
  const double error = std::sqrt(squares * count / (count - 1));
  sum.error_ms = static_cast<uint64_t>(std::min(error, static_cast<double>(sum.length_ms)));
  return sum;
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
    process.pace = pace.BeforeAndNow();
  }
  paces_ = std::move(kept);
}

}  // namespace nccl_pulse
