// The tags that the user gives NCCL with a call (API v7): which are labels, and how many.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plugin/abi/profiler_v7.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// A communicator on NCCL 2.31.2, whose calls have tags.
class TaggedCommunicator {
 public:
  TaggedCommunicator(FakeCuda& gpu, uint64_t comm_id)
      : gpu_(gpu), comm_id_(comm_id), stream_(NewStream(gpu)) {
    int mask = 0;
    EXPECT_EQ(api_.init(&context_, comm_id, &mask, "tagged", 1, 2, 0, Logger), abi::kSuccess);
  }

  void Run(uint64_t user_tag, uint64_t duration_ns = kMs) {
    abi::v7::Descriptor group{};
    group.type = abi::kEventGroupApi;
    group.groupApi = {false, 1};
    Stop(Start(group));
    abi::v7::Descriptor call{};
    call.type = abi::kEventCollApi;
    call.collApi = {"AllReduce", 4096, "ncclInt8", 0, stream_, false, user_tag};
    void* const parent = Start(call);
    Stop(parent);
    Launch(duration_ns);
    abi::v7::Descriptor coll{};
    coll.type = abi::kEventColl;
    coll.parentObj = parent;
    coll.coll.seqNumber = sequence_++;
    coll.coll.func = "AllReduce";
    coll.coll.count = 4096;
    coll.coll.datatype = "ncclInt8";
    coll.coll.algo = "RING";
    coll.coll.proto = "LL";
    coll.coll.userTag = user_tag;
    Stop(Start(coll));
  }
  // A Send and a Recv to each of the two ranks, of one call.
  void RunAlltoAll(uint64_t user_tag) {
    abi::v7::Descriptor group{};
    group.type = abi::kEventGroupApi;
    group.groupApi = {false, 1};
    Stop(Start(group));
    for (const char* func : {"Send", "Recv", "Send", "Recv"}) {
      abi::v7::Descriptor call{};
      call.type = abi::kEventP2pApi;
      call.p2pApi = {func, 4096, "ncclInt8", stream_, false, user_tag};
      Stop(Start(call));
    }
    Launch(kMs);
    for (const char* func : {"Send", "Recv", "Send", "Recv"}) {
      abi::v7::Descriptor part{};
      part.type = abi::kEventP2p;
      part.p2p.func = func;
      part.p2p.count = 4096;
      part.p2p.datatype = "ncclInt8";
      part.p2p.peer = 1;
      Stop(Start(part));
    }
  }
  CommunicatorSnapshot Read() const { return Find(ReadSnapshot(), comm_id_); }

 private:
  static FakeCuda::Stream NewStream(FakeCuda& gpu) {
    const FakeCuda::Context context = gpu.CreateContext(0);
    gpu.MakeCurrent(context);
    return gpu.CreateStream(context);
  }
  void* Start(abi::v7::Descriptor event) {
    const InCallback in_callback(gpu_);
    void* handle = nullptr;
    EXPECT_EQ(api_.startEvent(context_, &handle, &event), abi::kSuccess);
    return handle;
  }
  void Stop(void* handle) {
    const InCallback in_callback(gpu_);
    if (handle == nullptr) return;
    EXPECT_EQ(api_.stopEvent(handle), abi::kSuccess);
  }
  void Launch(uint64_t duration_ns) {
    abi::v7::Descriptor launch{};
    launch.type = abi::kEventKernelLaunch;
    launch.kernelLaunch.stream = stream_;
    void* const handle = Start(launch);
    gpu_.Launch(stream_, duration_ns);
    Stop(handle);
  }

  const abi::v7::Profiler& api_ = ProfilerOf<abi::v7::Profiler>(7);
  FakeCuda& gpu_;
  const uint64_t comm_id_;
  const FakeCuda::Stream stream_;
  void* context_ = nullptr;
  uint64_t sequence_ = 0;
};

using ByTag = std::map<std::string, uint64_t>;

ByTag CallsByTag(const CommunicatorSnapshot& communicator) {
  ByTag calls;
  for (const CallCountSnapshot& call : communicator.calls) calls[call.user_tag] += call.calls;
  return calls;
}

