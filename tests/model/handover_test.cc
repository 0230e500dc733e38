// What callbacks hand to the background thread, and both to a reader:
//
//   calling and launching thread      background thread            reader
//   leaves a call, counts a launch,   counts the call that was     never counts a call without its
//   records an event behind it        left; publishes what the     bytes; never finds more launches
//                                     events tell                  completed than made, nor one in
//                                                                  flight without its age
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kBytes = 10;
constexpr uint64_t kAgeNs = 100;
using Counter = Ordered<uint64_t, CheckedAtomics>;

// LaneWriter::Count: who counts the calls finds their bytes.
void Count(Counter& calls, Relaxed<uint64_t, CheckedAtomics>& bytes, uint64_t amount) {
  bytes.add(amount);
  AddToCell(calls, 1);
}

struct Handover : rl::test_suite<Handover, 3> {
  ExecutionBegins begins;
  BasicLaneClaim<CheckedAtomics> lane;
  BasicUncountedCall<CheckedAtomics> uncounted;
  Counter calls;
  Relaxed<uint64_t, CheckedAtomics> bytes, launches;
  BasicHeartbeatCells<CheckedAtomics> heartbeat;
  // StreamTimer's: the number is stored after its event was recorded.
  Counter launched;
  uint64_t not_counted = 0;

  void thread(unsigned index) {
    if (index == 0) return Launch();
    if (index == 1) return Poll();
    Read();
  }
  void Launch() {
    for (uint64_t call = 1; call <= 2; ++call) {
      if (!uncounted.Offer(call, kBytes)) CountInLane();
      launches.add(1);
      launched.publish(call);
    }
  }
  void CountInLane() {
    if (!lane.TryClaim()) {
      ++not_counted;
      return;
    }
    TakeUncounted();
    Count(calls, bytes, kBytes);
    lane.Release();
  }
  void TakeUncounted() {
    const auto call = uncounted.Take();
    if (call.key == 0) return;
    RL_ASSERT(call.bytes == kBytes);
    Count(calls, bytes, call.bytes);
  }
  void Poll() {
    for (int round = 0; round < 2; ++round) {
      const uint64_t completed = launched.acquire();
      if (completed != 0) {
        heartbeat.Store({completed, kAgeNs + completed, OldestLaunch::kBegun});
      }
      if (uncounted.is_there() && lane.TryClaim()) {
        TakeUncounted();
        lane.Release();
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
  void after() {
    const uint64_t left = uncounted.Take().key != 0 ? 1 : 0;
    RL_ASSERT(calls.load() + left + not_counted == 2);
    RL_ASSERT(bytes.load() == calls.load() * kBytes);
  }
};

TEST(Handover, NothingIsSeenBeforeWhatItNeeds) {
  EachOrderingMatters<Handover>({"lane_claim.h", "atomic_cell.h"}, 30000);
}

}  // namespace
}  // namespace nccl_pulse
