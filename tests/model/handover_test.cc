// What callbacks hand to the background thread, and both to a reader:
//
//   calling and launching thread      background thread            reader
//   counts a call and a launch,       publishes what the events    never counts a call without its
//   records an event behind it        tell                         bytes; never finds more launches
//                                                                  completed than made, nor the age
//                                                                  of a completed one
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kBytes = 10;
constexpr uint64_t kAgeNs = 100;
using Counter = Ordered<uint64_t, CheckedAtomics>;

// LaneWriter::Count: who counts the calls finds their bytes.
void Count(Counter& calls, Relaxed<uint64_t, CheckedAtomics>& bytes, uint64_t amount) {
  bytes.add(amount);
  calls.publish_sum(1);
}

struct Handover : rl::test_suite<Handover, 3> {
  ExecutionBegins begins;
  Counter calls;
  Relaxed<uint64_t, CheckedAtomics> bytes, launches;
  BasicHeartbeatCells<CheckedAtomics> heartbeat;
  // StreamTimer's: the number is stored after its event was recorded.
  Counter launched;

  void thread(unsigned index) {
    if (index == 0) return Launch();
    if (index == 1) return Poll();
    Read();
  }
  void Launch() {
    for (uint64_t call = 1; call <= 2; ++call) {
      Count(calls, bytes, kBytes);
      launches.add(1);
      launched.publish(call);
    }
  }
  void Poll() {
    for (int round = 0; round < 2; ++round) {
      const uint64_t completed = launched.acquire();
      if (completed != 0) {
        heartbeat.Store({completed, kAgeNs + completed, OldestLaunch::kBegun});
      }
    }
  }
  void Read() {
    const Heartbeat read = heartbeat.Read();
    RL_ASSERT(read.launches_completed <= launches.load());
    if (read.launches_completed != 0) {
      RL_ASSERT(read.oldest_inflight_ns >= kAgeNs + read.launches_completed);
    }
    const uint64_t counted = calls.acquire();
    RL_ASSERT(bytes.load() >= counted * kBytes);
  }
};

TEST(Handover, NothingIsSeenBeforeWhatItNeeds) {
  EachOrderingMatters<Handover>({"atomic_cell.h"}, 30000);
}

}  // namespace
}  // namespace nccl_pulse
