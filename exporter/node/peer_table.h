// The processes that have handed their segments over to this server, and, in an agent, the last
// state of those that ended.
//
//             kHello, checked            the connection ends
//   connected ----------------> member ----------------------> gone, or kept as ended (agent)
//       |
//       +--> closed: silent for kHelloTimeout, or replaced by a newer one when kMaxSilent are so
//
// Everything is bounded: kMaxMembers members, with two descriptors each; kMaxSilent connections
// that have not said hello; one message of each connection per round; as many ended processes, for
// as long, as the agent's options say; kMaxProcessBytes of measurements from each, kMaxPageBytes
// from all. A flood of connections displaces other silent ones and nobody else: an honest process
// says hello before it is accepted.
//
// Where one of these bounds is reached, the user who has most gives way (page_share.h): its newest
// member; its oldest silent connection; on a full page what it left behind, then the histograms of
// its finalized communicators, then the largest of its members. And a user cannot speak for another
// one's processes: a process that claims to be one of them is left out, and so are communicators
// that belong to another user already (ownership.h).
//
// The parts: peer_places.h, kept_processes.h, page_room.h, rejection_log.h.
//
// Thread: the server's.
#ifndef EXPORTER_NODE_PEER_TABLE_H_
#define EXPORTER_NODE_PEER_TABLE_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/base/log_level.h"
#include "exporter/diagnosis/rejection.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/node/handover.h"
#include "exporter/node/kept_processes.h"
#include "exporter/node/ownership.h"
#include "exporter/node/page_entry.h"
#include "exporter/node/page_room.h"
#include "exporter/node/peer.h"
#include "exporter/node/peer_options.h"
#include "exporter/node/peer_places.h"
#include "exporter/node/rejection_log.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PeerTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  PeerTable(const PeerOptions& options, LogFunction log);

  // What members are told, and the segment of this process itself (null: none), which nobody else
  // may hand over.
  void Open(std::string address, uint16_t port, const SharedDescriptor* own_memory);
  void Accept(int listener, Time now);
  // Takes those for ended whose process is, though somebody keeps their connection open. Looks
  // every kMembersCheckPeriod.
  void EndDead(Time now);
  // Not before: no descriptor was left, and asking again at once would spin.
  Time accept_from() const { return accept_from_; }

  // Adds what poll(2) needs: one entry for each connection, in an order that Handle knows.
  void AppendPolled(std::vector<pollfd>* polled);
  // Returns when Handle has something to do without an event.
  Time next() const;
  // `polled` points at what AppendPolled appended.
  void Handle(const pollfd* polled, Time now);
  // After Handle and Accept: tells the members how many they are, if that changed. True when
  // a process that is allowed to has asked for the port; then Yield or RefuseYield is next.
  bool EndRound();

  // Tells who asked that `members` processes will come, and the members to leave the port alone for
  // `delay`; closes all connections.
  void Yield(std::chrono::milliseconds delay, int members);
  // An agent does not yield.
  void RefuseYield(const std::string& why);

  int members() const { return members_; }
  // Adds the members' snapshots, the kept ones, and what was rejected so far.
  void Read(SnapshotSet* set, Time now, const ReadWish& wish = {});

  void CloseAll();

 private:
  bool TakesUser(uid_t user) const;
  void SetCredentials(const Peer& peer, ProcessSnapshot* process) const;
  bool IsItself(const ProcessSnapshot& process, const Credentials& credentials) const;
  bool MakePlaceForMember(const Peer& newcomer);
  void FitPage();
  static void RemoveRefused(std::vector<PageEntry>* entries);
  void LeaveOutForeignProcesses(std::vector<PageEntry>* entries);
  void LeaveOutForeignCommunicators(PageEntry* entry);
  void HandlePeer(Peer* peer, Time now);
  void AskedToYield(Peer* peer);
  void Welcome(Peer* peer);
  void Refuse(Peer* peer, Rejection reason, const std::string& why);
  void End(Peer* peer, Time now);
  void Drop(Peer* peer);
  void Decline(Peer* peer, const std::string& why);
  void TellMembers();
  HandoverMessage Message(MessageType type) const;

  const PeerOptions options_;
  std::string address_;
  uint16_t port_ = 0;
  const SharedDescriptor* own_memory_ = nullptr;
  PeerPlaces peers_;
  std::vector<Peer*> polled_;
  Peer* asks_to_yield_ = nullptr;
  int members_ = 0;
  Time accept_from_{};
  Time check_members_at_{};
  bool members_changed_ = false;
  uint64_t last_order_ = 0;
  KeptProcesses kept_;
  PageRoom room_;
  Ownership ownership_;
  RejectionLog rejections_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEER_TABLE_H_
