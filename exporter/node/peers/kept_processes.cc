#include "exporter/node/peers/kept_processes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

bool IsSameProcess(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  return a.pid == b.pid && a.pid_namespace == b.pid_namespace && a.global_rank == b.global_rank;
}

// Returns the memory of the process' last calls.
uint64_t LastCallsBytes(const ProcessSnapshot& process) {
  uint64_t calls = 0;
  for (const CommunicatorSnapshot& each : process.communicators) {
    if (each.last_calls != nullptr) calls += each.last_calls->size();
  }
  return calls * sizeof(LastCallSnapshot);
}

}  // namespace

KeptProcesses::KeptProcesses(const PeerOptions* options, LogFunction log)
    : options_(*options), log_(std::move(log)) {}

void KeptProcesses::Keep(ProcessSnapshot process, const Peer& peer, bool is_itself,
                         Peer::Time now) {
  const auto& communicators = process.communicators;
  const bool all_finalized =
      !communicators.empty() &&
      std::all_of(communicators.begin(), communicators.end(),
                  [](const CommunicatorSnapshot& each) { return each.finalized; });
  process.end = peer.said_goodbye || all_finalized ? ProcessEnd::kExit : ProcessEnd::kLost;
  process.end_realtime_ns = RealtimeNs();
  if (options_.keep_processes > 0) {
    log_.Log(peer.credentials.user, LogLevel::kInfo,
             absl::StrCat("process ", PidWords(process),
                          process.global_rank.empty() ? "" : " of rank " + process.global_rank,
                          process.end == ProcessEnd::kLost ? " ended unexpectedly" : " ended"),
             now);
    const uint64_t bytes = PageBytes(process) + LastCallsBytes(process);
    shown_.push_back({std::move(process), now + options_.keep, peer.credentials.user, peer.order,
                      bytes, is_itself});
  } else if (!all_finalized) {
    for (CommunicatorSnapshot& communicator : process.communicators) {
      communicator.latencies.clear();
      communicator.timed_calls.clear();
      communicator.picked_calls.clear();
    }
    const uint64_t bytes = PageBytes(process) + LastCallsBytes(process);
    remembered_.push_back({std::move(process), now + kRememberEnded, peer.credentials.user,
                           peer.order, bytes, is_itself});
  }
  ForgetOld(now);
}

void KeptProcesses::ForgetOld(Peer::Time now) {
  Forget(&shown_, options_.keep_processes, now);
  Forget(&remembered_, kMaxEnded, now);
}

void KeptProcesses::Forget(std::deque<KeptProcess>* kept, std::size_t most, Peer::Time now) {
  while (!kept->empty() && kept->front().until <= now) kept->pop_front();
  while (kept->size() > most) {
    Shares kept_of;
    for (const KeptProcess& each : *kept) ++kept_of[each.user];
    const std::optional<uid_t> user = LargestShare(kept_of);
    kept->erase(std::find_if(kept->begin(), kept->end(),
                             [&](const KeptProcess& each) { return each.user == user; }));
  }
}

bool KeptProcesses::ForgetOldestOf(uid_t user) {
  for (std::deque<KeptProcess>* kept : {&remembered_, &shown_}) {
    const auto oldest = std::find_if(kept->begin(), kept->end(),
                                     [&](const KeptProcess& each) { return each.user == user; });
    if (oldest == kept->end()) continue;
    kept->erase(oldest);
    return true;
  }
  return false;
}

void KeptProcesses::ForgetSame(const ProcessSnapshot& process, uid_t user) {
  shown_.erase(std::remove_if(shown_.begin(), shown_.end(),
                              [&](const KeptProcess& kept) {
                                return kept.user == user && IsSameProcess(kept.process, process);
                              }),
               shown_.end());
}

bool KeptProcesses::IsAnothers(const ProcessSnapshot& process, uid_t user) const {
  return std::any_of(shown_.begin(), shown_.end(), [&](const KeptProcess& kept) {
    return kept.user != user && IsSameProcess(kept.process, process);
  });
}

void KeptProcesses::AddShares(Shares* bytes_of) const {
  for (const auto* kept : {&shown_, &remembered_}) {
    for (const KeptProcess& each : *kept) (*bytes_of)[each.user] += each.page_bytes;
  }
}

}  // namespace nccl_pulse
