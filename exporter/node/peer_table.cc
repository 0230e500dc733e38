#include "exporter/node/peer_table.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/node/monotonic_clock.h"

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

void ClearFinalizedHistograms(ProcessSnapshot* process) {
  for (CommunicatorSnapshot& each : process->communicators) {
    if (each.finalized) std::vector<LatencySnapshot>().swap(each.latencies);
  }
}

}  // namespace

PeerTable::PeerTable(const PeerOptions& options, LogFunction log)
    : options_(options), log_(std::move(log)), peers_(options.max_members + kMaxSilent) {}

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
    const bool is_known = options_.credentials(peer->connection.get(), &peer->credentials);
    if (!is_known || !TakesUser(peer->credentials.user)) {
      const std::string why = "this server takes its own user's processes only";
      // Everybody looks for an agent of root's first, and goes on to the next port: no news.
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

// A pid that the kernel tells counts in this server's PID namespace, and in no other: one that says
// so in a container says nothing that the kernel could confirm.
bool PeerTable::IsItself(const ProcessSnapshot& process, const Credentials& credentials) const {
  return credentials.pid > 0 && process.pid == credentials.pid &&
         process.pid_namespace == options_.pid_namespace;
}

bool PeerTable::TakesUser(uid_t user) const {
  return user == options_.user || user == 0 || (options_.agent && options_.user == 0);
}

// A free place, or that of the silent connection that has been here longest, of the user that has
// most of them. There always is one: Welcome keeps kMaxSilent places from members.
PeerTable::Peer* PeerTable::PlaceForPeer() {
  Peer* free = nullptr;
  Shares silent_of;
  int silent = 0;
  for (Peer& peer : peers_) {
    if (peer.state == Peer::State::kFree) free = &peer;
    if (peer.state != Peer::State::kSilent) continue;
    ++silent;
    ++silent_of[peer.credentials.user];
  }
  if (silent < kMaxSilent && free != nullptr) return free;
  const std::optional<uid_t> user = LargestShare(silent_of);
  Peer* oldest = nullptr;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kSilent || peer.credentials.user != user) continue;
    if (oldest == nullptr || peer.since < oldest->since) oldest = &peer;
  }
  return oldest;
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
    if (user == options_.user || user == 0) {
      asks_to_yield_ = peer;
    } else {
      Refuse(peer, Rejection::kForeignUser, "only this user or root may ask for the port");
    }
  } else {
    Refuse(peer, Rejection::kBadMessage, "a message that was not to be expected");
  }
  peer->received.Close();
}

// False when there is none for it. Else there is one: where a user has too many, the newest of them
// goes.
bool PeerTable::MakePlaceForMember(Peer* newcomer) {
  if (members_ < options_.max_members) return true;
  Shares members_of;
  for (const Peer& peer : peers_) {
    if (peer.state == Peer::State::kMember) ++members_of[peer.credentials.user];
  }
  const uid_t user = GivesWay(members_of, newcomer->credentials.user);
  if (user == newcomer->credentials.user) return false;
  Peer* newest = nullptr;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember || peer.credentials.user != user) continue;
    if (newest == nullptr || peer.order > newest->order) newest = &peer;
  }
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
  if (peer->segment.IsSameMemory(own_device_, own_inode_)) {
    Refuse(peer, Rejection::kDuplicate, "this memory is the server's own");
    return;
  }
  // A process that comes again, whose old connection has not been seen to end.
  for (Peer& other : peers_) {
    if (&other == peer || !other.segment.IsSameMemory(peer->segment)) continue;
    if (other.credentials.user != peer->credentials.user) {
      Refuse(peer, Rejection::kForeignClaim, "this memory is another user's process'");
      return;
    }
    if (asks_to_yield_ == &other) asks_to_yield_ = nullptr;
    Drop(&other);
  }
  if (!MakePlaceForMember(peer)) {
    Refuse(peer, Rejection::kNoRoom,
           absl::StrCat(options_.max_members, " processes have handed over already"));
    return;
  }
  const uid_t user = peer->credentials.user;
  const auto is_anothers = [&](const Kept& kept) {
    return kept.user != user && IsSameProcess(kept.process, snapshot);
  };
  if (!IsItself(snapshot, peer->credentials) &&
      std::any_of(kept_.begin(), kept_.end(), is_anothers)) {
    Refuse(peer, Rejection::kForeignClaim,
           absl::StrCat("it says that it is process ", snapshot.pid,
                        ", which ended and was another user's"));
    return;
  }
  // Its labels are those of a process that is gone: two on one page would be added up.
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                             [&](const Kept& kept) {
                               return kept.user == user && IsSameProcess(kept.process, snapshot);
                             }),
              kept_.end());
  peer->state = Peer::State::kMember;
  peer->order = ++last_order_;
  Price(snapshot, peer);
  ++members_;
  members_changed_ = true;
  FitPage();
  if (peer->state != Peer::State::kMember) return;
  Send(peer->connection.get(), Message(MessageType::kWelcome));
}

