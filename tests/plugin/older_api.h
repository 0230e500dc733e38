// A communicator of an NCCL before 2.28.3: API v4, which has neither calls nor launches.
#ifndef TESTS_PLUGIN_OLDER_API_H_
#define TESTS_PLUGIN_OLDER_API_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>

#include "plugin/abi/profiler_v4.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {

class OlderCommunicator {
 public:
  // Without a name, as most are.
  explicit OlderCommunicator(uint64_t comm_id) {
    int mask = 0;
    EXPECT_EQ(profiler_.init(&context_, &mask, nullptr, comm_id, 1, 2, 0, Logger), abi::kSuccess);
  }
  OlderCommunicator(const OlderCommunicator&) = delete;
  OlderCommunicator& operator=(const OlderCommunicator&) = delete;

  // Group and Coll of an AllReduce of so many elements of four bytes. Returns the Coll's handle.
  // Without a handle for the Group, NCCL omits the Coll (ncclProfilerStartTaskEvents, 2.27.7).
  void* Enqueue(uint64_t count = 256) {
    abi::v4::Descriptor event{};
    event.type = static_cast<uint8_t>(abi::kEventGroup);
    void* group = Start(event);
    if (group == nullptr) return nullptr;
    event.type = static_cast<uint8_t>(abi::kEventColl);
    event.parentObj = group;
    event.coll.func = "AllReduce";
    event.coll.count = count;
    event.coll.datatype = "ncclFloat32";
    event.coll.algo = "RING";
    event.coll.proto = "LL";
    event.coll.nChannels = 2;
    void* operation = Start(event);
    Stop(operation);
    Stop(group);
    return operation;
  }
  void* StartProxyOp(void* operation) {
    abi::v4::Descriptor event{};
    event.type = static_cast<uint8_t>(abi::kEventProxyOp);
    event.parentObj = operation;
    event.proxyOp.pid = getpid();
    return Start(event);
  }
  void Stop(void* handle) { profiler_.stopEvent(handle); }

 private:
  void* Start(abi::v4::Descriptor event) {
    void* handle = nullptr;
    EXPECT_EQ(profiler_.startEvent(context_, &handle, &event), abi::kSuccess);
    return handle;
  }

  const abi::v4::Profiler& profiler_ = ProfilerOf<abi::v4::Profiler>(4);
  void* context_ = nullptr;
};

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_OLDER_API_H_
