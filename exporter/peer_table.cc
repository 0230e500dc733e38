#include "exporter/peer_table.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

// New connections per round: those that are already there have been served in between.
constexpr int kAcceptsPerRound = 32;

// How long accepting pauses when the process has no descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

bool IsSameProcess(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  return a.pid == b.pid && a.pid_namespace == b.pid_namespace && a.global_rank == b.global_rank;
}

}  // namespace

PeerTable::PeerTable(const PeerOptions& options, LogFunction log)
    : options_(options), log_(std::move(log)), peers_(kMaxMembers + kMaxSilent) {}

void PeerTable::Open(std::string address, uint16_t port, int own_memory) {
  address_ = std::move(address);
  port_ = port;
  struct stat status {};
  if (own_memory >= 0 && fstat(own_memory, &status) == 0) {
    own_device_ = status.st_dev;
    own_inode_ = status.st_ino;
  }
}

HandoverMessage PeerTable::Message(MessageType type) const {
  HandoverMessage message = MakeMessage(type);
  message.members = static_cast<uint32_t>(members_);
  message.port = port_;
  message.SetText(address_);
  return message;
}

void PeerTable::Accept(int listener, Time now) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Peer* peer = PlaceForPeer();
    {
      const ForkGuard guard;
      const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        const bool is_nobody_there = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        if (!is_nobody_there) accept_from_ = now + kAcceptPause;
        return;
      }
      Drop(peer);
      peer->connection.Set(fd);
    }
    peer->state = Peer::State::kSilent;
    peer->since = now;
    const uid_t own = geteuid();
    if (!PeerCredentials(peer->connection.get(), &peer->credentials) ||
        (peer->credentials.user != own && peer->credentials.user != 0 &&
         !(options_.agent && own == 0))) {
      Refuse(peer, Rejection::kForeignUser, "this server takes its own user's processes only");
      continue;
    }
    HandlePeer(peer, now);
  }
}

// A free place, or that of the silent connection that has been here longest. There always is one:
// Welcome keeps kMaxSilent places from members.
PeerTable::Peer* PeerTable::PlaceForPeer() {
  Peer* free = nullptr;
  Peer* oldest = nullptr;
  int silent = 0;
  for (Peer& peer : peers_) {
    if (peer.state == Peer::State::kFree) free = &peer;
    if (peer.state != Peer::State::kSilent) continue;
    ++silent;
    if (oldest == nullptr || peer.since < oldest->since) oldest = &peer;
  }
  return silent < kMaxSilent && free != nullptr ? free : oldest;
}

void PeerTable::AppendPolled(std::vector<pollfd>* polled) {
  polled_.clear();
  for (Peer& peer : peers_) {
    if (peer.state == Peer::State::kFree) continue;
    polled_.push_back(&peer);
    polled->push_back({peer.connection.get(), POLLIN, 0});
  }
}

PeerTable::Time PeerTable::next() const {
  Time next = accept_from_ > std::chrono::steady_clock::now() ? accept_from_ : Time::max();
  for (const Peer& peer : peers_) {
    if (peer.state == Peer::State::kSilent) next = std::min(next, peer.since + kHelloTimeout);
  }
  return next;
}

void PeerTable::Handle(const pollfd* polled, Time now) {
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    Peer* peer = polled_[i];
    if (peer->state == Peer::State::kFree) continue;
    if (polled[i].revents != 0) {
      HandlePeer(peer, now);
    } else if (peer->state == Peer::State::kSilent && peer->since + kHelloTimeout <= now) {
      Refuse(peer, Rejection::kSilent, "no hello came in time");
    }
  }
  polled_.clear();
}

bool PeerTable::EndRound() {
  if (members_changed_) TellMembers();
  return asks_to_yield_ != nullptr;
}

