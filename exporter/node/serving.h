// What the process that serves a node holds: the port, the name of the hand-over's socket, the
// processes that came, and the file that lists the endpoint.
//
// Thread: the server's.
#ifndef EXPORTER_NODE_SERVING_H_
#define EXPORTER_NODE_SERVING_H_

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/base/log_level.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/node/announcer.h"
#include "exporter/node/listener.h"
#include "exporter/node/peer_table.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Serving {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Serving(const PeerOptions& peers, const std::string& service_directory, LogFunction log);

  // Both: 0, or an errno; EADDRINUSE when another has it.
  int TakeName(const std::string& name) { return ListenOn(name, &name_listener_); }
  int TakePort(const ListenAddress& address, Listener* listener) {
    return OpenAt(address, &listener_, listener);
  }
  void LeaveName() { name_listener_.Close(); }

  // Has both. `socket_path`: of a Unix socket for HTTP, to be removed; `memory`: this process' own
  // segment. No client is accepted before `expected_members` have come, or kGatherTime has passed.
  void Begin(const std::string& address, uint16_t port, bool https, const std::string& socket_path,
             const SharedDescriptor* memory, int expected_members, Time now);
  // For an agent that does not know how many will come: it gathers for a shorter time.
  void GatherUntil(Time time) { accept_from_ = time; }

  int listener() const { return listener_.get(); }
  // No client is to be accepted before.
  Time accept_from() const { return accept_from_; }

  void AppendPolled(std::vector<pollfd>* polled, bool accepting);
  Time next() const { return peers_.next(); }
  // True when a process that is allowed to has asked for the port. Then Yield or RefuseYield is
  // next.
  bool Handle(const pollfd* polled, Time now);
  // Takes those for ended that are, and removes what others have left behind, now and then.
  void CleanUp(Time now);
  // The program has closed the port, or the name.
  bool IsLost() const { return listener_.is_lost() || name_listener_.is_lost(); }
  void RefuseYield(const std::string& why) { peers_.RefuseYield(why); }
  // Leaves the port and the members. Returns how many will come to the next server.
  int Yield(Time now);

  void Read(SnapshotSet* set, Time now, const ReadWish& wish) { peers_.Read(set, now, wish); }
  // Takes back what is announced.
  void SayGoodbye();
  void Close();

 private:
  const LogFunction log_;
  SharedDescriptor listener_;
  SharedDescriptor name_listener_;
  bool polls_name_ = false;  // in this round
  PeerTable peers_;
  Announcer announcer_;
  std::string socket_path_;
  int expected_members_ = 0;
  Time accept_from_{};
  const bool is_agent_;
  Time clean_at_{};
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVING_H_
