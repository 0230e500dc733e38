// Connects a process to the node's server, from the hand-over until one of the two ends.
//
// Remembers servers that must not be asked again: they refused, or closed several connections
// without an answer.
//
// Thread: as Node (node.h).
#ifndef EXPORTER_NODE_SERVER_LINK_H_
#define EXPORTER_NODE_SERVER_LINK_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "exporter/node/handover.h"
#include "exporter/node/run_state.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

// Result of trying to serve at an address, or to join its server.
enum class Attempt {
  kServing,  // serves there
  kJoined,   // has sent its segment to the server there
  kTaken,    // its holder does not take this process: try the next port
  kNobody,   // the name is free
  kBusy,     // a server is closing or starting: try again soon
  kFailed,   // the address cannot be used
};

// Returns why the process at the other end may be silent.
std::string WhyNoAnswer(int connection);

class ServerLink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Connects to the server of this name, which must be `owner`'s, and hands `memory` over. Never
  // returns kServing or kFailed.
  Attempt Join(const std::string& name, uid_t owner, const SharedDescriptor& memory, Time now);
  // Receives the next message. Invalid messages return kRefused.
  Received Receive(HandoverMessage* message);
  // Call when the server closed the connection without an answer.
  void CountUnanswered();
  // Avoids this server for now.
  void Avoid() { refused_by_.push_back(name_); }
  // Avoids a server whose process is dead: the name is useless until another process takes it.
  void AvoidDead();
  // Returns true once after a dead server's name is free again.
  bool HasDeadLeft();
  // Allows all servers again.
  void AvoidNobody();
  // True, at most once per kCheckPeriod, if the server must be checked.
  bool MustCheck(Time now);
  bool IsServerGone() const;
  // Returns "process 7 has ended" if the server is dead although the socket is open; else "".
  std::string WhyDead() const;
  // Returns once, after kSilencePatience, why the server does not answer; otherwise "".
  std::string WhySilent(Time now);
  void SayGoodbye();

  int fd() const { return server_.get(); }
  uid_t user() const { return user_; }
  Time check_at() const { return check_at_; }
  void Close();

 private:
  SharedDescriptor server_;
  std::string name_;
  uid_t user_ = 0;
  ProcessId process_;
  Time silent_from_{};  // the server is silent if it has not answered by then
  Time check_at_ = Time::max();
  bool warned_of_silence_ = false;
  std::vector<std::string> refused_by_;  // names to avoid for now
  std::string dead_name_;                // "": none
  int unanswered_ = 0;                   // connections that ended before an answer, in a row
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVER_LINK_H_
