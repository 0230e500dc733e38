// Asks the current server of a port to leave it to an agent.
//
// Not thread-safe. Ask waits for the answer, at most a second; AskOthers so long for each server.
#ifndef EXPORTER_NODE_TAKEOVER_H_
#define EXPORTER_NODE_TAKEOVER_H_

#include <sys/types.h>

#include <string>

#include "exporter/node/listener.h"

namespace nccl_pulse {

class Takeover {
 public:
  // `wanted`: the agent's address, which must outlive this object.
  explicit Takeover(const ListenAddress* wanted) : wanted_(*wanted) {}

  // Asks the server whose hand-over socket has this `name` and belongs to user `owner`. Returns
  // true if it yields its port. `refusal` gets its reason if it refuses; `silent`, if not null, why
  // it did not answer.
  bool Ask(const std::string& name, uid_t owner, std::string* refusal,
           std::string* silent = nullptr);
  // Asks the other servers at the wanted port and, unless `same_port_only`, at the ports after it,
  // where a server goes when its port is taken. Root's agent asks servers of all users, other
  // agents only those of their own user. Returns true if any was asked, whatever it answered.
  bool AskOthers(bool same_port_only, std::string* refusal);
  // Returns how many processes will connect: the servers that yielded, and their members.
  int expected_members() const { return expected_members_; }

 private:
  const ListenAddress& wanted_;
  int expected_members_ = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_TAKEOVER_H_
