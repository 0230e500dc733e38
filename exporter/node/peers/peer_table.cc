#include "exporter/node/peers/peer_table.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/node/node_times.h"

namespace nccl_pulse {
namespace {

// New connections per round. Between rounds, existing peers are served.
constexpr int kAcceptsPerRound = 32;

// Pause in accepting when no descriptor is left.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

PeerTable::PeerTable(const PeerOptions& options, LogFunction log)
    : options_(options),
      peers_(options.max_members),
      kept_(&options_, log),
      room_(&options_, &peers_, &kept_, log),
      rejections_(log) {}

void PeerTable::Open(std::string address, uint16_t port, const SharedDescriptor* own_memory) {
  address_ = std::move(address);
  port_ = port;
  own_memory_ = own_memory;
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
    Peer* peer = peers_.ForNewcomer();
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
    const bool is_known = options_.credentials(peer->connection.get(), &peer->credentials);
    if (!is_known || !TakesUser(peer->credentials.user)) {
      const std::string why = "this server takes only processes of its own user";
      // Every process first looks for root's agent and then tries the next port: not worth a log
      // line.
      if (is_known && options_.user == 0) {
        Decline(peer, why);
      } else {
        Refuse(peer, Rejection::kForeignUser, why);
      }
      continue;
    }
    HandlePeer(peer, now);
  }
}

// True if the kernel confirms the process' pid. It reports pids of this server's PID namespace
// only, so a pid that a container's process claims cannot be confirmed.
bool PeerTable::IsItself(const ProcessSnapshot& process, const Credentials& credentials) const {
  return credentials.pid > 0 && process.pid == credentials.pid &&
         process.pid_namespace == options_.pid_namespace;
}

// Sets the pid and user that the kernel reports: a container's own pids are of no use outside.
void PeerTable::SetCredentials(const Peer& peer, ProcessSnapshot* process) const {
  process->user = peer.credentials.user;
  process->seen_pid = peer.credentials.pid;
  process->seen_in = options_.pid_namespace;
}

bool PeerTable::TakesUser(uid_t user) const {
  return user == options_.user || user == 0 || (options_.agent && options_.user == 0);
}

void PeerTable::AppendPolled(std::vector<pollfd>* polled) {
  polled_.clear();
  for (Peer& peer : peers_) {
    if (peer.state == Peer::State::kFree) continue;
    polled_.push_back(&peer);
    polled->push_back({peer.IsLost() ? -1 : peer.connection.get(), POLLIN, 0});
  }
}

PeerTable::Time PeerTable::next() const {
  Time next = accept_from_ > MonotonicNow() ? accept_from_ : Time::max();
  for (const Peer& peer : peers_) {
    if (peer.state == Peer::State::kSilent) next = std::min(next, peer.since + kHelloTimeout);
  }
  return next;
}

void PeerTable::Handle(const pollfd* polled, Time now) {
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    Peer* peer = polled_[i];
    if (peer->state == Peer::State::kFree) continue;
    if (polled[i].fd < 0) {
      Drop(peer);  // it will reconnect
    } else if (polled[i].revents != 0) {
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
    AskedToYield(peer, message.port);
  } else {
    Refuse(peer, Rejection::kBadMessage, "an unexpected message");
  }
  peer->received.Close();
}

void PeerTable::AskedToYield(Peer* peer, uint32_t port) {
  const uid_t user = peer->credentials.user;
  if (user == options_.user || user == 0) {
    asks_to_yield_ = peer;
    asked_port_ = port;
  } else {
    Refuse(peer, Rejection::kForeignUser, "only this user or root may ask for the port");
  }
}

// Returns false if there is no slot. If a user has too many members, its newest one gives way.
bool PeerTable::MakeRoomForMember(const Peer& newcomer) {
  if (members_ < options_.max_members) return true;
  Peer* newest = peers_.MemberThatGivesWay(newcomer.credentials.user);
  if (newest == nullptr) return false;
  Refuse(newest, Rejection::kNoRoom,
         absl::StrCat("all ", options_.max_members,
                      " places are taken, and its user has more than its share of them"));
  return true;
}

void PeerTable::Welcome(Peer* peer) {
  Rejection reason{};
  std::string error;
  ProcessSnapshot snapshot;
  if (!peer->segment.Map(&peer->received, &snapshot, &reason, &error)) {
    Refuse(peer, reason, error);
    return;
  }
  if (own_memory_ != nullptr && peer->segment.IsSameMemory(own_memory_->identity())) {
    Refuse(peer, Rejection::kDuplicate, "this memory is the server's own");
    return;
  }
  // The process reconnected before its old connection was seen to end.
  for (Peer& other : peers_) {
    if (&other == peer || !other.segment.IsSameMemory(peer->segment)) continue;
    if (other.credentials.user != peer->credentials.user) {
      Refuse(peer, Rejection::kForeignClaim, "this memory is another user's process'");
      return;
    }
    if (asks_to_yield_ == &other) asks_to_yield_ = nullptr;
    Drop(&other);
  }
  if (!MakeRoomForMember(*peer)) {
    Refuse(peer, Rejection::kNoRoom,
           absl::StrCat(options_.max_members, " processes have handed over already"));
    return;
  }
  const uid_t user = peer->credentials.user;
  if (!IsItself(snapshot, peer->credentials) && kept_.IsAnothers(snapshot, user)) {
    Refuse(peer, Rejection::kForeignClaim,
           absl::StrCat("it claims to be process ", snapshot.pid,
                        ", which has ended and belonged to another user"));
    return;
  }
  // The kept process has the same labels: both on one page would be added up.
  kept_.ForgetSame(snapshot, user);
  peer->state = Peer::State::kMember;
  peer->process = ProcessIdOf(peer->credentials.pid);
  peer->order = ++last_order_;
  PageRoom::Price(snapshot, peer);
  ++members_;
  members_changed_ = true;
  FitPage();
  if (peer->state != Peer::State::kMember) return;
  // All processes that are not visible here have pid 0.
  if (peer->credentials.pid > 0) rejections_.Forget(peer->credentials.pid);
  Send(peer->connection.get(), Message(MessageType::kWelcome));
}

// Refuses members until the page fits.
void PeerTable::FitPage() {
  while (Peer* largest = room_.Make()) {
    Refuse(largest, Rejection::kPageFull,
           absl::StrCat("the page is full: user ", largest->credentials.user,
                        " has most measurements on it, and this process most of that user's"));
  }
}

void PeerTable::Refuse(Peer* peer, Rejection reason, const std::string& why) {
  rejections_.Count(*peer, reason, "was refused: " + why);
  Decline(peer, why);
}

// Refuses a peer without counting or logging it.
void PeerTable::Decline(Peer* peer, const std::string& why) {
  HandoverMessage message = MakeMessage(MessageType::kRefused);
  message.SetText(why);
  Send(peer->connection.get(), message);
  Drop(peer);
}

// Handles the end of a connection; most likely its process has ended.
void PeerTable::End(Peer* peer, Time now) {
  if (peer->state == Peer::State::kMember) {
    ProcessSnapshot snapshot;
    Rejection reason{};
    std::string error;
    // With its last calls, if there is room for them.
    const ReadWish wish{ReadWish::LastCalls::kOfUnfinished};
    if (peer->segment.Read(&snapshot, &reason, &error, wish) ||
        peer->segment.Read(&snapshot, &reason, &error)) {
      const bool is_itself = IsItself(snapshot, peer->credentials);
      SetCredentials(*peer, &snapshot);
      kept_.Keep(std::move(snapshot), *peer, is_itself, now);
    } else {
      rejections_.CountSilently(reason);
    }
  }
  Drop(peer);
}

void PeerTable::EndDead(Time now) {
  if (now < check_members_at_) return;
  check_members_at_ = now + kMembersCheckPeriod;
  for (Peer& peer : peers_) {
    // Skips members of unknown start time: another process may have the pid.
    const bool can_be_dead = peer.state == Peer::State::kMember && peer.process.start != 0;
    if (can_be_dead && IsDead(peer.process)) End(&peer, now);
  }
}

void PeerTable::Drop(Peer* peer) {
  if (peer->state == Peer::State::kMember) {
    --members_;
    members_changed_ = true;
  }
  if (asks_to_yield_ == peer) asks_to_yield_ = nullptr;
  peer->Reset();
}

void PeerTable::TellMembers() {
  members_changed_ = false;
  const HandoverMessage message = Message(MessageType::kMembers);
  for (const Peer& peer : peers_) {
    // A member that does not read misses the number, and waits a little longer or shorter in an
    // election.
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

void PeerTable::CloseAll() {
  for (Peer& peer : peers_) Drop(&peer);
  members_changed_ = false;
}

}  // namespace nccl_pulse
