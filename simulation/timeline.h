// SharedTimeline computes when a communicator's collectives begin and end on simulated GPUs,
// without a thread per GPU. A time never changes once it is known.
//
//   rank 0   compute ──┐ready          ┌ end
//   rank 1   compute ──────────┐ready  ├ end  end(k) = max(end(k-1), ready of all ranks) + duration
//                      ────────┴───────┘
//                      rank 0 waits in the kernel, as with NCCL
//
// A collective ends after its last rank has arrived; a missing rank blocks all others. For each
// collective, a rank's stream has two kernels: the computation before it (until `ready`) and the
// collective.
//
// Thread: Enqueue: one thread per rank; the rest any. Cost: nanoseconds.
#ifndef SIMULATION_TIMELINE_H_
#define SIMULATION_TIMELINE_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "simulation/stream.h"

namespace nccl_pulse::simulation {

uint64_t MonotonicNs();

// Timeline of one communicator, in memory that its ranks share; initially zero.
class SharedTimeline {
 public:
  // No rank may be ahead of another by half of this, and no older times may be requested.
  static constexpr uint64_t kRemembered = 1024;

  // The rank reaches collective `number` at `ready_ns`. Numbers are in order on each rank.
  void Arrive(uint64_t number, uint32_t ranks, uint64_t ready_ns, uint64_t duration_ns);
  // Returns the end; 0: not known. 1 for forgotten times, which are long ago.
  uint64_t EndNs(uint64_t number) const;

 private:
  struct Collective {
    std::atomic<uint64_t> latest_ns;
    std::atomic<uint64_t> number_and_one;  // the collective to which `end_ns` belongs, plus one
    std::atomic<uint64_t> end_ns;
    std::atomic<uint32_t> arrived;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "it is shared by processes");

  std::array<Collective, kRemembered> collectives_;
};

// Timeline of one rank's stream.
class RankTimeline : public Timeline {
 public:
  // A host delay below this is ignored: the machine is busy with other things, and the demo should
  // show the job.
  static constexpr uint64_t kToleranceNs = 60'000'000;

  RankTimeline(SharedTimeline* shared, uint32_t ranks, uint64_t tolerance_ns = kToleranceNs)
      : shared_(*shared), ranks_(ranks), tolerance_ns_(tolerance_ns) {}

  // Adds the computation before the next collective, until `ready_ns`.
  void Compute(uint64_t ready_ns);
  // Adds the collective after it.
  void Collective(uint64_t duration_ns);
  // Adds a collective that never ends instead: the others have called something else.
  void Stall();
  // Returns when the last one ends; 0: not known.
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
