// Finds ranks whose calls can never complete together: they called different operations, different
// sizes, or the same ones in another order.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_CALL_MISMATCH_H_
#define EXPORTER_DIAGNOSIS_FACTS_CALL_MISMATCH_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/communicator_facts.h"

namespace nccl_pulse {

// Ranks that called alike, where others called something else.
struct CallSide {
  Calls calls;  // empty: neither
  Ranks ranks;
  const CallOrderSnapshot::Kind* kind = nullptr;  // of kCallNumber, kRoots: what that call was
};

struct Mismatch {
  enum class By : uint8_t {
    kOperations,
    kSizes,
    kOrder,
    kCallNumber,  // the first collective that they did not call alike: see `call_number`
    kRoots,       // likewise, and the roots alone differ
  };
  By by;
  std::vector<CallSide> sides;
  std::set<std::string> operations;
  uint32_t call_number = 0;  // of kCallNumber, kRoots
};

// Of ranks whose counts are not all beginnings of the longest: by operation if they differ in that,
// else by operation and size.
Mismatch CompareSides(const CommunicatorFacts& facts);

// Of ranks that have called equally often: those that did not call the same last did not call in
// one order. Null when they did, or when it is not known.
std::optional<Mismatch> CompareOrder(const CommunicatorFacts& facts);

// Of the first collective that the ranks did not call alike, by the order of their last calls
// (call_order.cc). Null: all called alike as far as that is known. Ranks whose calls are not known that
// far back, or that have not come so far, are on no side. Calls that made nothing have no number.
std::optional<Mismatch> CompareCallOrder(const CommunicatorFacts& facts);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_MISMATCH_H_