void PeerTable::HandlePeer(Peer* peer, Time now) {
  HandoverMessage message;
  std::string error;
  switch (Receive(peer->connection.get(), &message, &peer->received, &error)) {
    case Received::kNothing:
      return;
    case Received::kClosed:
      End(peer, now);
      return;
    case Received::kBad:
      Refuse(peer, Rejection::kBadMessage, error);
      return;
    case Received::kMessage:
      break;
  }
  const bool is_member = peer->state == Peer::State::kMember;
  if (message.type == MessageType::kHello && !is_member) {
    Welcome(peer);
  } else if (message.type == MessageType::kGoodbye && is_member && !peer->said_goodbye) {
    peer->said_goodbye = true;
  } else if (message.type == MessageType::kYield && !is_member && asks_to_yield_ == nullptr) {
    const uid_t user = peer->credentials.user;
    if (user == geteuid() || user == 0) {
      asks_to_yield_ = peer;
    } else {
      Refuse(peer, Rejection::kForeignUser, "only this user or root may ask for the port");
    }
  } else {
    Refuse(peer, Rejection::kBadMessage, "a message that was not to be expected");
  }
  peer->received.Close();
}

void PeerTable::Welcome(Peer* peer) {
  if (members_ >= kMaxMembers) {
    Refuse(peer, Rejection::kNoRoom,
           absl::StrCat(kMaxMembers, " processes have handed over already"));
    return;
  }
  Rejection reason{};
  std::string error;
  if (!peer->segment.Map(&peer->received, &reason, &error)) {
    Refuse(peer, reason, error);
    return;
  }
  if (peer->segment.IsSameMemory(own_device_, own_inode_)) {
    Refuse(peer, Rejection::kDuplicate, "this memory is the server's own");
    return;
  }
  // A process that comes again, whose old connection has not been seen to end.
  for (Peer& other : peers_) {
    if (&other == peer || !other.segment.IsSameMemory(peer->segment)) continue;
    if (asks_to_yield_ == &other) asks_to_yield_ = nullptr;
    Drop(&other);
  }
  ProcessSnapshot snapshot;
  if (!kept_.empty() && peer->segment.Read(&snapshot, &error)) {
    // Its labels are those of a process that is gone: two on one page would be added up.
    kept_.erase(
        std::remove_if(kept_.begin(), kept_.end(),
                       [&](const Kept& kept) { return IsSameProcess(kept.process, snapshot); }),
        kept_.end());
  }
  peer->state = Peer::State::kMember;
  ++members_;
  members_changed_ = true;
  Send(peer->connection.get(), Message(MessageType::kWelcome));
}

void PeerTable::Refuse(Peer* peer, Rejection reason, const std::string& why) {
  HandoverMessage message = MakeMessage(MessageType::kRefused);
  message.SetText(why);
  Send(peer->connection.get(), message);
  const auto index = static_cast<std::size_t>(reason);
  ++rejected_[index];
  if (logged_[index]++ == 0 && log_) {
    log_(LogLevel::kWarning,
         absl::StrCat("process ", peer->credentials.pid, " of user ", peer->credentials.user,
                      " was refused: ", why, "; further ones are only counted, reason \"",
                      RejectionName(reason), "\""));
  }
  Drop(peer);
}

// The connection has ended, and with it, in all likelihood, the process.
void PeerTable::End(Peer* peer, Time now) {
  if (peer->state == Peer::State::kMember) {
    ProcessSnapshot snapshot;
    std::string error;
    if (peer->segment.Read(&snapshot, &error)) {
      Keep(std::move(snapshot), peer->said_goodbye, now);
    } else {
      ++rejected_[static_cast<std::size_t>(Rejection::kBadLayout)];
    }
  }
  Drop(peer);
}

void PeerTable::Drop(Peer* peer) {
  if (peer->state == Peer::State::kMember) {
    --members_;
    members_changed_ = true;
  }
  if (asks_to_yield_ == peer) asks_to_yield_ = nullptr;
  peer->segment.Close();
  peer->received.Close();
  peer->connection.Close();
  peer->state = Peer::State::kFree;
  peer->said_goodbye = false;
  peer->credentials = Credentials();
}

