#include "bench/jobs/job_member.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "bench/jobs/job_run.h"
#include "metrics/agreed_call.h"
#include "metrics/call_order.h"
#include "metrics/histogram_geometry.h"
#include "metrics/long_wait.h"
#include "metrics/peer_calls.h"
#include "metrics/peers.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kNever = INT64_MAX;
// Launches closer together mostly have no event before them, except the first after each iteration
// of the background thread (docs/timing.md).
constexpr int64_t kGateGapNs = 200'000;
constexpr int64_t kLookNs = 20'000'000;
constexpr int kHurriedGates = 4;
constexpr std::size_t kRing = 32;
constexpr std::size_t kLastCalls = 256;
constexpr uint64_t kLongWaitNs = 5'000'000'000;

void KeepLast(std::vector<TimedCallSnapshot>* ring) {
  if (ring->size() <= kRing) return;
  ring->erase(ring->begin(), ring->end() - static_cast<std::ptrdiff_t>(kRing));
}

}  // namespace

// SplitMix64.
uint64_t JobRandom::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t value = state_;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

double JobRandom::Share() { return static_cast<double>(Next() >> 11) / 9007199254740992.0; }

void JobMember::Launch(const JobStep& step, const std::vector<int>& peers, int64_t now_ns) {
  if (step.kind == StepKind::kExchange) {
    Count("Send", step.size_class, peers.size());
    Count("Recv", step.size_class, peers.size());
  } else {
    const int calls = CallsOf(step);
    Count(step.op, step.size_class, static_cast<uint64_t>(calls));
    if (step.is_hidden) {
      for (int root = 0; root < calls; ++root) KeepCallOfRoot(step, root, 0);
      hidden_op_ = step.op;
      snapshot_.unreported_calls += static_cast<uint64_t>(calls);
      snapshot_.unreported_since_realtime_ns = kJobStart + now_ns;
      return;
    }
    if (step.kind == StepKind::kCollective) CountReported(step.op);
  }
  ++snapshot_.launches;
  // The plugin counts calls without a reported launch once they are no longer pending
  // (plugin/tracker/unreported_operations.h).
  if (snapshot_.unreported_calls != 0) CountUnreported(hidden_op_, snapshot_.unreported_calls);
  snapshot_.unreported_calls = 0;
  snapshot_.unreported_since_realtime_ns = 0;
  if (step.kind == StepKind::kExchange) {
    bool is_of_group = false;
    for (const int peer : peers) {
      for (const char* const op : {"Send", "Recv"}) {
        Keep({op, step.size_class, 0, snapshot_.launches, kJobStart + now_ns, -1, peer,
              is_of_group});
        is_of_group = true;
      }
    }
  } else if (step.is_list) {
    for (int root = 0; root < CallsOf(step); ++root) {
      KeepCallOfRoot(step, root, snapshot_.launches);
      last_calls_.back().launched_ns = kJobStart + now_ns;
    }
  } else {
    Remember(step, now_ns);
  }
  const int64_t now = kJobStart + now_ns;
  if (now_ns / kLookNs != looked_) hurried_gates_ = kHurriedGates;
  looked_ = now_ns / kLookNs;
  const bool is_gated =
      now - snapshot_.last_launch_realtime_ns >= kGateGapNs || hurried_gates_-- > 0;
  snapshot_.last_launch_realtime_ns = now;
  launches_.push_back({now_ns, kNever, is_gated});
}

void JobMember::Fail(const JobStep& step) {
  Count(step.op, step.size_class, 1);
  last_calls_.push_back({step.op, step.size_class, ++collectives_, 0, 0, -1, -1, false});
  std::size_t row = 0;
  NumberOfKind(step.op, step.size_class, &row);
  CountUnreported(step.op, 1);
}

void JobMember::CountUnreported(const std::string& op, uint64_t calls) {
  for (UntimedSnapshot& untimed : snapshot_.untimed) {
    if (untimed.op != op) continue;
    untimed.operations += calls;
    return;
  }
  snapshot_.untimed.push_back({op, UntimedReason::kUnreported, calls});
}

void JobMember::CountReported(const char* op) {
  for (AlgorithmCountSnapshot& count : snapshot_.algorithms) {
    if (count.op != op) continue;
    ++count.operations;
    return;
  }
  snapshot_.algorithms.push_back({op, "RING", "SIMPLE", 1});
}

void JobMember::Count(const char* op, int size_class, uint64_t calls) {
  snapshot_.last_call_op = op;
  snapshot_.last_call_size_class = size_class;
  for (CallCountSnapshot& call : snapshot_.calls) {
    if (call.size_class != size_class || call.op != op) continue;
    call.calls += calls;
    return;
  }
  snapshot_.calls.push_back({op, size_class, "ncclBfloat16", false, calls, 0});
}

void JobMember::Remember(const JobStep& step, int64_t now_ns) {
  const uint64_t collective = step.kind == StepKind::kCollective ? ++collectives_ : 0;
  Keep({step.op, step.size_class, collective, snapshot_.launches, kJobStart + now_ns, step.root,
        step.peer_rank, false, step.bytes});
}

