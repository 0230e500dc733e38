// Captures that threads begin at the same moment, as those of a process do that each have a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "plugin/cuda/graph_stamps.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

// A stream's handle is the id of its capture.
CudaStream StreamOf(uint64_t capture_id) {
  return reinterpret_cast<CudaStream>(capture_id);  // NOLINT(performance-no-int-to-ptr)
}

int CaptureInfo(CudaStream stream, int* status, uint64_t* id, CudaGraph* /*graph*/,
                const void** /*dependencies*/, size_t* /*count*/) {
  *status = kCudaCaptureActive;
  *id = reinterpret_cast<uint64_t>(stream);
  return kCudaSuccess;
}

// Ids whose captures meet in one set, as one pair in 32 does.
std::vector<uint64_t> IdsOfOneSet(size_t count) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; ids.size() < count; ++id) {
    if (GraphStamps::SetOf(id) == 0) ids.push_back(id);
  }
  return ids;
}

// So that both go on at once, and that one processor is enough.
void WaitFor(const std::atomic<int>& arrived, int count) {
  for (int look = 1; arrived.load() < count; ++look) {
    if (look % 1000 == 0) std::this_thread::yield();
  }
}

// None is passed over for the other's sake, and none is closed by the other: a capture that has to
// be opened again has lost its calls and its position.
TEST(OpenCaptures, TwoThatBeginAtOnceAreBothKept) {
  constexpr int kThreads = 2;
  constexpr int kRounds = 200000;
  const CudaDriver driver{};
  StampDriver stamps{};
  stamps.capture_info = CaptureInfo;
  const std::unique_ptr<GraphStamps> graphs = GraphStamps::Make(driver, stamps);
  ASSERT_NE(graphs, nullptr);
  const std::vector<uint64_t> ids = IdsOfOneSet(size_t{kThreads} * kRounds);
  std::atomic<int> arrived{0};
  Threads(kThreads, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const CudaStream stream = StreamOf(ids[size_t{kThreads} * round + thread]);
      arrived.fetch_add(1);
      WaitFor(arrived, kThreads * (round + 1));
      for (int call = 0; call < 2; ++call) {
        graphs->NoteCall(stream, CapturedCalls::PackKind(0, 1, 1), 1, 100);
      }
    }
  }).Join();
  EXPECT_EQ(graphs->captures().seen, uint64_t{kThreads} * kRounds);
}

}  // namespace
}  // namespace nccl_pulse
