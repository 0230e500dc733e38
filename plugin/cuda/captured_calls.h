// Counts of the calls in one capture (a CUDA graph being recorded; graph_stamps.h), by kind and by
// communicator. A kind of calls is a communicator, operation and size class.
//
// Thread: written by the capturing thread, one at a time per capture; published fields are read by
// the background thread. Cost: plain loads and stores.
#ifndef PLUGIN_CUDA_CAPTURED_CALLS_H_
#define PLUGIN_CUDA_CAPTURED_CALLS_H_

#include <atomic>
#include <cstdint>

#include "plugin/cuda/stamp_plan.h"

namespace nccl_pulse {

// Calls of one kind within a capture. The numbers have one writer, the capturing thread.
struct CapturedCalls {
  // A kind has the communicator's index in bits 16 to 25, the operation in 8 to 15 and the size
  // class in 0 to 7. The top bit is set, so no kind is 0.
  static constexpr uint32_t PackKind(uint32_t communicator, uint32_t op, uint32_t size_class) {
    return 1u << 31 | communicator << 16 | op << 8 | size_class;
  }
  static constexpr uint32_t Communicator(uint32_t kind) { return kind >> 16 & 0x3ff; }
  static constexpr uint32_t Op(uint32_t kind) { return kind >> 8 & 0xff; }
  static constexpr uint32_t SizeClass(uint32_t kind) { return kind & 0xff; }

  std::atomic<uint32_t> kind;          // 0: free
  std::atomic<uint32_t> owner;         // generation of the communicator's record (record_life.h)
  std::atomic<uint64_t> calls, bytes;  // in one replay
  uint64_t counted;                    // replays counted so far; used by the background thread
};

// A communicator that has calls in a capture.
struct CaptureMember {
  static constexpr uint32_t kMostBefore = 0xffff;

  std::atomic<uint32_t> communicator;  // 1 + index; 0: free. Publishes the next two fields
  std::atomic<uint32_t> owner;         // as CapturedCalls::owner
  std::atomic<uint32_t> number;        // number of this capture among the communicator's, from 1
  std::atomic<uint32_t> launched;      // calls with a captured launch; used by capturing thread
  // Number of calls launched before each stamp, at most kMostBefore. Published with the stamp.
  uint16_t before[kMostStamps];

  // Copies all fields; zeroes `before`. No other thread may use this object yet.
  void CopyFrom(const CaptureMember& from) {
    owner.store(from.owner.load(std::memory_order_relaxed), std::memory_order_relaxed);
    number.store(from.number.load(std::memory_order_relaxed), std::memory_order_relaxed);
    launched.store(from.launched.load(std::memory_order_relaxed), std::memory_order_relaxed);
    for (uint16_t& calls : before) calls = 0;
    communicator.store(from.communicator.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
  }
  bool Is(uint32_t index, uint32_t generation) const {
    return communicator.load(std::memory_order_acquire) == index + 1 &&  // sees the owner
           owner.load(std::memory_order_relaxed) == generation;
  }
};

// Number of a communicator's captures so far.
struct CommunicatorCaptures {
  std::atomic<uint32_t> owner;  // as CapturedCalls::owner; published after the counts were zeroed
  std::atomic<uint32_t> seen;   // all captures
  std::atomic<uint32_t> followed;  // captures whose replays and calls are all counted
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_CAPTURED_CALLS_H_
