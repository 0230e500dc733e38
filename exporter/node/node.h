// One endpoint for the processes of a node: who serves it, and what the others do meanwhile.
//
//              bound the name and the port                another process has the name
//   electing ----------------------------> serving   electing ------------------------> joining
//      ^  ^                                   |                                            |
//      welcome |  +---- an agent asked for the port --+ v
//      +--------------- the server is gone, or asked to elect again ------------------- member
//
// The name is that of the hand-over's socket (handover.h), which exists once per user and port: who
// binds it is the only one of this user that tries the port, so two of them never serve one port
// each. Is the port another program's, or another user's, the same happens at the next one, up to
// kFurtherPorts on: the node's processes meet there. Port 0 is for oneself: no name, no hand-over.
//
// Which server a process hands over to: one of its own user, or an agent of root's, which any
// user's process looks for first.
//
// Takeover. When the server ends, the kernel closes its connections. Each member then waits a
// random time of at most kMaxElectionDelay and tries. The winner accepts no HTTP client before the
// others have come to it, as many as the last server told, or kGatherTime has passed: so no page
// lacks a process. Counters live in the processes' own segments, and so they never step back.
//
// A server that is stopped (SIGSTOP) holds name and port and can not be replaced. Every
// kNameCheckPeriod a member looks whether the name is free after all, so that a connection that
// somebody else keeps open does not make it wait for ever.
//
// A segment in private memory can not be handed over: its process never joins, it serves on the
// next free port.
//
// Thread: Open on the caller's, before there is another; CloseDescriptors in the child of a fork;
// all else on the server's.
#ifndef EXPORTER_NODE_NODE_H_
#define EXPORTER_NODE_NODE_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "exporter/exposition/families.h"
#include "exporter/node/handover.h"
#include "exporter/node/listener.h"
#include "exporter/node/log_level.h"
#include "exporter/node/peer_table.h"
#include "exporter/node/service_file.h"
#include "exporter/node/shared_descriptor.h"

namespace nccl_pulse {

// How many ports are tried behind the wanted one.
inline constexpr int kFurtherPorts = 100;
inline constexpr std::chrono::milliseconds kMaxElectionDelay{200};
inline constexpr std::chrono::milliseconds kGatherTime{1000};
// An agent that found nobody may follow one that was killed: its members are about to elect, and
// nobody told how many. So long it accepts no HTTP client.
inline constexpr std::chrono::milliseconds kAgentGatherTime{500};
static_assert(kAgentGatherTime > kMaxElectionDelay);
inline constexpr std::chrono::milliseconds kNameCheckPeriod{5000};
// How long an agent that asked for the port is left alone with it.
inline constexpr std::chrono::milliseconds kYieldTime{500};
// How long Open waits: for a server that takes its time, and, an agent, for one that yields.
inline constexpr std::chrono::milliseconds kJoinPatience{250};
inline constexpr std::chrono::milliseconds kAgentPatience{10000};

struct NodeOptions {
  std::string listen_address;  // as ParseListenAddress takes it
  int memory = -1;             // the memfd to hand over; -1: there is none, or it is private
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
  int listener() const { return listener_.get(); }
  // No client is to be accepted before.
  Time accept_from() const { return accept_from_; }

  // For poll(2). accepting: whether another process may hand over now.
  void AppendPolled(std::vector<pollfd>* polled, bool accepting = true);
  Time next() const;
  // `polled` points at what AppendPolled appended.
  void Handle(const pollfd* polled, Time now);

  // Adds what the members measured.
  void Read(SnapshotSet* set, Time now) { peers_.Read(set, now); }

  // The process is about to end in order: says so, and takes back what is announced. Everything
  // stays open: what is counted until the end is still to be read.
  void SayGoodbye();
  void Close();
  // Async-signal-safe.
  void CloseDescriptors();

 private:
  enum class Role { kElecting, kJoining, kMember, kServing };
  enum class Attempt {
    kServing,
    kJoined,
    kTaken,   // by somebody with whom nothing is shared: the next port
    kNobody,  // has the name
    kBusy,    // changing hands right now: again in a moment
    kFailed,  // the address can not be used, `failure` says why
  };

  bool OpenProcess(std::string* error);
  bool OpenAgent(std::string* error);
  Attempt Elect(Time now, std::string* failure);
  Attempt Try(const ListenAddress& address, Time now, std::string* failure);
  Attempt Join(uid_t owner, const ListenAddress& address, Time now);
  void Serve(const Listener& listener, Time now);
  void ElectAndSettle(Time now);
  void HandleServer(Time now);
  void LoseServer(Time now, std::chrono::milliseconds least_delay);
  // Why nobody answered goes to `silent`, if that is not null.
  bool AskToYield(const std::string& name, uid_t owner, std::string* refusal,
                  std::string* silent = nullptr);
  bool AskOthersToYield(bool same_port_only, std::string* refusal);
  void Yield(Time now);
  bool IsRefusedBy(const std::string& name) const;
  bool shared() const { return wanted_.port != 0 || !wanted_.path.empty(); }
  bool can_join() const { return options_.memory >= 0 && shared(); }
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

  // Serving.
  SharedDescriptor listener_;
  SharedDescriptor name_listener_;
  bool polls_name_ = false;  // in this round
  PeerTable peers_;
  ServiceFile service_file_;
  std::string socket_path_;  // of a Unix socket for HTTP, to be removed
  Time accept_from_{};

  // Joining, or a member.
  SharedDescriptor server_;
  std::string server_name_;
  uid_t server_user_ = 0;
  int members_ = 0;           // as the server told
  int expected_members_ = 0;  // how many will come if this process serves next
  Time check_at_ = Time::max();
  bool warned_of_silence_ = false;
  std::vector<std::string> refused_by_;  // names not to be tried again for now
  int unanswered_ = 0;                   // connections that ended before an answer, in a row

  // Electing.
  Time elect_at_ = Time::max();
  Time port_returns_until_{};  // till then a port in use may be the last server's, still closing
  bool logged_nowhere_ = false;
  bool opened_ = false;
  std::string logged_address_;  // "": none yet
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_NODE_H_
