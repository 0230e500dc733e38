// Copy-engine collectives as NCCL makes them, from API v6 on.
#ifndef TESTS_PLUGIN_COPY_ENGINE_H_
#define TESTS_PLUGIN_COPY_ENGINE_H_

#include "gtest/gtest.h"
#include "plugin/abi/profiler_v6.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {

// NCCL reports CeColl, makes the copies on the stream, and reports neither KernelLaunch nor Coll.
class CopyEngine {
 public:
  CopyEngine(FakeCuda& gpu, StreamCommunicator& comm) : gpu_(gpu), comm_(comm) {}

  void* Start(const StreamCommunicator::Call& call) {
    abi::v6::Descriptor event{};
    event.type = abi::kEventCeColl;
    event.parentObj = call.handle;
    event.ceColl.func = call.op;
    event.ceColl.count = call.bytes;
    event.ceColl.datatype = "ncclInt8";
    event.ceColl.stream = comm_.stream();
    void* handle = &event;
    gpu_.EnterCallback();
    EXPECT_EQ(Profiler().startEvent(comm_.context(), &handle, &event), abi::kSuccess);
    gpu_.LeaveCallback();
    return handle;
  }
  void Stop(void* handle) {
    gpu_.EnterCallback();
    if (handle != nullptr) Profiler().stopEvent(handle);
    gpu_.LeaveCallback();
  }
  void Carry(const StreamCommunicator::Call& call, uint64_t duration_ns) {
    void* handle = Start(call);
    gpu_.Launch(comm_.stream(), duration_ns);
    Stop(handle);
  }
  // A call in a group of its own.
  void Run(uint64_t duration_ns = kMs, const char* op = "AllGather", uint64_t bytes = 4096,
           bool captured = false) {
    void* group = comm_.StartGroup(captured);
    Carry(comm_.MakeCall(group, op, bytes, captured), duration_ns);
    comm_.StopGroup(group);
  }

 private:
  static const abi::v6::Profiler& Profiler() { return ProfilerOf<abi::v6::Profiler>(6); }

  FakeCuda& gpu_;
  StreamCommunicator& comm_;
};

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_COPY_ENGINE_H_
