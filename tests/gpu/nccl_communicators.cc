#include "tests/gpu/nccl_communicators.h"

#include "tests/gpu/rank.h"

namespace nccl_pulse {

Communicator& Communicators::Adopt(NcclComm handle, Communicator& comm) {
  comm.handle = handle;
  WaitForCall(handle, "init");
  CheckNccl(g_api.ncclCommUserRank(handle, &comm.ledger.rank), "ncclCommUserRank");
  CheckNccl(g_api.ncclCommCount(handle, &comm.ledger.nranks), "ncclCommCount");
  return comm;
}

// NCCL keeps the pointer to the name; a deque's elements stay where they are.
Communicator& Communicators::New(const std::string& name, bool blocking) {
  const NcclUniqueId id = ExchangeId(flags_, std::to_string(exchanged_++));
  Communicator& comm = all_.emplace_back();
  comm.ledger.name = name;
  comm.ledger.blocking = blocking;
  NcclComm handle = nullptr;
  if (name.empty()) {
    CheckNccl(g_api.ncclCommInitRank(&handle, flags_.nranks, id, flags_.rank), "ncclCommInitRank");
  } else {
    NcclConfig config;
    config.comm_name = comm.ledger.name.c_str();
    if (!blocking) config.blocking = 0;
    CheckNccl(g_api.ncclCommInitRankConfig(&handle, flags_.nranks, id, flags_.rank, &config),
              "ncclCommInitRankConfig");
  }
  return Adopt(handle, comm);
}

Communicator& Communicators::NewSplit(Communicator& parent, const std::string& name, bool share) {
  const int color = parent.nranks() >= 4 ? parent.rank() % 2 : 0;
  Communicator& comm = all_.emplace_back();
  comm.ledger.name = name + "-" + std::to_string(color);
  NcclConfig config;
  config.comm_name = comm.ledger.name.c_str();
  config.split_share = share ? 1 : 0;
  NcclComm handle = nullptr;
  CheckNccl(
      g_api.ncclCommSplit(parent.handle, color, parent.nranks() - parent.rank(), &handle, &config),
      "ncclCommSplit", parent.handle);
  return Adopt(handle, comm);
}

void Communicators::Destroy(Communicator& comm) {
  if (comm.handle == nullptr) return;
  CheckNccl(g_api.ncclCommFinalize(comm.handle), "ncclCommFinalize", comm.handle);
  WaitForCall(comm.handle, "ncclCommFinalize");
  CheckNccl(g_api.ncclCommDestroy(comm.handle), "ncclCommDestroy");
  comm.handle = nullptr;
  comm.ledger.destroyed = true;
}

}  // namespace nccl_pulse
