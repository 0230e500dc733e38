// Random sequences of legal and illegal callbacks on several threads, from a fixed seed. Whatever
// came, the books balance:
//   calls counted                        = calls made
//   timed + untimed                      = operations     (kernel timing, after finalize)
//   completions + uncompleted           <= operations
//   no counter steps back from one snapshot to the next
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <tuple>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr int kSteps = kSanitized ? 20000 : 100000;

// One thread's share: a communicator of its own, now and then ended and made anew, and the handles
// of all that it ever saw.
class Player {
 public:
  Player(uint64_t first_comm_id, uint64_t seed) : comm_id_(first_comm_id), random_(seed) {
    comm_ = std::make_unique<NcclCommunicator>(comm_id_);
  }

  struct Made {
    uint64_t calls = 0, operations = 0;
  };
  const std::map<uint64_t, Made>& made() const { return made_; }

  void Play() {
    for (int step = 0; step < kSteps; ++step) Step();
    comm_->Finalize();
    for (int step = 0; step < 100; ++step) Late();
  }

 private:
  // A handle of any age and state, or none. Recent ones are likelier: there something happens.
  void* AnyHandle() {
    if (handles_.empty() || random_() % 50 == 0) return nullptr;
    const uint64_t back = random_() % 4 != 0 ? random_() % 16 : random_() % 2000;
    return handles_[handles_.size() - 1 - back % handles_.size()];
  }
  void Keep(void* handle) {
    handles_.push_back(handle);
    if (handles_.size() > 4000) handles_.erase(handles_.begin(), handles_.begin() + 2000);
  }
  uint64_t GpuNs() {
    now_ns_ += random_() % 1000;
    const uint64_t kind = random_() % 2000;
    return kind == 0 ? random_() : kind < 100 ? now_ns_ - random_() % 100000 : now_ns_;
  }

  void Step() {
    Made& made = made_[comm_id_];
    void* context = comm_->context();
    switch (random_() % 20) {
      case 16:
      case 17:
        ++made.calls;
        ++made.operations;
        comm_->RunWithProxy();
        break;
      case 18:
      case 19:
        ++made.calls;
        ++made.operations;
        now_ns_ += 2000;
        comm_->RunWithKernel(2, now_ns_, now_ns_ + 1000);
        break;
      case 0:
      case 1:
        ++made.calls;
        Keep(Start(context,
                   CallEvent("AllReduce", random_() % 100000, "ncclFloat32", random_() % 8 == 0)));
        break;
      case 2:
        Start(context, LaunchEvent());
        break;
      case 3:
      case 4:
        ++made.operations;
        Keep(
            Start(context, CollEvent(AnyHandle(), random_(), static_cast<uint8_t>(random_() % 4))));
        break;
      case 5:
        if (random_() % 100 == 0) {
          ++made.operations;
          Keep(Start(context, P2pEvent("Send", 0, static_cast<int>(random_() % 8), 2)));
        }
        break;
      case 6:
      case 7:
        Keep(Start(context, ProxyOpEvent(AnyHandle(),
                                         random_() % 10 == 0 ? 1 : static_cast<int>(getpid()))));
        break;
      case 8:
      case 9:
        Keep(Start(context,
                   ChannelEvent(AnyHandle(), static_cast<uint8_t>(random_() % 4), GpuNs())));
        break;
      case 10: {
        const uint64_t gpu_ns = GpuNs();
        Record(AnyHandle(), abi::kStateKernelChStop, random_() % 10 == 0 ? nullptr : &gpu_ns);
        break;
      }
      case 11:
      case 12:
      case 13:
        Stop(AnyHandle());
        break;
      case 14:
        Record(AnyHandle(), static_cast<int>(random_() % 40) - 4);
        break;
      default:
        if (random_() % 30 == 0) {
          comm_->Finalize();
          for (int i = 0; i < 20; ++i) Late();
          comm_ = std::make_unique<NcclCommunicator>(++comm_id_);
        }
        break;
    }
  }

  // After finalize: counted nowhere but as ignored.
  void Late() {
    void* context = comm_->context();
    Start(context, CollEvent(AnyHandle(), 0, 2));
    Start(context, CallEvent("AllReduce", 1, "ncclInt8"));
    Start(context, ProxyOpEvent(AnyHandle(), getpid()));
    Start(context, ChannelEvent(AnyHandle(), 1, GpuNs()));
    Stop(AnyHandle());
    const uint64_t gpu_ns = GpuNs();
    Record(AnyHandle(), abi::kStateKernelChStop, &gpu_ns);
  }

  uint64_t comm_id_;
  std::mt19937_64 random_;
  std::unique_ptr<NcclCommunicator> comm_;
  std::map<uint64_t, Made> made_;
  std::vector<void*> handles_;
  uint64_t now_ns_ = 1000000;
};

