// The example tuner leaves slow settings, and all ranks do so at the same call.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugin/abi/common.h"
#include "plugin/abi/pulse_query.h"
#include "tests/plugin/harness.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using testing::Contains;
using testing::HasSubstr;

// NCCL 2.28.9, src/include/plugin/tuner/tuner_v5.h.
struct TunerV5 {
  const char* name;
  int (*init)(void** context, uint64_t comm, size_t nranks, size_t nnodes, abi::DebugLogger log,
              void* domains, void* constants);
  int (*get_coll_info)(void* context, int operation, size_t bytes, int operations, float** costs,
                       int algorithms, int protocols, int is_registered, int* channels);
  int (*finalize)(void* context);
};
constexpr int kAlgorithms = 7, kProtocols = 3, kAllReduce = 4, kAllGather = 2;
constexpr int kTree = 0, kRing = 1;
constexpr size_t kBytes = 16 << 20;

template <typename T>
T* Symbol(const char* path, const char* name) {
  return static_cast<T*>(FindSymbol(path, name));
}

// One rank, with NCCL's choice between what a tuner leaves it.
class Rank {
 public:
  explicit Rank(uint64_t comm, size_t nranks = 2, size_t nnodes = 1)
      : answer_(*Symbol<ncclPulseDurations_v1_t>("tests/plugin/libfake_pulse_query.so",
                                                 "fake_durations")),
        tuner_(*Symbol<const TunerV5>("plugin/example_tuner/libnccl-tuner-example.so",
                                      "ncclTunerPlugin_v5")) {
    EXPECT_EQ(tuner_.init(&context_, comm, nranks, nnodes, &Logger, nullptr, nullptr), 0);
  }
  void* context() const { return context_; }
  void Finalize() { tuner_.finalize(context_); }

  // The algorithm and protocol of the next call: 10 times the one, and the other.
  int Choose(int operation = kAllReduce, size_t bytes = kBytes) {
    float costs[kAlgorithms][kProtocols];
    for (auto& row : costs) {
      for (float& cost : row) cost = -1;
    }
    for (int protocol = 0; protocol < kProtocols; ++protocol) {
      costs[kRing][protocol] = static_cast<float>(3 - protocol);
      costs[kTree][protocol] = 9;
    }
    int channels = 0;
    EXPECT_EQ(tuner_.get_coll_info(context_, operation, bytes, 1, reinterpret_cast<float**>(costs),
                                   kAlgorithms, kProtocols, 0, &channels),
              0);
    int best = -1;
    for (int i = 0; i < kAlgorithms * kProtocols; ++i) {
      const float cost = costs[i / kProtocols][i % kProtocols];
      const bool is_better = best < 0 || cost < costs[best / kProtocols][best % kProtocols];
      if (cost >= 0 && is_better) best = i;
    }
    return best / kProtocols * 10 + best % kProtocols;
  }

  // NCCL Pulse knows this call's duration.
  void Know(uint64_t call, uint64_t ns) {
    answer_.agreed_call = call;
    answer_.agreed_ns = ns;
  }

 private:
  ncclPulseDurations_v1_t& answer_;
  const TunerV5& tuner_;
  void* context_ = nullptr;
};
constexpr int kDefault = 12;  // ring, simple

uint64_t NewComm() { return static_cast<uint64_t>(getpid()) << 32 | 0xc0; }

// What tuners of the communicator have left in /dev/shm.
int FilesOf(uint64_t comm) {
  const std::string name = absl::StrCat("example-tuner-", absl::Hex(comm, absl::kZeroPad16));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    files += entry.path().filename().string().rfind(name, 0) == 0;
  }
  return files;
}

