// bench/floor_plugin.cc records one event behind each launch, and none into a capture when it asks:
// else it would be no floor.
#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/nccl_calls.h"
#include "tests/plugin/load_fake_cuda.h"

namespace nccl_pulse::bench {
namespace {

class FloorPlugin : public testing::Test {
 protected:
  FloorPlugin()
      : gpu_(LoadFakeCuda()),
        context_(gpu_.CreateContext(0)),
        stream_(gpu_.CreateStream(context_)) {
    gpu_.MakeCurrent(context_);
  }

  struct Counts {
    uint64_t events, records, into_captures, questions;
  };
  Counts Now() {
    return {gpu_.EventsCreated(), gpu_.Calls("cuEventRecord"), gpu_.RecordsIntoCaptures(),
            gpu_.Calls("cuStreamIsCapturing")};
  }

  // What the driver was asked for by ten collectives of a new communicator.
  Counts OfTenCollectives() {
    static NcclCalls<ApiV5> calls(FindLibrary("bench/libfloor_plugin.so"));
    const Counts before = Now();
    void* context = calls.Init(1);
    EXPECT_NE(context, nullptr);
    for (uint64_t i = 0; i < 10; ++i) {
      // It keeps no operation: only launches have handles.
      EXPECT_EQ(calls.EagerCollective(context, i, 4, stream_), nullptr);
    }
    calls.Finalize(context);
    const Counts after = Now();
    return {after.events - before.events, after.records - before.records,
            after.into_captures - before.into_captures, after.questions - before.questions};
  }

  FakeCuda& gpu_;
  FakeCuda::Context context_;
  FakeCuda::Stream stream_;
};

TEST_F(FloorPlugin, RecordsBehindEachLaunch) {
  unsetenv("FLOOR_PLUGIN_ASKS");
  const Counts counts = OfTenCollectives();
  EXPECT_EQ(counts.events, 1u);
  EXPECT_EQ(counts.records, 10u);
  EXPECT_EQ(counts.questions, 0u);
  gpu_.BeginCapture(stream_);
  EXPECT_EQ(OfTenCollectives().into_captures, 10u) << "it did ask";
}

TEST_F(FloorPlugin, AsksFirstWhenToldTo) {
  setenv("FLOOR_PLUGIN_ASKS", "1", 1);
  Counts counts = OfTenCollectives();
  EXPECT_EQ(counts.records, 10u);
  EXPECT_EQ(counts.questions, 10u);
  gpu_.BeginCapture(stream_);
  counts = OfTenCollectives();
  EXPECT_EQ(counts.records, 0u) << "it recorded into a capture";
  EXPECT_EQ(counts.questions, 10u);
}

// As the legacy stream is answered for while another one is in capture.
TEST_F(FloorPlugin, TakesARefusedQuestionForACapture) {
  setenv("FLOOR_PLUGIN_ASKS", "1", 1);
  gpu_.Fail("cuStreamIsCapturing", FakeCuda::kCaptureImplicit);
  const Counts counts = OfTenCollectives();
  gpu_.StopFailing();
  EXPECT_EQ(counts.records, 0u);
  EXPECT_EQ(counts.questions, 10u);
}

}  // namespace
}  // namespace nccl_pulse::bench
