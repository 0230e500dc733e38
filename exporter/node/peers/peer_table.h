// Holds the processes that have handed their segments to this server, and the last state of ended
// ones.
//
//             kHello, checked            the connection ends
//   connected ----------------> member ----------------------> gone, or kept as ended
//       |
//       +--> closed: silent for kHelloTimeout, or replaced by a newer one beyond kMaxSilent
//
// Everything is bounded:
//   - kMaxMembers members, with two descriptors each;
//   - kMaxSilent connections that have not said hello;
//   - one message per connection and round;
//   - ended processes, by an agent's options or kMaxEnded;
//   - kMaxProcessBytes of measurements per process, kMaxPageBytes in total.
// A flood of connections displaces only other silent ones: an honest process sends its hello
// at once, before the server accepts the connection.
//
// At a bound, the user with the largest share loses (page_share.h): its newest member, or its
// oldest silent connection. On a full page it loses ended processes first, then histograms of
// finalized communicators, then its largest member. Processes that claim to be another user's, and
// communicators that another user owns, are left out (ownership.h).
//
// Thread: as Node (node.h).
#ifndef EXPORTER_NODE_PEERS_PEER_TABLE_H_
#define EXPORTER_NODE_PEERS_PEER_TABLE_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/diagnosis/facts/rejection.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/node/handover.h"
#include "exporter/node/peers/kept_processes.h"
#include "exporter/node/peers/ownership.h"
#include "exporter/node/peers/page_room.h"
#include "exporter/node/peers/peer.h"
#include "exporter/node/peers/peer_options.h"
#include "exporter/node/peers/peer_slots.h"
#include "exporter/node/peers/rejection_log.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PeerTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  PeerTable(const PeerOptions& options, LogFunction log);

  // Sets the address that is sent to members. `own_memory`: this process' own segment (null: none);
  // another process that hands it over is refused.
  void Open(std::string address, uint16_t port, const SharedDescriptor* own_memory);
  void Accept(int listener, Time now);
  // Ends members whose process is dead although another process keeps the connection open. Checks
  // every kMembersCheckPeriod.
  void EndDead(Time now);
  // Returns the time before which no connection may be accepted. It is in the future if the process
  // had no descriptor left: retrying at once would spin.
  Time accept_from() const { return accept_from_; }

  // Appends one entry for poll(2) per connection; Handle knows their order.
  void AppendPolled(std::vector<pollfd>* polled);
  // Returns when Handle has work without an event.
  Time next() const;
  // Handles the entries that AppendPolled appended, from `polled` on.
  void Handle(const pollfd* polled, Time now);
  // Call after Handle and Accept. Tells the members a changed number of members. Returns true if an
  // authorized process has asked for the port; then call Yield or RefuseYield.
  bool EndRound();
  // Returns the port at which the process that asked will serve.
  uint32_t asked_port() const { return asked_port_; }

  // Tells the asking process how many processes will connect to it (`members`), and the members not
  // to bind the port for `delay`. Closes all connections.
  void Yield(std::chrono::milliseconds delay, int members);
  // Refuses the request for the port.
  void RefuseYield(const std::string& why);

  int members() const { return members_; }
  // Adds the snapshots of members and ended processes, and the rejections so far.
  void Read(SnapshotSet* set, Time now, const ReadWish& wish = {});

  void CloseAll();

 private:
  bool TakesUser(uid_t user) const;
  void SetCredentials(const Peer& peer, ProcessSnapshot* process) const;
  bool IsItself(const ProcessSnapshot& process, const Credentials& credentials) const;
  bool MakeRoomForMember(const Peer& newcomer);
  void FitPage();
  static void RemoveRefused(std::vector<PageEntry>* entries);
  void LeaveOutForeignProcesses(std::vector<PageEntry>* entries);
  void LeaveOutForeignCommunicators(PageEntry* entry);
  void HandlePeer(Peer* peer, Time now);
  void AskedToYield(Peer* peer, uint32_t port);
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
  PeerSlots peers_;
  std::vector<Peer*> polled_;
  Peer* asks_to_yield_ = nullptr;
  uint32_t asked_port_ = 0;  // where the process of asks_to_yield_ will serve
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

#endif  // EXPORTER_NODE_PEERS_PEER_TABLE_H_