void PeerTable::Keep(ProcessSnapshot process, bool said_goodbye, Time now) {
  const auto& communicators = process.communicators;
  const bool all_finalized =
      !communicators.empty() &&
      std::all_of(communicators.begin(), communicators.end(),
                  [](const CommunicatorSnapshot& each) { return each.finalized; });
  process.end = said_goodbye || all_finalized ? ProcessEnd::kExit : ProcessEnd::kLost;
  process.end_realtime_ns = RealtimeNs();
  if (options_.keep_processes > 0) {
    if (log_) {
      log_(LogLevel::kInfo,
           absl::StrCat("process ", process.pid, " of rank \"", process.global_rank, "\" ended (",
                        ProcessEndName(process.end), ")"));
    }
    kept_.push_back({std::move(process), now + options_.keep});
  } else if (!all_finalized) {
    for (CommunicatorSnapshot& communicator : process.communicators) {
      communicator.latencies.clear();
      communicator.timed_calls.clear();
    }
    ended_.push_back({std::move(process), now + kRememberEnded});
  }
  ForgetKept(now);
}

void PeerTable::ForgetKept(Time now) {
  Forget(&kept_, options_.keep_processes, now);
  Forget(&ended_, kMaxEnded, now);
}

void PeerTable::Forget(std::deque<Kept>* kept, std::size_t most, Time now) {
  while (!kept->empty() && (kept->front().until <= now || kept->size() > most)) kept->pop_front();
}

void PeerTable::TellMembers() {
  members_changed_ = false;
  const HandoverMessage message = Message(MessageType::kMembers);
  for (const Peer& peer : peers_) {
    // Who does not read misses it: it then waits a little longer, or shorter, in an election.
    if (peer.state == Peer::State::kMember) Send(peer.connection.get(), message);
  }
}

void PeerTable::Yield(std::chrono::milliseconds delay, int members) {
  HandoverMessage reelect = Message(MessageType::kReelect);
  reelect.delay_ms = static_cast<uint32_t>(delay.count());
  for (const Peer& peer : peers_) {
    if (peer.state == Peer::State::kMember) Send(peer.connection.get(), reelect);
  }
  if (asks_to_yield_ != nullptr) {
    HandoverMessage yielded = Message(MessageType::kYielded);
    yielded.members = static_cast<uint32_t>(members);
    Send(asks_to_yield_->connection.get(), yielded);
  }
  CloseAll();
}

void PeerTable::RefuseYield(const std::string& why) {
  if (asks_to_yield_ == nullptr) return;
  HandoverMessage message = MakeMessage(MessageType::kRefused);
  message.SetText(why);
  Send(asks_to_yield_->connection.get(), message);
  Drop(asks_to_yield_);
}

void PeerTable::Read(SnapshotSet* set, Time now) {
  ForgetKept(now);
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember) continue;
    ProcessSnapshot snapshot;
    std::string error;
    if (peer.segment.Read(&snapshot, &error)) {
      set->processes.push_back(std::move(snapshot));
    } else {
      Refuse(&peer, Rejection::kBadLayout, error);
    }
  }
  for (const Kept& kept : kept_) set->processes.push_back(kept.process);
  for (const Kept& ended : ended_) set->ended.push_back(ended.process);
  for (int i = 0; i < kRejections; ++i) set->rejected[i] += rejected_[i];
}

void PeerTable::CloseAll() {
  for (Peer& peer : peers_) Drop(&peer);
  members_changed_ = false;
}

void PeerTable::CloseDescriptors() {
  for (Peer& peer : peers_) {
    peer.connection.Close();
    peer.received.Close();
    peer.segment.CloseDescriptor();
  }
}

}  // namespace nccl_pulse
