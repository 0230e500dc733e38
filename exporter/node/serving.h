// Holds the state of a node's server: the port, the hand-over socket's name, the members and the
// file that announces the endpoint.
//
// Thread: as Node (node.h).
#ifndef EXPORTER_NODE_SERVING_H_
#define EXPORTER_NODE_SERVING_H_

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/node/announcer.h"
#include "exporter/node/listener.h"
#include "exporter/node/peers/peer_table.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Serving {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Serving(const PeerOptions& peers, const std::string& service_directory, LogFunction log);

  // TakeName and TakePort return 0 or an errno: EADDRINUSE if the name or port is taken.
  int TakeName(const std::string& name) { return ListenOn(name, &name_listener_); }
  int TakePort(const ListenAddress& address, Listener* listener) {
    return OpenAt(address, &listener_, listener);
  }
  void LeaveName() { name_listener_.Close(); }

  // Begins to serve; call with both taken. `socket_path`: Unix socket for HTTP, to be removed at
  // the end. `memory`: this process' own segment. No client is accepted until `expected_members`
  // have come or kGatherTime has passed.
  void Begin(const std::string& address, uint16_t port, bool https, const std::string& socket_path,
             const SharedDescriptor* memory, int expected_members, Time now);
  // Sets the time until which members are gathered. For an agent, which does not know their number.
  void GatherUntil(Time time) { accept_from_ = time; }

  int listener() const { return listener_.get(); }
  // Returns the time before which no client may be accepted.
  Time accept_from() const { return accept_from_; }

  void AppendPolled(std::vector<pollfd>* polled, bool accepting);
  Time next() const { return peers_.next(); }
  // Returns true if an authorized process has asked for the port. Then call Yield or RefuseYield.
  bool Handle(const pollfd* polled, Time now);
  uint32_t asked_port() const { return peers_.asked_port(); }
  // Ends dead members. Periodically restores the announced file and, in an agent, removes
  // abandoned ones.
  void CleanUp(Time now);
  // True if the program has closed the port or the name.
  bool IsLost() const { return listener_.is_lost() || name_listener_.is_lost(); }
  void RefuseYield(const std::string& why) { peers_.RefuseYield(why); }
  // Gives up the port and the members. Returns how many processes will join the next server.
  int Yield(Time now);

  void Read(SnapshotSet* set, Time now, const ReadWish& wish) { peers_.Read(set, now, wish); }
  // Withdraws the announced file, and removes the Unix socket.
  void SayGoodbye();
  void Close();

 private:
  const LogFunction log_;
  SharedDescriptor listener_;
  SharedDescriptor name_listener_;
  bool polls_name_ = false;  // whether the last AppendPolled included name_listener_
  PeerTable peers_;
  Announcer announcer_;
  std::string socket_path_;
  int expected_members_ = 0;
  Time accept_from_{};
  const bool is_agent_;
  Time clean_at_{};  // when to look next for abandoned files
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVING_H_
