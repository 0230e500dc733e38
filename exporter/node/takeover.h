// An agent gets the port by asking whoever serves there to leave it.
//
// Thread: one. Ask waits for the answer, for a second at most.
#ifndef EXPORTER_NODE_TAKEOVER_H_
#define EXPORTER_NODE_TAKEOVER_H_

#include <sys/types.h>

#include <string>

#include "exporter/node/listener.h"

namespace nccl_pulse {

class Takeover {
 public:
  // `wanted` must outlive this object.
  explicit Takeover(const ListenAddress* wanted) : wanted_(*wanted) {}

  // True when the server of this name leaves its port to us. If it says no, why goes to `refusal`;
  // why nobody answered, to `silent`, if that is not null.
  bool Ask(const std::string& name, uid_t owner, std::string* refusal,
           std::string* silent = nullptr);
  // Root's agent: asks servers of other users. Any agent: those that found the port taken. False
  // when there is nobody to ask.
  bool AskOthers(bool same_port_only, std::string* refusal);
  // So many processes will come from those that have left theirs.
  int expected_members() const { return expected_members_; }

 private:
  const ListenAddress& wanted_;
  int expected_members_ = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_TAKEOVER_H_