int JobMember::CallsOf(const JobStep& step) const { return step.is_list ? snapshot_.nranks : 1; }

void JobMember::KeepCallOfRoot(const JobStep& step, int root, uint64_t launch) {
  Keep({step.op, step.size_class, ++collectives_, launch, 0, root, -1, root != 0});
}

void JobMember::Keep(const LastCall& call) {
  last_calls_.push_back(call);
  if (last_calls_.size() > kLastCalls) last_calls_.pop_front();
  if (call.peer >= 0) CountOfPeer(call);
}

// As PeerCallTable::Add.
void JobMember::CountOfPeer(const LastCall& call) {
  const bool receives = std::strcmp(call.op, "Recv") == 0;
  std::vector<PeerCallsSnapshot>& all = snapshot_.peer_calls;
  auto known = std::find_if(all.begin(), all.end(), [&](const PeerCallsSnapshot& each) {
    return each.peer == call.peer && each.receives == receives;
  });
  if (known == all.end()) {
    if (all.size() == PeerCallsSnapshot::kMostPeers) return;
    known = all.insert(all.end(), {call.peer, receives, 0, {}, "ncclBfloat16"});
  }
  ++known->calls;
  std::vector<uint64_t>& totals = known->totals;
  totals.push_back((totals.empty() ? 0 : totals.back()) + call.Bytes());
  if (totals.size() > PeerCalls::kKept) totals.erase(totals.begin());
}

void JobMember::Begin(int64_t launched_ns, int64_t begun_ns) {
  for (Outstanding& each : launches_) {
    if (each.launched_ns == launched_ns) each.begun_ns = begun_ns;
  }
}

void JobMember::Finish(const JobStep& step, int64_t launched_ns, int64_t begun_ns, int64_t end_ns,
                       int sampling_exponent) {
  if (step.is_hidden) return;
  const int64_t before_ns = snapshot_.last_completion_realtime_ns - kJobStart;
  RememberWait(std::max(before_ns, launched_ns), end_ns);
  launches_.pop_front();
  ++snapshot_.launches_completed;
  snapshot_.last_completion_realtime_ns = kJobStart + end_ns;
  // An exchange or a list is one launch of many calls.
  Time(step.kind == StepKind::kExchange || step.is_list ? "Grouped" : step.op, step.size_class,
       end_ns - begun_ns, end_ns, sampling_exponent);
}

// Like RecordWriter::NoteWait, except that no job here waits in so many kinds of calls.
void JobMember::RememberWait(int64_t begin_ns, int64_t end_ns) {
  const auto stood_ns = static_cast<uint64_t>(std::max<int64_t>(end_ns - begin_ns, 0));
  if (stood_ns < kLongWaitNs) return;
  const auto same = std::find_if(snapshot_.longest_waits.begin(), snapshot_.longest_waits.end(),
                                 [this](const auto& wait) {
                                   return wait.op == snapshot_.last_call_op &&
                                          wait.size_class == snapshot_.last_call_size_class;
                                 });
  LongestWaitSnapshot& wait =
      same != snapshot_.longest_waits.end() ? *same : snapshot_.longest_waits.emplace_back();
  const bool recurs = LongWait::AreAlike(wait.longest_ns, stood_ns);
  const bool counts = kJobStart + end_ns <= wait.counts_until_realtime_ns;
  if (counts && !recurs && stood_ns < wait.longest_ns) return;
  wait.op = snapshot_.last_call_op;
  wait.size_class = snapshot_.last_call_size_class;
  wait.longest_ns = recurs ? std::max(wait.longest_ns, stood_ns) : stood_ns;
  const int64_t period_ns = recurs ? end_ns - waited_until_ns_ : begin_ns;
  wait.counts_until_realtime_ns =
      kJobStart + static_cast<int64_t>(LongWait::CountsUntilNs(static_cast<uint64_t>(period_ns),
                                                               static_cast<uint64_t>(end_ns)));
  waited_until_ns_ = end_ns;
}

// Times the call if it is sampled; collectives and exchanges are sampled alike on all ranks.
void JobMember::Time(const char* op, int size_class, int64_t duration_ns, int64_t end_ns,
                     int sampling_exponent) {
  std::size_t row = 0;
  uint64_t number = NumberOfKind(op, size_class, &row);
  // Launches of several calls use their own number.
  if (std::strcmp(op, "Grouped") == 0) number = snapshot_.launches_completed - 1;
  if ((JobRandom(number).Next() & ((uint64_t{1} << sampling_exponent) - 1)) != 0) return;
  Sum(op, size_class, duration_ns);
  TimedCallSnapshot timed;
  timed.op = op;
  timed.kind = LatencyKind::kDurationStream;
  timed.size_class = size_class;
  timed.call_number = number;
  timed.duration_ns = static_cast<uint64_t>(duration_ns);
  timed.end_realtime_ns = kJobStart + end_ns;
  // A kind has the same row on all ranks.
  if (std::strcmp(op, "Grouped") != 0) KeepIfAgreed(timed, static_cast<uint32_t>(row));
  std::vector<TimedCallSnapshot>& ring = snapshot_.timed_calls;
  ring.push_back(std::move(timed));
  if (ring.size() == 8 * kRing) KeepLast(&ring);
}

