#include "exporter/node/peers/rejection_log.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"

namespace nccl_pulse {

RejectionLog::RejectionLog(LogFunction log) : log_(std::move(log)) {}

void RejectionLog::CountSilently(Rejection reason) { ++counts_[static_cast<std::size_t>(reason)]; }

void RejectionLog::Count(const Peer& peer, Rejection reason, const std::string& what) {
  const auto index = static_cast<std::size_t>(reason);
  ++counts_[index];
  if (LeavesUnread(reason)) {
    Forget(peer.credentials.pid);
    if (unread_.size() == kMostUnread) unread_.erase(unread_.begin());
    unread_.push_back(ProcessIdOf(peer.credentials.pid));
  }
  const Peer::Time now = MonotonicNow();
  if (!log_ || now < silent_until_[index]) {
    ++not_logged_[index];
    return;
  }
  const std::string others =
      not_logged_[index] == 0 ? "" : absl::StrCat("; ", not_logged_[index], " others before it");
  silent_until_[index] = now + kRejectionLogPause;
  not_logged_[index] = 0;
  log_(LogLevel::kWarning,
       absl::StrCat("process ", peer.credentials.pid, " of user ", peer.credentials.user, " ", what,
                    others, "; others are only counted for a minute (reason \"",
                    RejectionName(reason), "\")"));
}

void RejectionLog::Forget(pid_t pid) {
  const auto is_it = [pid](const ProcessId& process) { return process.pid == pid; };
  unread_.erase(std::remove_if(unread_.begin(), unread_.end(), is_it), unread_.end());
}

uint64_t RejectionLog::CountUnread() {
  const auto is_dead = [](const ProcessId& process) { return IsDead(process); };
  unread_.erase(std::remove_if(unread_.begin(), unread_.end(), is_dead), unread_.end());
  return unread_.size();
}

}  // namespace nccl_pulse
