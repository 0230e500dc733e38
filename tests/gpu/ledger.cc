#include "tests/gpu/ledger.h"

#include <sstream>

#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {

const char* DatatypeName(int datatype) {
  switch (datatype) {
    case kInt8:
      return "ncclInt8";
    case kInt32:
      return "ncclInt32";
    case kUint32:
      return "ncclUint32";
    case kInt64:
      return "ncclInt64";
    case kUint64:
      return "ncclUint64";
    case kFloat16:
      return "ncclFloat16";
    case kFloat32:
      return "ncclFloat32";
    case kFloat64:
      return "ncclFloat64";
    case kBfloat16:
      return "ncclBfloat16";
    default:
      return "Unknown";  // what NCCL says of ncclUint8 (src/misc/utils.cc, 2.28)
  }
}

uint64_t DatatypeBytes(int datatype) {
  switch (datatype) {
    case kInt8:
    case kUint8:
      return 1;
    case kFloat16:
    case kBfloat16:
      return 2;
    case kInt64:
    case kUint64:
    case kFloat64:
      return 8;
    default:
      return 4;
  }
}

std::string CommunicatorLedger::ToJson() const {
  std::ostringstream out;
  // No value needs escaping.
  out << "{\"name\":\"" << name << "\",\"rank\":" << rank << ",\"nranks\":" << nranks
      << ",\"destroyed\":" << (destroyed ? "true" : "false") << ",\"launches_min\":" << launches_min
      << ",\"launches_max\":" << launches_max << ",\"untold_broadcasts\":" << untold_broadcasts
      << ",\"unseen_launches\":" << unseen_launches
      << ",\"broadcast_launches\":" << broadcast_launches
      << ",\"ends_unseen\":" << (ends_unseen ? "true" : "false") << ",\"calls\":[";
  const char* separator = "";
  for (const auto& [key, count] : calls) {
    const auto& [op, datatype, bytes, captured] = key;
    out << separator << "{\"op\":\"" << op << "\",\"datatype\":\"" << datatype
        << "\",\"bytes\":" << bytes << ",\"captured\":" << (captured ? "true" : "false")
        << ",\"calls\":" << count.calls << ",\"to_self\":" << count.to_self
        << ",\"replays\":" << count.replays << "}";
    separator = ",";
  }
  out << "]}";
  return out.str();
}

}  // namespace nccl_pulse
