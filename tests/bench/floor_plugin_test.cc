// bench/floor_plugin.cc records one event behind each launch, and none into a capture when it asks:
// else it would be no floor.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/nccl_calls.h"
#include "tests/bench/fake/counting_cuda.h"

namespace nccl_pulse::bench {
namespace {

class FloorPlugin : public testing::Test {
 protected:
  void SetUp() override {
    // By its soname the plugin finds it again.
    void* driver = dlopen(FindLibrary("tests/bench/fake/libcuda.so.1").c_str(), RTLD_NOW);
    ASSERT_NE(driver, nullptr) << dlerror();
    calls_ = static_cast<CountedCalls*>(dlsym(driver, "counted_calls"));
    ASSERT_NE(calls_, nullptr);
    *calls_ = {};
  }

  void MakeTenCollectives() {
    static NcclCalls calls(FindLibrary("bench/libfloor_plugin.so"));
    void* context = calls.Init(1);
    ASSERT_NE(context, nullptr);
    // It keeps no operation: only launches have handles.
    for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(calls.EagerCollective(context, i, 4), nullptr);
    calls.Finalize(context);
  }

  CountedCalls* calls_ = nullptr;
};

TEST_F(FloorPlugin, RecordsBehindEachLaunch) {
  unsetenv("FLOOR_PLUGIN_ASKS");
  calls_->capturing = 1;  // it does not ask
  MakeTenCollectives();
  EXPECT_EQ(calls_->events, 1);
  EXPECT_EQ(calls_->records, 10);
  EXPECT_EQ(calls_->questions, 0);
}

TEST_F(FloorPlugin, AsksFirstWhenToldTo) {
  setenv("FLOOR_PLUGIN_ASKS", "1", 1);
  MakeTenCollectives();
  EXPECT_EQ(calls_->records, 10);
  EXPECT_EQ(calls_->questions, 10);
  calls_->capturing = 1;
  MakeTenCollectives();
  EXPECT_EQ(calls_->records, 10) << "it recorded into a capture";
  EXPECT_EQ(calls_->questions, 20);
}

}  // namespace
}  // namespace nccl_pulse::bench