uint64_t JobMember::NumberOfKind(const char* op, int size_class, std::size_t* row) {
  const auto kind = std::find_if(timed_.begin(), timed_.end(), [&](const Timed& each) {
    return each.size_class == size_class && std::strcmp(each.op, op) == 0;
  });
  *row = static_cast<std::size_t>(kind - timed_.begin());
  if (kind != timed_.end()) return kind->calls++;
  timed_.push_back({op, size_class, 1});
  return 0;
}

void JobMember::KeepIfAgreed(const TimedCallSnapshot& timed, uint32_t row) {
  if (timed.call_number < kSetUpCalls) return;
  const uint64_t hash = CallHash(CallSeed(snapshot_.comm_id), row,
                                 static_cast<uint32_t>(timed.size_class), timed.call_number);
  const auto moment_of = [](const TimedCallSnapshot& call) {
    return call.end_realtime_ns / kMomentNs;
  };
  const int64_t moment = moment_of(timed);
  if (agreed_calls_.empty() || moment_of(agreed_calls_.back().timed) != moment) {
    agreed_calls_.push_back({timed, hash});
  } else if (IsRarer(hash, agreed_calls_.back().hash)) {
    agreed_calls_.back() = {timed, hash};
  }
  while (moment_of(agreed_calls_.front().timed) <= moment - kMoments) agreed_calls_.pop_front();
}

void JobMember::Sum(const char* op, int size_class, int64_t duration_ns) {
  auto latency = std::find_if(latencies_.begin(), latencies_.end(), [&](const auto& each) {
    return each.size_class == size_class && each.op == op;
  });
  if (latency == latencies_.end()) {
    latency = latencies_.emplace(latencies_.end());
    latency->kind = LatencyKind::kDurationStream;
    latency->op = op;
    latency->size_class = size_class;
  }
  ++latency->histogram.cells[CellIndex(static_cast<uint64_t>(duration_ns))];
  latency->histogram.sum_ns += static_cast<uint64_t>(duration_ns);
}

// Takes the last calls, and the earlier ones kept for each second.
void JobMember::TakeTimedCalls() {
  std::vector<TimedCallSnapshot>& ring = snapshot_.timed_calls;
  KeepLast(&ring);
  for (Agreed& agreed : agreed_calls_) {
    const bool is_in_ring = std::any_of(ring.begin(), ring.end(), [&agreed](const auto& call) {
      return call.call_number == agreed.timed.call_number &&
             call.size_class == agreed.timed.size_class && call.op == agreed.timed.op;
    });
    if (!is_in_ring) snapshot_.picked_calls.push_back(std::move(agreed.timed));
  }
}

CommunicatorSnapshot JobMember::Take(int64_t now_ns) {
  if (moves_.second != 0 && now_ns > moves_.first) {
    snapshot_.network_moved_realtime_ns = kJobStart + std::min(now_ns, moves_.second);
  }
  if (!launches_.empty()) {
    const Outstanding& oldest = launches_.front();
    snapshot_.oldest_inflight_realtime_ns = kJobStart + oldest.launched_ns;
    snapshot_.oldest_launch = !oldest.is_gated            ? OldestLaunch::kUnknown
                              : oldest.begun_ns == kNever ? OldestLaunch::kNotBegun
                                                          : OldestLaunch::kBegun;
    // If the next launch has a gate, it shows that the oldest is not complete.
    snapshot_.is_at_oldest = snapshot_.oldest_launch == OldestLaunch::kBegun &&
                             launches_.size() > 1 && launches_[1].is_gated;
  }
  TakeTimedCalls();
  snapshot_.latencies = latencies_;
  std::vector<LastCallSnapshot> calls;
  for (const LastCall& last : last_calls_) {
    LastCallSnapshot& call = calls.emplace_back();
    call.collective_number = last.collective;
    call.op = last.op;
    call.datatype = "ncclBfloat16";
    call.bytes = last.Bytes();
    call.launch = last.launch;
    call.launch_realtime_ns = last.launch == 0 ? 0 : last.launched_ns;
    call.root = last.root;
    call.peer = last.peer;
    call.is_of_group = last.is_of_group;
  }
  const std::string& last_op = snapshot_.last_call_op;
  if (!launches_.empty() || last_op == "Broadcast" || last_op == "Reduce") {
    snapshot_.call_order = CallOrderOf(calls, snapshot_.launches_completed);
    snapshot_.peers = PeersOf(calls, snapshot_);
  }
  return std::move(snapshot_);
}

}  // namespace nccl_pulse
