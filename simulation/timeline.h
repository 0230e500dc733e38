// When the collectives of a communicator begin and end on simulated GPUs, without a thread that
// plays the GPU: times are computed, and are facts for everybody once they are known.
//
//   rank 0   compute ──┐ready          ┌ end
//   rank 1   compute ──────────┐ready  ├ end       end(k) = max(end(k-1), ready of all ranks) +
//   duration
//                      ────────┴───────┘
//                      rank 0 waits in the kernel, as with NCCL
//
// A collective ends when the last rank has come; one that does not come holds up all others. On its
// stream each rank has, for each collective, what it computes before (until `ready`) and the
// collective itself: two kernels.
//
// Thread: Enqueue one thread of each rank; the rest any. Cost: nanoseconds.
#ifndef SIMULATION_TIMELINE_H_
#define SIMULATION_TIMELINE_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "simulation/stream.h"

namespace nccl_pulse::simulation {

uint64_t MonotonicNs();

// Of a communicator, in memory that its ranks share; zeros at first.
class SharedTimeline {
 public:
  // No rank may be ahead of another by half of this, and no time is asked for that is older.
  static constexpr uint64_t kRemembered = 1024;

  // A rank comes to collective `number` at `ready_ns`. They come in order, on each rank.
  void Arrive(uint64_t number, uint32_t ranks, uint64_t ready_ns, uint64_t duration_ns);
  // 0: not known. Times that are forgotten are long ago: 1.
  uint64_t EndNs(uint64_t number) const;

 private:
  struct Collective {
    std::atomic<uint64_t> latest_ns;
    std::atomic<uint64_t> number_and_one;  // whose end this is
    std::atomic<uint64_t> end_ns;
    std::atomic<uint32_t> arrived;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "it is shared by processes");

  std::array<Collective, kRemembered> collectives_;
};

// A rank's stream.
class RankTimeline : public Timeline {
 public:
  // A host that is late by less than this counts as in time: the machine is busy with other things
  // than the job, and who looks at the job shall see the job.
  static constexpr uint64_t kToleranceNs = 60'000'000;

  RankTimeline(SharedTimeline* shared, uint32_t ranks, uint64_t tolerance_ns = kToleranceNs)
      : shared_(*shared), ranks_(ranks), tolerance_ns_(tolerance_ns) {}

  // What is computed before the next collective, until `ready_ns`.
  void Compute(uint64_t ready_ns);
  // The collective itself, behind it.
  void Collective(uint64_t duration_ns);
  // In its place: one that never ends, because the others have called something else.
  void Stall();
  // When the last one ends; 0: not known.
  uint64_t LastEndNs() const { return EndNs(enqueued()); }

  uint64_t enqueued() const override;
  uint64_t EndNs(uint64_t kernels) const override;
  bool is_computed() const override { return true; }

 private:
  SharedTimeline& shared_;
  const uint32_t ranks_;
  const uint64_t tolerance_ns_;
  std::atomic<uint64_t> enqueued_{0};
  std::array<std::atomic<uint64_t>, SharedTimeline::kRemembered> ready_ns_{};
};

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_TIMELINE_H_