// Makes room on the page, until all that is left fits.
void PeerTable::FitPage() {
  while (true) {
    Shares bytes_of;
    uint64_t total = 0;
    const auto add = [&](uid_t user, uint64_t bytes) {
      bytes_of[user] += bytes;
      total += bytes;
    };
    for (const Peer& peer : peers_) {
      if (peer.state == Peer::State::kMember) add(peer.credentials.user, peer.page_bytes);
    }
    for (const auto* kept : {&kept_, &ended_}) {
      for (const Kept& each : *kept) add(each.user, each.page_bytes);
    }
    if (total <= options_.max_page_bytes) return;
    const uid_t user = LargestShare(bytes_of).value_or(options_.user);
    // What lives is worth more than what is over.
    if (ForgetOldestOf(user) || LeaveOutFinalizedOf(user)) continue;
    Peer* largest = nullptr;
    for (Peer& peer : peers_) {
      if (peer.state != Peer::State::kMember || peer.credentials.user != user) continue;
      if (largest == nullptr || peer.page_bytes > largest->page_bytes ||
          (peer.page_bytes == largest->page_bytes && peer.order > largest->order)) {
        largest = &peer;
      }
    }
    if (largest == nullptr) return;
    Refuse(largest, Rejection::kPageFull,
           absl::StrCat("the page is full, and of user ", user,
                        "'s measurements, which are most of it, these are the largest"));
  }
}

bool PeerTable::ForgetOldestOf(uid_t user) {
  for (std::deque<Kept>* kept : {&ended_, &kept_}) {
    const auto oldest = std::find_if(kept->begin(), kept->end(),
                                     [&](const Kept& each) { return each.user == user; });
    if (oldest == kept->end()) continue;
    kept->erase(oldest);
    return true;
  }
  return false;
}

// Of the user's members the one that has most of it. False when none has.
bool PeerTable::LeaveOutFinalizedOf(uid_t user) {
  Peer* most = nullptr;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember || peer.credentials.user != user) continue;
    if (peer.leaves_finalized || peer.finalized_bytes == 0) continue;
    if (most == nullptr || peer.finalized_bytes > most->finalized_bytes) most = &peer;
  }
  if (most == nullptr) return false;
  most->leaves_finalized = true;
  most->page_bytes -= most->finalized_bytes;
  if (log_ && !logged_finalized_) {
    logged_finalized_ = true;
    log_(LogLevel::kWarning,
         absl::StrCat("the page is full: the histograms of finalized communicators are left out, "
                      "first those of process ",
                      most->credentials.pid, " of user ", user, "; said once"));
  }
  return true;
}

// When all would fit: so nothing comes and goes with every page.
void PeerTable::TakeBackFinalized() {
  uint64_t total = 0;
  for (const auto* kept : {&kept_, &ended_}) {
    for (const Kept& each : *kept) total += each.page_bytes;
  }
  for (const Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember) continue;
    total += peer.page_bytes + (peer.leaves_finalized ? peer.finalized_bytes : 0);
  }
  if (total > options_.max_page_bytes) return;
  for (Peer& peer : peers_) {
    if (!peer.leaves_finalized) continue;
    peer.leaves_finalized = false;
    peer.page_bytes += peer.finalized_bytes;
  }
}

void PeerTable::Price(const ProcessSnapshot& process, Peer* peer) {
  peer->finalized_bytes = FinalizedHistogramBytes(process);
  peer->page_bytes = PageBytes(process) - (peer->leaves_finalized ? peer->finalized_bytes : 0);
}

void PeerTable::Refuse(Peer* peer, Rejection reason, const std::string& why) {
  CountRejection(*peer, reason, "was refused: " + why);
  Decline(peer, why);
}

// Says no, which is no event.
void PeerTable::Decline(Peer* peer, const std::string& why) {
  HandoverMessage message = MakeMessage(MessageType::kRefused);
  message.SetText(why);
  Send(peer->connection.get(), message);
  Drop(peer);
}

void PeerTable::CountRejection(const Peer& peer, Rejection reason, const std::string& what) {
  const auto index = static_cast<std::size_t>(reason);
  ++rejected_[index];
  const Time now = MonotonicNow();
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
                    others, "; further ones are only counted for a minute, reason \"",
                    RejectionName(reason), "\""));
}

