// The connection of a process to the node's server: from asking it to take the segment until one of
// the two ends.
//
// It remembers which servers not to ask again: those that refused, and those that closed the
// connection several times without an answer.
//
// Thread: the server's.
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

// It tells what came of trying an address.
enum class Attempt {
  kServing,
  kJoined,
  kTaken,   // by a process that does not take ours: try the next port
  kNobody,  // nobody has the name
  kBusy,    // a server is just closing or starting: try again in a moment
  kFailed,  // the address cannot be used
};

// Why the process at the other end may be silent.
std::string WhyNoAnswer(int connection);

class ServerLink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Connects to the server of this name, which must be `owner`'s, and hands `memory` over. Anything
  // but kServing and kFailed.
  Attempt Join(const std::string& name, uid_t owner, const SharedDescriptor& memory, Time now);
  // The next message. What is no valid message comes as kRefused.
  Received Receive(HandoverMessage* message);
  // It closed the connection and has said nothing.
  void CountUnanswered();
  // It is not to be asked again for now.
  void Avoid() { refused_by_.push_back(name_); }
  // Its process is dead: nobody serves under this name until somebody else has it.
  void AvoidDead();
  // Once: the name of one that was avoided so is free.
  bool HasDeadLeft();
  // All may be asked again.
  void AvoidNobody();
  // Whether it is time to look after the server. Not again for kCheckPeriod.
  bool MustCheck(Time now);
  bool IsServerGone() const;
  // "process 7 has ended", where nobody serves there though the socket is open; else "".
  std::string WhyDead() const;
  // Once, after kSilencePatience: why it does not answer. "" when that was said.
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
  Time silent_from_{};  // if no answer has come by then
  Time check_at_ = Time::max();
  bool warned_of_silence_ = false;
  std::vector<std::string> refused_by_;  // names not to be tried again for now
  std::string dead_name_;                // "": none
  int unanswered_ = 0;                   // connections that ended before an answer, in a row
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SERVER_LINK_H_
