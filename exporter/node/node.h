// Runs one HTTP endpoint for all processes of a node: elects the process that serves (the server),
// and makes the others its members. An agent (`pulse agent`) also takes part, and takes precedence.
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
// The name is that of the hand-over socket (handover.h). It exists once per user and port. Only its
// holder tries the port, so two processes of one user never serve a port each. If another program
// or user has the port, the processes try the next one, up to kFurtherPorts further, and meet
// there. With port 0 each process serves alone, at any free port, without name and hand-overs.
//
// A process hands over only to a server of its own user, or to root's agent, which it looks for
// first.
//
// Takeover: when the server ends, the kernel closes its connections. Each member waits a random
// time of at most kMaxElectionDelay, then tries to serve. The winner accepts no HTTP client until
// the other members that the last server announced have come, or until kGatherTime has passed. So
// no page lacks a process. Counters are in the processes' own segments, so they never step back.
//
// A stopped server (SIGSTOP) holds name and port, and cannot be replaced. Another process may keep
// a dead server's connection open. So every kCheckPeriod a member checks whether the name is free
// and whether the server's process is dead or dumping core. While a dead process' name and port are
// still taken, the members meet at the next port; then they return.
//
// The job may close this library's descriptors (metrics/shared_descriptor.h). A server that has
// lost its port or name gives up both and starts an election. So does a member that has lost its
// connection.
//
// A segment in private memory cannot be handed over. Its process never joins, and serves on the
// next free port.
//
// Thread: Open on the caller's, before the server thread starts; all else on the server thread.
#ifndef EXPORTER_NODE_NODE_H_
#define EXPORTER_NODE_NODE_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/node/handover.h"
#include "exporter/node/listener.h"
#include "exporter/node/node_times.h"
#include "exporter/node/peers/peer_options.h"
#include "exporter/node/server_link.h"
#include "exporter/node/service_file.h"
#include "exporter/node/serving.h"

namespace nccl_pulse {

struct NodeOptions {
  std::string listen_address;  // in the syntax of ParseListenAddress
  // The memfd to hand over; null: none. Must outlive the node.
  const SharedDescriptor* memory = nullptr;
  PeerOptions peers;
  std::string service_directory;  // for a ServiceFile; "": none
  bool https = false;             // for the file's scheme label
};

class Node {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Node(NodeOptions options, LogFunction log);

  // Runs the first election. Returns false, with the reason in `error`, if the address is bad or
  // cannot be served on. Takes microseconds, at most kJoinPatience (an agent: kAgentPatience).
  bool Open(std::string* error);

  // Returns where this process' metrics are served: here, or by its server. "" until that is known;
  // the log then reports it.
  std::string address() const { return is_settled() ? address_ : std::string(); }
  // See exporter/node/service_file.h.
  std::string ServiceTargets() const {
    return nccl_pulse::ServiceTargets(address_, port_, options_.https);
  }
  uint16_t port() const { return port_; }
  bool is_serving() const { return role_ == Role::kServing; }
  bool is_settled() const { return role_ == Role::kServing || role_ == Role::kMember; }
  // Returns the HTTP listening socket; -1 while not serving.
  int listener() const { return serving_.listener(); }
  // Returns the time before which no client may be accepted.
  Time accept_from() const { return serving_.accept_from(); }

  // Appends entries for poll(2). `accepting`: whether processes may hand over now.
  void AppendPolled(std::vector<pollfd>* polled, bool accepting = true);
  // Returns when Handle has work without an event.
  Time next() const;
  // Handles the entries that AppendPolled appended, from `polled` on.
  void Handle(const pollfd* polled, Time now);

  // Adds the members' snapshots.
  void Read(SnapshotSet* set, Time now, const ReadWish& wish = {}) {
    serving_.Read(set, now, wish);
  }

  // Call before the process exits: informs the peers and withdraws the announced file. Everything
  // stays open, so that scrapes still get the last counts.
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
  bool leaving_ = false;  // goodbye was said: takes part in no election
  std::minstd_rand random_;

  Serving serving_;
  ServerLink server_;
  int members_ = 0;           // the server's members, as it reported
  int expected_members_ = 0;  // members to expect if this process serves next

  Time check_at_{};  // serving: when to check next whether the sockets are lost
  // Electing.
  Time elect_at_ = Time::max();
  Time port_returns_until_{};  // until then, a port in use may be the last server's, still closing
  bool logged_nowhere_ = false;
  bool opened_ = false;
  std::string logged_address_;  // "": none yet
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_NODE_H_
