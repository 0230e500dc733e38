// Finds ranks whose calls can never complete together, because they differ in operation, size, data
// type, root or order.
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

// The ranks that made the same call, while other ranks made another one.
struct CallSide {
  Calls calls;  // by counts: calls beyond those that all ranks made; else the differing call
  Ranks ranks;
  const CallOrderSnapshot::Kind* kind = nullptr;  // for kCallNumber and kRoots: the call
};

struct Mismatch {
  enum class By : uint8_t {
    kOperations,
    kSizes,
    kCallNumber,  // by the first collective that differs, see `call_number`
    kRoots,       // as kCallNumber, and only the roots differ
  };
  By by;
  std::vector<CallSide> sides;
  std::set<std::string> operations;
  uint32_t call_number = 0;  // for kCallNumber and kRoots
};

// Compares ranks by counts: by operation if operations differ, otherwise by operation and size. At
// least two ranks must differ.
Mismatch CompareSides(const CommunicatorFacts& facts);

enum class Compared : uint8_t {
  kInFlight,  // from the oldest call that is known to be incomplete
  kAll,       // from the oldest known call, without data types: different calls may complete, and a
              // later one hangs
};

// Finds the first collective that differs between ranks, by the order of their last calls. Returns
// nothing if none does. Ranks that have not made this call, or whose calls are not known that far
// back, are on no side. Abandoned calls have no number.
std::optional<Mismatch> CompareCallOrder(const CommunicatorFacts& facts, Compared compared);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_MISMATCH_H_
