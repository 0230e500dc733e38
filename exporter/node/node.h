// One endpoint for the processes of a node: which of them serves it, and what the others do.
//
//            bound the name and the port
//   electing ---------------------------> serving
//    ^ |  ^                                  |
//    | |  +---- an agent asked for the port -+
//    | |
//    | |    another process has the name               welcome
//    | +---------------------------------> joining ---------------> member
//    |                                        |                        |
//    +---- the server is gone, or asked to elect again, or refused ----+
//
// The name is that of the hand-over's socket (handover.h). It exists once per user and port. Only
// the process that binds it tries the port, so two processes of one user never serve a port each.
// If another program or another user has the port, the same happens at the next one, up to
// kFurtherPorts on: the node's processes meet there. Port 0 is for one process alone: it has no
// name, and nobody hands over to it.
//
// A process hands over to a server of its own user, or to an agent that root runs. Every user's
// processes look for root's agent first.
//
// Takeover. When the server ends, the kernel closes its connections. Each member then waits a
// random time of at most kMaxElectionDelay and tries to serve. The winner accepts no HTTP client
// until as many others have come as the last server told, or until kGatherTime has passed. So no
// page lacks a process. Counters live in the processes' own segments, and so they never step back.
//
// A server that is stopped (SIGSTOP) holds name and port, and cannot be replaced. Every
// kCheckPeriod a member checks whether the name is free and whether the server's process is dead,
// or about to be: a connection that somebody else keeps open must not make it wait for ever. While
// a dead process' name and port are still taken, the members meet at the next port; then they come
// back.
//
// The job may close what this has open (metrics/shared_descriptor.h). A server that has lost its
// port or its name leaves both and elects again, as a member does that has lost its connection.
//
// A segment in private memory cannot be handed over. Its process never joins; it serves on the next
// free port.
//
// Thread: Open on the caller's, before there is another; all else on the server's.
#ifndef EXPORTER_NODE_NODE_H_
#define EXPORTER_NODE_NODE_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "exporter/base/log_level.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/node/handover.h"
#include "exporter/node/listener.h"
#include "exporter/node/node_times.h"
#include "exporter/node/peer_options.h"
#include "exporter/node/server_link.h"
#include "exporter/node/service_file.h"
#include "exporter/node/serving.h"

namespace nccl_pulse {

struct NodeOptions {
  std::string listen_address;  // as ParseListenAddress takes it
  // The memfd to hand over; null: there is none. It outlives the node.
  const SharedDescriptor* memory = nullptr;
  PeerOptions peers;
  std::string service_directory;  // for a ServiceFile; "": none
  bool https = false;             // what the file says of the endpoint
};

class Node {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Node(NodeOptions options, LogFunction log);

  // The first election. False, with the reason in `error`, when the address is bad or there is
  // nowhere to serve. Takes microseconds, or up to kJoinPatience (an agent: kAgentPatience).
  bool Open(std::string* error);

  // Where the metrics of this process are: here, or at its server. "" while that is not known: the
  // log then says so when it is.
  std::string address() const { return is_settled() ? address_ : std::string(); }
  // See exporter/node/service_file.h.
  std::string ServiceTargets() const {
    return nccl_pulse::ServiceTargets(address_, port_, options_.https);
  }
  uint16_t port() const { return port_; }
  bool is_serving() const { return role_ == Role::kServing; }
  bool is_settled() const { return role_ == Role::kServing || role_ == Role::kMember; }
  // For HTTP clients; -1 while not serving.
  int listener() const { return serving_.listener(); }
  // No client is to be accepted before.
  Time accept_from() const { return serving_.accept_from(); }

  // For poll(2). accepting: whether another process may hand over now.
  void AppendPolled(std::vector<pollfd>* polled, bool accepting = true);
  Time next() const;
  // `polled` points at what AppendPolled appended.
  void Handle(const pollfd* polled, Time now);

  // Adds what the members measured.
  void Read(SnapshotSet* set, Time now, const ReadWish& wish = {}) {
    serving_.Read(set, now, wish);
  }

  // The process is about to end in order: says so, and takes back what is announced. Everything
  // stays open: what is counted until the end is still to be read.
  void SayGoodbye();
  void Close();

 private:
  enum class Role { kElecting, kJoining, kMember, kServing };
  bool OpenProcess(std::string* error);
  bool OpenAgent(std::string* error);
  Attempt Elect(Time now, std::string* failure);
  Attempt Try(const ListenAddress& address, Time now, std::string* failure);
  Attempt Join(uid_t owner, const ListenAddress& address, Time now);
  void Serve(const Listener& listener, Time now);
  void ElectAndSettle(Time now);
  void HandleServer(Time now);
  void CheckServer(Time now);
  void CheckServing(Time now);
  void LoseServer(Time now, std::chrono::milliseconds least_delay);
  void Yield(Time now);
  bool shared() const { return wanted_.port != 0 || !wanted_.path.empty(); }
  bool can_join() const {
    return options_.memory != nullptr && options_.memory->get() >= 0 && shared();
  }
  std::chrono::milliseconds RandomDelay();
  void Log(LogLevel level, const std::string& message);

  const NodeOptions options_;
  const LogFunction log_;
  ListenAddress wanted_;
  std::string address_;
  uint16_t port_ = 0;
  Role role_ = Role::kElecting;
  bool leaving_ = false;  // goodbye was said: becomes nothing any more
  std::minstd_rand random_;

  Serving serving_;
  ServerLink server_;
  int members_ = 0;           // of the server, as it told
  int expected_members_ = 0;  // how many will come if this process serves next

  Time check_at_{};  // serving
  // Electing.
  Time elect_at_ = Time::max();
  Time port_returns_until_{};  // till then a port in use may be the last server's, still closing
  bool logged_nowhere_ = false;
  bool opened_ = false;
  std::string logged_address_;  // "": none yet
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_NODE_H_
