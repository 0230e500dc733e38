// What the application called last, as a reader sees it.
#include "gtest/gtest.h"
#include "metrics/size_class.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

TEST_IN_CHILD(LastCall, OperationAndSizeOfTheLastOne) {
  NcclCommunicator communicator(1);
  EXPECT_EQ(Find(ReadSnapshot(), 1).last_call_op, "");
  communicator.Enqueue();
  CommunicatorSnapshot read = Find(ReadSnapshot(), 1);
  EXPECT_EQ(read.last_call_op, "AllReduce");
  EXPECT_EQ(read.last_call_size_class, SizeClassOf(NcclCommunicator::kBytes));
  Start(communicator.context(), CallEvent("Broadcast", uint64_t{1} << 32, "ncclInt8"));
  read = Find(ReadSnapshot(), 1);
  EXPECT_EQ(read.last_call_op, "Broadcast");
  EXPECT_EQ(read.last_call_size_class, kSizeClasses - 1);
  Start(communicator.context(), P2pCallEvent("Recv", 1, "ncclInt8"));
  EXPECT_EQ(Find(ReadSnapshot(), 1).last_call_op, "Recv");
}

}  // namespace
}  // namespace nccl_pulse