// Memory that children of this process share.
template <typename T>
T* SharedArray(size_t count) {
  return static_cast<T*>(
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

// Processes, all of which are in init before any is further.
void RunRanks(int nranks, const std::function<std::string(int)>& settings,
              const std::function<void(int, Rank*)>& scenario) {
  auto* const arrived = SharedArray<std::atomic<int>>(1);
  const uint64_t comm = NewComm();
  Threads(nranks, [&](int rank) {
    RunInChild({{"EXAMPLE_TUNER_SETTINGS", settings(rank)}}, [&] {
      Rank self(comm);
      arrived->fetch_add(1);
      ASSERT_TRUE(WaitUntil([&] { return arrived->load() == nranks; }));
      scenario(rank, &self);
    });
  }).Join();
}

uint64_t DurationOf(int choice) { return choice == 11 ? 60000 : choice == 10 ? 150000 : 80000; }

TEST(ExampleTuner, RanksLeaveSlowSettingsAtTheSameCall) {
  constexpr int kCalls = 40000;
  for (int round = 0; round < 5; ++round) {
    int* const chosen[2] = {SharedArray<int>(kCalls), SharedArray<int>(kCalls)};
    const auto settings = [](int) { return "ring:ll,default,ring:ll128,tree:simple"; };
    RunRanks(2, settings, [&](int rank, Rank* self) {
      for (int call = 0; call < kCalls; ++call) {
        chosen[rank][call] = self->Choose();
        // Each rank learns of other calls, later, and of other durations.
        const int known = call - (rank == 0 ? 30 : 700);
        if (call % (rank == 0 ? 100 : 170) == 0 && known >= 0) {
          self->Know(
              static_cast<uint64_t>(known),
              DurationOf(chosen[rank][known]) + static_cast<uint64_t>(rank * 900 + call % 7));
        }
        if (call % 50 == round) sched_yield();
      }
    });
    std::vector<int> order;
    for (int call = 0; call < kCalls; ++call) {
      ASSERT_EQ(chosen[0][call], chosen[1][call]) << "call " << call;
      if (order.empty() || order.back() != chosen[0][call]) order.push_back(chosen[0][call]);
    }
    EXPECT_EQ(order, (std::vector<int>{10, kDefault, 11, 2, 11}));
  }
}

TEST(ExampleTuner, KeepsWhatNothingIsKnownOf) {
  RunRanks(
      2, [](int) { return "ring:ll,ring:ll128"; },
      [](int /*rank*/, Rank* self) {
        std::set<int> chosen;
        for (int call = 0; call < 300000; ++call) chosen.insert(self->Choose());
        EXPECT_EQ(chosen, std::set<int>{10});
        EXPECT_EQ(self->Choose(kAllGather), kDefault);
        EXPECT_EQ(self->Choose(kAllReduce, 100), 10);
      });
}

TEST(ExampleTuner, LeavesTheChoiceToNcclIfRanksDiffer) {
  RunRanks(
      2, [](int rank) { return rank == 0 ? "ring:ll,default" : "tree:simple"; },
      [](int /*rank*/, Rank* self) { EXPECT_EQ(self->Choose(), kDefault); });
}

TEST_IN_CHILD(ExampleTuner, LeavesTheChoiceToNcclIfARankIsMissing,
              {"EXAMPLE_TUNER_SETTINGS", "ring:ll"}) {
  Rank self(NewComm());
  EXPECT_EQ(FilesOf(NewComm()), 1);
  EXPECT_EQ(self.Choose(), kDefault);
  self.Finalize();
  Rank of_two_nodes(NewComm(), 2, 2);
  EXPECT_EQ(of_two_nodes.context(), nullptr);
  EXPECT_EQ(of_two_nodes.Choose(), kDefault);
  of_two_nodes.Finalize();
  EXPECT_EQ(FilesOf(NewComm()), 0);
}

TEST(ExampleTuner, SaysWhatIsWrongWithItsSettings) {
  for (const std::string text : {"ring", "ring:fast", "round:ll", "", ",", "default:ll"}) {
    RunInChild({{"EXAMPLE_TUNER_SETTINGS", text}}, [&] {
      Rank self(NewComm(), 2);
      EXPECT_THAT(TakeLog(), Contains(HasSubstr("\"" + text + "\" is not a list"))) << text;
      EXPECT_EQ(self.Choose(), kDefault);
      self.Finalize();
    });
  }
}

// As NCCL does for NCCL_PROFILER_PLUGIN and NCCL_TUNER_PLUGIN.
TEST_IN_CHILD(ExampleTuner, OneFileCanHaveBothRoles) {
  constexpr char kBoth[] = "plugin/libnccl-pulse-and-tuner.so";
  const auto* const profiler = Symbol<const char>(kBoth, "ncclProfiler_v5");
  const auto* const tuner = Symbol<const char>(kBoth, "ncclTunerPlugin_v5");
  ASSERT_NE(profiler, nullptr);
  ASSERT_NE(tuner, nullptr);
  Dl_info of_profiler{}, of_tuner{};
  ASSERT_NE(dladdr(profiler, &of_profiler), 0);
  ASSERT_NE(dladdr(tuner, &of_tuner), 0);
  EXPECT_EQ(of_profiler.dli_fbase, of_tuner.dli_fbase);
  // What the tuner looks up is this file, too.
  void* const pulse = dlopen("libnccl-profiler-pulse.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(pulse, nullptr);
  EXPECT_EQ(dlsym(pulse, "ncclProfiler_v5"), profiler);
}

}  // namespace
}  // namespace nccl_pulse
