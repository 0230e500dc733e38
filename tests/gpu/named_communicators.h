// Communicators of all ranks, by name: each is made when it is first asked for. All ranks ask in
// the same order.
#ifndef TESTS_GPU_NAMED_COMMUNICATORS_H_
#define TESTS_GPU_NAMED_COMMUNICATORS_H_

#include <map>
#include <string>

#include "tests/gpu/dynamic_api.h"
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank_flags.h"

namespace nccl_pulse {

class NamedCommunicators {
 public:
  using Fail = void (*)(const std::string& error);

  // `fail` gets what is wrong and does not return.
  NamedCommunicators(const Api& api, const RankFlags& flags, Fail fail)
      : api_(api), flags_(flags), fail_(fail) {}

  NcclComm Get(const std::string& name);

 private:
  void Check(NcclResult result, const char* what) const;
  NcclUniqueId ExchangeId(const std::string& name) const;

  const Api& api_;
  const RankFlags& flags_;
  const Fail fail_;
  std::map<std::string, NcclComm> communicators_;
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NAMED_COMMUNICATORS_H_
