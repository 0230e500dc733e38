#include "tests/gpu/named_communicators.h"

#include "tests/gpu/id_exchange.h"

namespace nccl_pulse {

NcclComm NamedCommunicators::Get(const std::string& name) {
  const auto found = communicators_.find(name);
  if (found != communicators_.end()) return found->second;
  const auto entry = communicators_.emplace(name, nullptr).first;
  NcclConfig config;
  config.comm_name = entry->first.c_str();  // NCCL keeps the pointer; a map's keys stay
  Check(api_.ncclCommInitRankConfig(&entry->second, flags_.nranks, ExchangeId(name), flags_.rank,
                                    &config),
        "ncclCommInitRankConfig");
  return entry->second;
}

void NamedCommunicators::Check(NcclResult result, const char* what) const {
  if (result == kNcclSuccess) return;
  fail_(std::string(what) + ": " + api_.ncclGetErrorString(result) + ", " +
        api_.ncclGetLastError(nullptr));
}

NcclUniqueId NamedCommunicators::ExchangeId(const std::string& name) const {
  const std::string path = flags_.exchange + "/id-" + name;
  NcclUniqueId id{};
  if (flags_.rank == 0) {
    Check(api_.ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (!PublishId(path, id)) fail_("cannot write " + path);
  } else if (!AwaitId(path, &id)) {
    fail_("cannot read " + path);
  }
  return id;
}

}  // namespace nccl_pulse
