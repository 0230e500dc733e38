// Which GPU a communicator is on: from the driver, for the context that is current at its init.
// There is no /proc/driver/nvidia here, as in many containers.
#include <gtest/gtest.h>

#include <set>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

TEST_WITH_GPU(GpuIdentityTest, SeveralGpusOfOneProcess) {
  std::set<std::string> uuids;
  std::set<std::string> addresses;
  for (int device = 0; device < 8; ++device) {
    const StreamCommunicator comm(gpu, static_cast<uint64_t>(device) + 1, device);
    uuids.insert(comm.Read().uuid);
    addresses.insert(comm.Read().pci_bus_id);
  }
  EXPECT_EQ(uuids.size(), 8u);
  EXPECT_EQ(uuids.count("GPU-03030303-0303-0303-0303-030303030303"), 1u);
  EXPECT_EQ(addresses.size(), 8u);
  EXPECT_EQ(addresses.count("00000000:03:00.0"), 1u);
  // Two communicators of one GPU.
  const StreamCommunicator again(gpu, 100, 3);
  EXPECT_EQ(uuids.count(again.Read().uuid), 1u);
}

// Each of the three is known without the others; what is not known is not guessed: the ordinal is
// that of CUDA_VISIBLE_DEVICES, and another GPU's index.
TEST(GpuIdentityTest, WhatTheDriverDoesNotSay) {
  for (const char* function : {"cuDeviceGetUuid", "cuDeviceGetPCIBusId", "cuCtxGetDevice"}) {
    RunWithGpu([function](FakeCuda& gpu) {
      gpu.Fail(function, 2);
      const StreamCommunicator comm(gpu, 1, 5);
      const std::string failed = function;
      const bool no_device = failed == "cuCtxGetDevice";
      EXPECT_EQ(comm.Read().uuid.empty(), no_device || failed == "cuDeviceGetUuid");
      EXPECT_EQ(comm.Read().pci_bus_id.empty(), no_device || failed == "cuDeviceGetPCIBusId");
      EXPECT_EQ(comm.Read().gpu, "");
    });
  }
}

}  // namespace
}  // namespace nccl_pulse
