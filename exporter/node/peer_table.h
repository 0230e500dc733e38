// The processes that handed their segments over to this server, and, in an agent, the last state of
// those that ended.
//
//   connected --kHello, checked--> member --closed--> gone, or kept as ended (agent)
//      |  silent for kHelloTimeout, or replaced by a newer one when kMaxSilent are silent
//      +--> closed
//
// Bounded: kMaxMembers members, two descriptors each; kMaxSilent connections that have not said
// hello; one message of each connection per round; as many ended processes, for as long, as the
// agent's options say; kMaxProcessBytes of measurements from each, kMaxPageBytes from all. A flood
// of connections displaces other silent ones and nobody else: an honest process says hello before
// it is accepted.
//
// Of each of these the user who has most gives way (page_share.h): its newest member, its silent
// connection that is oldest, on a full page what it left behind, then the histograms of its
// finalized communicators, then the largest of its members. And a user says nothing about another
// one's processes: who claims to be one, and communicators that are another user's already, are
// left out (ownership.h).
//
// Thread: the server's, but for CloseDescriptors.
#ifndef EXPORTER_NODE_PEER_TABLE_H_
#define EXPORTER_NODE_PEER_TABLE_H_

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/rejection.h"
#include "exporter/exposition/families.h"
#include "exporter/exposition/page_share.h"
#include "exporter/node/handover.h"
#include "exporter/node/log_level.h"
#include "exporter/node/ownership.h"
#include "exporter/node/peer_segment.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr int kMaxMembers = 256;
inline constexpr int kMaxSilent = 16;
inline constexpr std::chrono::milliseconds kHelloTimeout{5000};
// What a server that is no agent remembers of processes that ended, a few KiB each, so that it can
// say for whom the others wait.
inline constexpr std::size_t kMaxEnded = 64;
inline constexpr std::chrono::minutes kRememberEnded{10};
inline constexpr std::chrono::minutes kRejectionLogPause{1};

struct PeerOptions {
  bool agent = false;      // run by root, an agent takes every user's processes
  uid_t user = geteuid();  // who runs this server
  // Who is at the other end; for tests, of which none can be several users everywhere.
  bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
  uint32_t pid_namespace = OwnPidNamespace();  // in which the pids count that it tells
  int max_members = kMaxMembers;
  uint64_t max_page_bytes = kMaxPageBytes;
  std::chrono::milliseconds keep{0};  // how long an ended process stays on the page
  int keep_processes = 0;             // and how many of them at most
};

class PeerTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  PeerTable(const PeerOptions& options, LogFunction log);

  // What members are told, and the segment of this process itself (-1: none), which nobody else may
  // hand over.
  void Open(std::string address, uint16_t port, int own_memory);
  void Accept(int listener, Time now);
  // Not before: no descriptor was left, and asking again at once would spin.
  Time accept_from() const { return accept_from_; }

  // For poll(2): one entry for each connection, in an order that Handle knows.
  void AppendPolled(std::vector<pollfd>* polled);
  // When Handle has something to do without an event.
  Time next() const;
  // `polled` points at what AppendPolled appended.
  void Handle(const pollfd* polled, Time now);
  // After Handle and Accept: tells the members how many they are, if that changed. True when
  // somebody who may has asked this server to leave its port; then Yield or RefuseYield is next.
  bool EndRound();

  // Tells who asked that `members` processes will come, and the members to leave the port alone for
  // `delay`; closes all connections.
  void Yield(std::chrono::milliseconds delay, int members);
  // An agent does not yield.
  void RefuseYield(const std::string& why);

  int members() const { return members_; }
  // Adds the members' snapshots, the kept ones, and what was rejected so far.
  void Read(SnapshotSet* set, Time now);

  void CloseAll();
  // Async-signal-safe.
  void CloseDescriptors();

 private:
  struct Peer {
    enum class State { kFree, kSilent, kMember };

    State state = State::kFree;
    SharedDescriptor connection;
    SharedDescriptor received;  // what came along with the message that is being looked at
    PeerSegment segment;
    Credentials credentials;
    Time since{};
    uint64_t order = 0;  // of their coming, from 1 on; members
    uint64_t page_bytes = 0;
    uint64_t finalized_bytes = 0;   // of histograms of finalized communicators, at the last page
    bool leaves_finalized = false;  // these are left out, and not in page_bytes
    bool said_goodbye = false;
    bool claims_foreign = false;  // some of its communicators are left out
  };
  struct Kept {
    ProcessSnapshot process;
    Time until;
    uid_t user;
    uint64_t order;
    uint64_t page_bytes;
    bool is_itself;
  };
  // What goes onto a page, and whose it is.
  struct Entry {
    ProcessSnapshot process;
    uid_t user;
    uint64_t order;
    bool is_itself;  // see Claim
    bool is_ended;   // for the diagnosis alone
    Peer* peer;      // null: kept
  };

  Peer* PlaceForPeer();
  bool TakesUser(uid_t user) const;
  bool IsItself(const ProcessSnapshot& process, const Credentials& credentials) const;
  bool MakePlaceForMember(Peer* newcomer);
  void FitPage();
  bool ForgetOldestOf(uid_t user);
  bool LeaveOutFinalizedOf(uid_t user);
  void TakeBackFinalized();
  static void Price(const ProcessSnapshot& process, Peer* peer);
  static void RemoveRefused(std::vector<Entry>* entries);
  void LeaveOutForeignClaims(std::vector<Entry>* entries);
  void CountRejection(const Peer& peer, Rejection reason, const std::string& what);
  void HandlePeer(Peer* peer, Time now);
  void Welcome(Peer* peer);
  void Refuse(Peer* peer, Rejection reason, const std::string& why);
  void End(Peer* peer, Time now);
  void Drop(Peer* peer);
  void Keep(ProcessSnapshot process, const Peer& peer, Time now);
  void ForgetKept(Time now);
  static void Forget(std::deque<Kept>* kept, std::size_t most, Time now);
  void Decline(Peer* peer, const std::string& why);
  void TellMembers();
  HandoverMessage Message(MessageType type) const;

  const PeerOptions options_;
  const LogFunction log_;
  std::string address_;
  uint16_t port_ = 0;
  dev_t own_device_ = 0;
  ino_t own_inode_ = 0;
  // Not resized after the start: the child of a fork goes through it.
  std::vector<Peer> peers_;
  std::vector<Peer*> polled_;
  Peer* asks_to_yield_ = nullptr;
  int members_ = 0;
  Time accept_from_{};
  bool members_changed_ = false;
  // The one that ended first in front.
  std::deque<Kept> kept_;
  std::deque<Kept> ended_;  // for the diagnosis alone, where none is kept
  uint64_t last_order_ = 0;
  bool logged_finalized_ = false;
  Ownership ownership_;
  RejectionCounts rejected_{};
  // One warning for each reason a minute.
  std::array<Time, kRejections> silent_until_{};
  RejectionCounts not_logged_{};
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEER_TABLE_H_
