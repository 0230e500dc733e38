// Machines that refuse what shared memory needs: less is measured, or only for this process, one
// warning says so, and the job never notices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>

#include "plugin/tracker/operation_ring.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr int kMadvPopulateWrite = 23;  // Linux 5.14

void RunJob() {
  NcclCommunicator first(1);
  NcclCommunicator second(2);
  EXPECT_NE(first.context(), nullptr);
  EXPECT_NE(second.context(), nullptr);
  EXPECT_NE(first.event_mask(), 0);
  EXPECT_EQ(first.event_mask(), second.event_mask());
  for (uint32_t i = 0; i < 2 * kOperationSlots; ++i) {
    first.RunWithProxy();
    void* coll = second.Enqueue();
    EXPECT_NE(coll, nullptr);
  }
  first.Finalize();
  second.Finalize();
}

std::vector<std::string> WarningsWith(const std::string& text) {
  std::vector<std::string> found;
  for (const std::string& line : TakeLog()) {
    if (line.find(text) != std::string::npos) found.push_back(line);
  }
  return found;
}

struct Refusal {
  const char* name;
  RefusedCall call;
  bool shared;  // whether the segment can be shared all the same
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, CostsNothingButTheRefused) {
  const Refusal& refusal = GetParam();
  RunInChild({}, [&refusal] {
    FindProfiler(5);
    // As before Linux 5.14: madvise populates nothing.
    if (!RefuseSystemCalls({refusal.call, {SYS_madvise, EINVAL}}))
      SkipScenario("seccomp filters are not permitted here");
    RunJob();
    const std::vector<std::string> warnings = WarningsWith("memory");
    EXPECT_EQ(FindSegments().size(), refusal.shared ? 1u : 0u);
    EXPECT_EQ(warnings.size(), refusal.shared ? 0u : 1u);
    if (!refusal.shared) return;
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_TRUE(snapshot.shared_memory);
    EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 2u * kOperationSlots);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Memory, RefusalTest,
    ::testing::Values(Refusal{"memfd", {SYS_memfd_create, EPERM}, false},
                      Refusal{"memfd_not_there", {SYS_memfd_create, ENOSYS}, false},
                      Refusal{"size", {SYS_ftruncate, ENOMEM}, false},
                      Refusal{"seals", {SYS_fcntl, EPERM, F_ADD_SEALS}, false},
                      Refusal{"memory_of_the_container", {SYS_fallocate, ENOMEM}, false},
                      Refusal{"any_file", {SYS_openat, EACCES}, true}),
    [](const ::testing::TestParamInfo<Refusal>& info) { return std::string(info.param.name); });

// No thread may be started: limits on processes count threads too.
TEST_IN_CHILD(MemoryTest, NoThread) {
  FindProfiler(5);
  if (!RefuseSystemCalls({{SYS_clone, EAGAIN}, {SYS_clone3, EAGAIN}})) {
    SkipScenario("seccomp filters are not permitted here");
  }
  RunJob();
  EXPECT_EQ(WarningsWith("no background thread could be started").size(), 1u);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.poller, PollerState::kNotStarted);
  EXPECT_EQ(snapshot.duration_source, "none");
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 2u * kOperationSlots);
}

TEST(MemoryTest, NeitherSharedNorPrivate) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer needs mmap itself";
  RunInChild({}, [] {
    FindProfiler(5);
    // From now on there is no address space for a segment.
    if (!RefuseSystemCalls({{SYS_memfd_create, EPERM}, {SYS_mmap, ENOMEM}})) {
      SkipScenario("seccomp filters are not permitted here");
    }
    const auto& profiler = ProfilerOf<abi::v5::Profiler>(5);
    for (int i = 0; i < 3; ++i) {
      void* context = &context;
      int mask = 0;
      EXPECT_EQ(profiler.init(&context, 1, &mask, "x", 1, 2, 0, Logger), abi::kSuccess);
      EXPECT_EQ(context, nullptr);
      EXPECT_EQ(mask, 0) << "nothing is measured, so nothing is asked for";
      EXPECT_EQ(Start(context, CollEvent(nullptr, 0, 1)), nullptr);
      Stop(nullptr);
      EXPECT_EQ(profiler.finalize(context), abi::kSuccess);
    }
    EXPECT_EQ(WarningsWith("memory").size(), 1u);
  });
}

}  // namespace
}  // namespace nccl_pulse
