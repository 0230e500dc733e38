// Asks the current server of a port to leave it to an agent.
//
// Not thread-safe. Ask waits for the answer, at most a second.
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

  // Returns true if the server of this name yields its port. `refusal` gets its reason if it
  // refuses; `silent`, if not null, why it does not answer.
  bool Ask(const std::string& name, uid_t owner, std::string* refusal,
           std::string* silent = nullptr);
  // Asks further servers. Root's agent asks servers of other users. Any agent asks servers of its
  // own user that serve at a later port because the port was taken. Returns false if there is none.
  bool AskOthers(bool same_port_only, std::string* refusal);
  // Returns how many processes will connect from servers that yielded.
  int expected_members() const { return expected_members_; }

 private:
  const ListenAddress& wanted_;
  int expected_members_ = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_TAKEOVER_H_