ByTag TimedByTag(const CommunicatorSnapshot& communicator, const std::string& op) {
  ByTag timed;
  for (const LatencySnapshot& latency : communicator.latencies) {
    if (latency.op == op) timed[latency.user_tag] += latency.histogram.Count();
  }
  return timed;
}

int LinesThatName(const std::string& setting) {
  int lines = 0;
  for (const std::string& line : TakeLog()) lines += line.find(setting) != std::string::npos;
  return lines;
}

TEST_WITH_GPU(UserTagsTest, CallsAndDurationsHaveThem, {"NCCL_PULSE_USER_TAGS", "8"}) {
  TaggedCommunicator comm(gpu, 1);
  EXPECT_EQ(LinesThatName("USER_TAGS"), 0);
  TimeEveryCall();
  for (int i = 0; i < 4; ++i) {
    comm.Run(17);
    comm.Run(UINT64_MAX);
    comm.Run(0);
    AdvanceAndPoll(gpu, kSecond);
  }
  const ByTag calls{{"", 4}, {"17", 4}, {"18446744073709551615", 4}};
  EXPECT_EQ(CallsByTag(comm.Read()), calls);
  // The first two calls of one kind, tagged or not, are not timed.
  const ByTag timed{{"", 4}, {"17", 3}, {"18446744073709551615", 3}};
  EXPECT_EQ(TimedByTag(comm.Read(), "AllReduce"), timed);
}

TEST_WITH_GPU(UserTagsTest, ACompositeHasThatOfItsParts, {"NCCL_PULSE_USER_TAGS", "8"}) {
  TaggedCommunicator comm(gpu, 1);
  TimeEveryCall();
  for (int i = 0; i < 3; ++i) comm.RunAlltoAll(17);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(TimedByTag(comm.Read(), "AlltoAll"), (ByTag{{"17", 1}}));
}

TEST_WITH_GPU(UserTagsTest, SoManyAreToldApartAndTheRestIsOther, {"NCCL_PULSE_USER_TAGS", "2"}) {
  TaggedCommunicator first(gpu, 1);
  TaggedCommunicator second(gpu, 2);
  for (uint64_t tag = 1000; tag > 0; --tag) first.Run(tag);
  second.Run(3);     // of the process: this one came too late
  second.Run(1000);  // and this one did not
  EXPECT_EQ(CallsByTag(first.Read()), (ByTag{{"1000", 1}, {"999", 1}, {"other", 998}}));
  EXPECT_EQ(CallsByTag(second.Read()), (ByTag{{"1000", 1}, {"other", 1}}));
}

TEST(UserTagsTest, TheyAreOffUnlessAskedFor) {
  for (const Environment& environment :
       {Environment{}, Environment{{"NCCL_PULSE_USER_TAGS", "off"}}}) {
    RunWithGpu(
        [](FakeCuda& gpu) {
          TaggedCommunicator comm(gpu, 1);
          EXPECT_EQ(LinesThatName("USER_TAGS"), 0);
          TimeEveryCall();
          for (uint64_t tag = 0; tag < 4; ++tag) comm.Run(tag);
          AdvanceAndPoll(gpu, kSecond);
          EXPECT_EQ(CallsByTag(comm.Read()), (ByTag{{"", 4}}));
          EXPECT_EQ(TimedByTag(comm.Read(), "AllReduce"), (ByTag{{"", 2}}));
        },
        environment);
  }
}

TEST_WITH_STREAM(UserTagsTest, AnOlderApiSaysOnceThatThereAreNone, {"NCCL_PULSE_USER_TAGS", "8"}) {
  StreamCommunicator another(gpu, 2);
  EXPECT_EQ(LinesThatName("NCCL_PULSE_USER_TAGS has no effect"), 1);
  comm.Run();
  EXPECT_EQ(CallsByTag(comm.Read()), (ByTag{{"", 1}}));
}

}  // namespace
}  // namespace nccl_pulse