using Counters = std::map<std::tuple<uint64_t, std::string>, uint64_t>;

// Every number of a snapshot that may only grow.
Counters CountersOf(const ProcessSnapshot& snapshot) {
  Counters counters;
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    const uint64_t id = communicator.comm_id;
    const auto set = [&](const std::string& name, uint64_t value) { counters[{id, name}] = value; };
    for (const CallCountSnapshot& count : communicator.calls) {
      const std::string name = count.op + std::to_string(count.size_class) + count.datatype +
                               (count.captured ? " captured" : "");
      set("calls " + name, count.calls);
      set("bytes " + name, count.bytes);
    }
    for (const AlgorithmCountSnapshot& count : communicator.algorithms) {
      set("algorithm " + count.op + count.algo + count.proto, count.operations);
    }
    for (const UntimedSnapshot& count : communicator.untimed) {
      set("untimed " + count.op + UntimedReasonName(count.reason), count.operations);
    }
    for (const UncompletedSnapshot& count : communicator.uncompleted) {
      set("uncompleted " + count.op, count.operations);
    }
    for (const LatencySnapshot& latency : communicator.latencies) {
      const std::string name = "latency " + latency.op + std::to_string(latency.size_class) + " " +
                               std::to_string(static_cast<int>(latency.kind));
      for (int cell = 0; cell < kHistogramCells; ++cell) {
        const uint64_t count = latency.histogram.cells[static_cast<size_t>(cell)];
        if (count != 0) set(name + " cell " + std::to_string(cell), count);
      }
      set(name + " sum", latency.histogram.sum_ns);
      set(name + " bytes", latency.bytes);
    }
    set("launches", communicator.launches);
  }
  for (int reason = 0; reason < kIgnoredReasons; ++reason) {
    counters[{0, IgnoredReasonName(static_cast<IgnoredReason>(reason))}] =
        snapshot.ignored[static_cast<size_t>(reason)];
  }
  for (int kind = 0; kind < kCallbackKinds; ++kind) {
    counters[{0, std::string("callbacks ") + CallbackKindName(static_cast<CallbackKind>(kind))}] =
        snapshot.callbacks[static_cast<size_t>(kind)];
  }
  return counters;
}

void ExpectNoStepBack(const Counters& before, const Counters& after) {
  for (const auto& [key, value] : before) {
    const auto found = after.find(key);
    const uint64_t now = found != after.end() ? found->second : 0;
    EXPECT_GE(now, value) << "communicator " << std::get<0>(key) << ", " << std::get<1>(key);
  }
}

class PropertyTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(PropertyTest, TheBooksBalance) {
  RunInChild({{"NCCL_PULSE_TIMING", "kernel"}, {"NCCL_PULSE_SERIES_LIMIT", "30000"}}, [] {
    constexpr uint64_t kThreads = 3;
    std::vector<std::unique_ptr<Player>> players;
    for (uint64_t i = 0; i < kThreads; ++i) {
      players.push_back(std::make_unique<Player>(1 + 1000000 * i, GetParam() * 100 + i));
    }
    std::atomic<bool> end{false};
    std::thread reader([&] {
      Counters before;
      while (!end) {
        Counters now = CountersOf(ReadSnapshot());
        ExpectNoStepBack(before, now);
        before = std::move(now);
      }
      ExpectNoStepBack(before, CountersOf(ReadSnapshot()));
    });
    std::vector<std::thread> threads;
    for (const auto& player : players) threads.emplace_back([&player] { player->Play(); });
    for (std::thread& thread : threads) thread.join();
    end = true;
    reader.join();

    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Ignored(snapshot, IgnoredReason::kForeignContext), 0u);
    uint64_t timed = 0;
    uint64_t completed = 0;
    for (const auto& player : players) {
      for (const auto& [comm_id, made] : player->made()) {
        const CommunicatorSnapshot& measured = Find(snapshot, comm_id);
        timed += Timed(measured, LatencyKind::kDurationKernel);
        completed += Timed(measured, LatencyKind::kCompletionProxy);
        EXPECT_EQ(Calls(measured), made.calls);
        EXPECT_EQ(measured.overflowed_operations, 0u);
        EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel) + Untimed(measured),
                  made.operations);
        EXPECT_LE(Timed(measured, LatencyKind::kCompletionProxy) +
                      Timed(measured, LatencyKind::kCompletionKernel) + Uncompleted(measured),
                  made.operations);
        EXPECT_TRUE(measured.finalized);
      }
    }
    // It was not all nonsense.
    EXPECT_GT(timed, 100u);
    EXPECT_GT(completed, 100u);
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, PropertyTest, ::testing::Range(uint64_t{1}, uint64_t{6}));

}  // namespace
}  // namespace nccl_pulse
