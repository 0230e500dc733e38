#include "simulation/timeline.h"

#include <algorithm>
#include <ctime>

namespace nccl_pulse::simulation {

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void SharedTimeline::Arrive(uint64_t number, uint32_t ranks, uint64_t ready_ns,
                            uint64_t duration_ns) {
  Collective& collective = collectives_[number % kRemembered];
  uint64_t latest_ns = collective.latest_ns.load();
  while (latest_ns < ready_ns && !collective.latest_ns.compare_exchange_weak(latest_ns, ready_ns)) {
  }
  if (collective.arrived.fetch_add(1) + 1 < ranks) return;
  // The last one to arrive. It sees the others' stores: all accesses are sequentially consistent.
  const uint64_t before_ns = number == 0 ? 0 : EndNs(number - 1);
  collective.end_ns.store(std::max(before_ns, collective.latest_ns.load()) + duration_ns);
  collective.number_and_one.store(number + 1);
  // For the next round of the ring: no rank is that far ahead, and no time that old is requested.
  Collective& later = collectives_[(number + kRemembered / 2) % kRemembered];
  later.arrived.store(0);
  later.latest_ns.store(0);
}

uint64_t SharedTimeline::EndNs(uint64_t number) const {
  const Collective& collective = collectives_[number % kRemembered];
  const uint64_t known = collective.number_and_one.load();
  if (known < number + 1) return 0;
  return known == number + 1 ? collective.end_ns.load() : 1;
}

void RankTimeline::Compute(uint64_t ready_ns) {
  const uint64_t enqueued = enqueued_.load();
  const uint64_t now_ns = MonotonicNs();
  ready_ns_[enqueued / 2 % SharedTimeline::kRemembered].store(
      now_ns < ready_ns + tolerance_ns_ ? ready_ns : now_ns);
  enqueued_.store(enqueued + 1);
}

void RankTimeline::Collective(uint64_t duration_ns) {
  const uint64_t enqueued = enqueued_.load();
  const uint64_t number = enqueued / 2;
  const uint64_t ready_ns = ready_ns_[number % SharedTimeline::kRemembered].load();
  enqueued_.store(enqueued + 1);
  shared_.Arrive(number, ranks_, ready_ns, duration_ns);
}

void RankTimeline::Stall() { enqueued_.store(enqueued_.load() + 1); }

uint64_t RankTimeline::enqueued() const { return enqueued_.load(); }

uint64_t RankTimeline::EndNs(uint64_t kernels) const {
  if (kernels == 0) return 1;
  const uint64_t number = (kernels - 1) / 2;
  if (kernels % 2 == 0) return shared_.EndNs(number);
  const uint64_t before_ns = number == 0 ? 1 : shared_.EndNs(number - 1);
  if (before_ns == 0) return 0;
  return std::max(before_ns, ready_ns_[number % SharedTimeline::kRemembered].load());
}

}  // namespace nccl_pulse::simulation