// The connection has ended, and with it, in all likelihood, the process.
void PeerTable::End(Peer* peer, Time now) {
  if (peer->state == Peer::State::kMember) {
    ProcessSnapshot snapshot;
    Rejection reason{};
    std::string error;
    if (peer->segment.Read(&snapshot, &reason, &error)) {
      Keep(std::move(snapshot), *peer, now);
    } else {
      ++rejected_[static_cast<std::size_t>(reason)];
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
  peer->said_goodbye = peer->claims_foreign = peer->leaves_finalized = false;
  peer->page_bytes = peer->finalized_bytes = 0;
  peer->credentials = Credentials();
}

void PeerTable::Keep(ProcessSnapshot process, const Peer& peer, Time now) {
  const auto& communicators = process.communicators;
  const bool all_finalized =
      !communicators.empty() &&
      std::all_of(communicators.begin(), communicators.end(),
                  [](const CommunicatorSnapshot& each) { return each.finalized; });
  process.end = peer.said_goodbye || all_finalized ? ProcessEnd::kExit : ProcessEnd::kLost;
  process.end_realtime_ns = RealtimeNs();
  const bool is_itself = IsItself(process, peer.credentials);
  if (options_.keep_processes > 0) {
    if (log_) {
      log_(LogLevel::kInfo,
           absl::StrCat("process ", process.pid, " of rank \"", process.global_rank, "\" ended (",
                        ProcessEndName(process.end), ")"));
    }
    const uint64_t bytes = PageBytes(process);
    kept_.push_back({std::move(process), now + options_.keep, peer.credentials.user, peer.order,
                     bytes, is_itself});
  } else if (!all_finalized) {
    for (CommunicatorSnapshot& communicator : process.communicators) {
      communicator.latencies.clear();
      communicator.timed_calls.clear();
    }
    const uint64_t bytes = PageBytes(process);
    ended_.push_back({std::move(process), now + kRememberEnded, peer.credentials.user, peer.order,
                      bytes, is_itself});
  }
  ForgetKept(now);
}

void PeerTable::ForgetKept(Time now) {
  Forget(&kept_, options_.keep_processes, now);
  Forget(&ended_, kMaxEnded, now);
}

void PeerTable::Forget(std::deque<Kept>* kept, std::size_t most, Time now) {
  while (!kept->empty() && kept->front().until <= now) kept->pop_front();
  while (kept->size() > most) {
    Shares kept_of;
    for (const Kept& each : *kept) ++kept_of[each.user];
    const std::optional<uid_t> user = LargestShare(kept_of);
    kept->erase(std::find_if(kept->begin(), kept->end(),
                             [&](const Kept& each) { return each.user == user; }));
  }
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
  TakeBackFinalized();
  std::vector<Entry> entries;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember) continue;
    ProcessSnapshot snapshot;
    Rejection reason{};
    std::string error;
    if (!peer.segment.Read(&snapshot, &reason, &error)) {
      Refuse(&peer, reason, error);
      continue;
    }
    Price(snapshot, &peer);
    const bool is_itself = IsItself(snapshot, peer.credentials);
    entries.push_back(
        {std::move(snapshot), peer.credentials.user, peer.order, is_itself, false, &peer});
    // Now, not at the end: so there is never more than a page and one process in memory.
    FitPage();
    RemoveRefused(&entries);
    for (Entry& entry : entries) {
      if (entry.peer->leaves_finalized) ClearFinalizedHistograms(&entry.process);
    }
  }
  for (const auto* kept : {&kept_, &ended_}) {
    for (const Kept& each : *kept) {
      entries.push_back(
          {each.process, each.user, each.order, each.is_itself, kept == &ended_, nullptr});
    }
  }
  LeaveOutForeignClaims(&entries);
  for (Entry& entry : entries) {
    (entry.is_ended ? set->ended : set->processes).push_back(std::move(entry.process));
  }
  for (int i = 0; i < kRejections; ++i) set->rejected[i] += rejected_[i];
}

void PeerTable::RemoveRefused(std::vector<Entry>* entries) {
  const auto is_refused = [](const Entry& entry) {
    return entry.peer != nullptr && entry.peer->state != Peer::State::kMember;
  };
  entries->erase(std::remove_if(entries->begin(), entries->end(), is_refused), entries->end());
}

// What another user's process is or has (ownership.h).
void PeerTable::LeaveOutForeignClaims(std::vector<Entry>* entries) {
  std::vector<Claim> claims;
  claims.reserve(entries->size());
  for (const Entry& entry : *entries) {
    claims.push_back({&entry.process, entry.user, entry.order, entry.is_itself});
  }
  ownership_.Settle(std::move(claims));
  const auto is_refused = [&](const Entry& entry) {
    const uid_t owner = ownership_.OwnerOf(entry.process);
    if (owner == entry.user) return false;
    if (entry.peer != nullptr) {
      Refuse(entry.peer, Rejection::kForeignClaim,
             absl::StrCat("it says that it is process ", entry.process.pid, " of rank \"",
                          entry.process.global_rank, "\", which is user ", owner, "'s"));
    }
    return true;
  };
  entries->erase(std::remove_if(entries->begin(), entries->end(), is_refused), entries->end());
  for (Entry& entry : *entries) {
    std::vector<CommunicatorSnapshot>& communicators = entry.process.communicators;
    const auto foreign = std::stable_partition(
        communicators.begin(), communicators.end(),
        [&](const CommunicatorSnapshot& each) { return ownership_.OwnerOf(each) == entry.user; });
    if (foreign == communicators.end()) continue;
    if (entry.peer != nullptr && !entry.peer->claims_foreign) {
      entry.peer->claims_foreign = true;
      CountRejection(*entry.peer, Rejection::kForeignClaim,
                     absl::StrCat("has communicators of another user's, such as ",
                                  absl::Hex(foreign->comm_id, absl::kZeroPad16), ", which is user ",
                                  ownership_.OwnerOf(*foreign), "'s; they are left out"));
    }
    communicators.erase(foreign, communicators.end());
  }
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
