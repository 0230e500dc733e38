// PeerCalls counts a rank's Sends to one peer, or its Recvs from one, and keeps the sizes of the
// last ones. NCCL matches the n-th Send of a rank to a peer with the n-th Recv of that peer from the
// rank, so the diagnosis compares the two calls with one number (facts/call_mismatch.h).
//
//   word      bits
//   calls     number of calls; published last
//   whom      peer, plus one (32) << 1 | 1 for Recv; written once
//   sums[i]   total bytes up to call n, modulo 2^48 (48) | data type (8) | n modulo 256 (8), where n
//             is the last call with (n - 1) % kKept == i
//
// Each sum has its call's number, so that a reader notices a sum that was overwritten meanwhile.
//
// Thread: the thread to which NCCL reports operations writes, one at a time per communicator; any
// process reads. Replays of CUDA graphs break that rule: captured communicators are not compared.
#ifndef METRICS_PEER_CALLS_H_
#define METRICS_PEER_CALLS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

struct PeerCalls {
  static constexpr uint32_t kKept = 14;  // makes two cache lines

  static constexpr uint64_t Whom(int32_t peer, bool receives) {
    return (uint64_t{static_cast<uint32_t>(peer)} + 1) << 1 | (receives ? 1 : 0);
  }
  static constexpr int32_t Peer(uint64_t whom) { return static_cast<int32_t>((whom >> 1) - 1); }
  static constexpr bool Receives(uint64_t whom) { return (whom & 1) != 0; }

  static constexpr uint64_t Sum(uint64_t total_bytes, uint32_t datatype, uint64_t number) {
    return total_bytes << 16 | uint64_t{datatype & 0xff} << 8 | (number & 0xff);
  }
  static constexpr uint64_t TotalBytes(uint64_t sum) { return sum >> 16; }
  static constexpr uint32_t Datatype(uint64_t sum) { return sum >> 8 & 0xff; }
  static constexpr bool IsOf(uint64_t sum, uint64_t number) { return ((sum ^ number) & 0xff) == 0; }

  // `datatype`: index into the name table, below 256.
  void Add(uint64_t bytes, uint32_t datatype) {
    const uint64_t before = calls.load();
    const uint64_t total = before == 0 ? 0 : TotalBytes(sums[(before - 1) % kKept].load());
    sums[before % kKept].store(Sum(total + bytes, datatype, before + 1));
    calls.publish(before + 1);
  }

  Ordered<uint64_t> calls;
  Relaxed<uint64_t> whom;  // 0: free
  Relaxed<uint64_t> sums[kKept];
};

// The peers of one rank, in order of their first call. Calls with later peers are not kept: the
// stages of a pipeline have four entries, an exchange of all ranks is not compared.
struct PeerCallTable {
  static constexpr uint32_t kPeers = 8;

  // Cost: two loads per earlier peer, then two stores.
  void Add(uint64_t whom, uint64_t bytes, uint32_t datatype) {
    for (PeerCalls& each : peers) {
      const uint64_t known = each.whom.load();
      if (known != 0 && known != whom) continue;
      if (known == 0) each.whom.store(whom);  // published with `calls`
      return each.Add(bytes, datatype);
    }
  }

  PeerCalls peers[kPeers];
};
static_assert(sizeof(PeerCallTable) == 1024);

}  // namespace nccl_pulse

#endif  // METRICS_PEER_CALLS_H_
