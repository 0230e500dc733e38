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
  // For kCallNumber, kRoots and kPeerCall: the call. For kPeerTotals: all calls, modulo 2^48 bytes.
  std::optional<CallOrderSnapshot::Kind> kind{};
};

struct Mismatch {
  enum class By : uint8_t {
    kOperations,
    kSizes,
    kCallNumber,  // by the first collective that differs, see `call_number`
    kRoots,       // as kCallNumber, and only the roots differ
    // The sides are the sender and the receiver.
    kPeerCall,    // a Send and its Recv have different sizes
    kPeerTotals,  // so do the first `call_number` Sends and Recvs of two ranks, some of them older
                  // than the calls whose sizes are kept
  };
  By by;
  std::vector<CallSide> sides;
  std::set<std::string> operations;
  uint64_t call_number = 0;  // not for kOperations and kSizes

  bool is_of_peers() const { return by == By::kPeerCall || by == By::kPeerTotals; }
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

// ComparePeerCalls compares a rank's Sends to a peer with the peer's Recvs from it (`sends`; else the
// rank's Recvs with the peer's Sends). Returns the oldest of the last calls whose sizes differ, or
// else the totals if they differ; nothing if they are equal or not known. The calls have one number,
// so it does not matter which of them have completed, or that small Sends end before their Recvs.
// Data types are not compared: NCCL only moves bytes.
std::optional<Mismatch> ComparePeerCalls(const RankView& rank, const RankView& peer, bool sends);

// True if the peer is known to have made as many matching calls: it is not missing in the rank's
// last Send to it (`sends`; else Recv from it).
bool HasCalledPeer(const RankView& rank, const RankView& peer, bool sends);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_MISMATCH_H_
