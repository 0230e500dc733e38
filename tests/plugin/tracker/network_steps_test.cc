// Where network steps waited, and what they moved.
#include "plugin/tracker/network_steps.h"

#include <gtest/gtest.h>

#include "plugin/abi/common.h"
#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

class NetworkStepsTest : public ::testing::Test {
 protected:
  NetworkStepsTest() { steps_.Prepare(false); }

  // An operation with a ProxyOp; the ProxyOp's ticket.
  uint64_t StartProxyOp(bool captured = false) {
    const OperationMeta meta{3, 1, 2, true, 0};
    Communicator& communicator = process_.communicator();
    const uint64_t operation = ClaimPlace(process_.parts().ring, communicator.first_ticket, false,
                                          {meta.Pack(), 8, process_.clock.NowNs(), captured});
    uint32_t number = 0;  // which the compiler does not see set
    const uint32_t place = Ticket::Operation(operation);
    const uint32_t generation = Ticket::Generation(operation);
    process_.parts().ring.slot(place).StartProxy(generation, &number);
    return Ticket::Pack(process_.instruments.process_tag, TicketKind::kProxyOp, number, generation,
                        place, communicator.index);
  }
  void Record(uint64_t ticket, int state, uint64_t after_ns, uint64_t bytes = 0) {
    Pass(after_ns);
    steps_.Record(ticket, state, &bytes);
  }
  void Pass(uint64_t ns) { process_.clock.StandAt(process_.clock.NowNs() + ns); }
  uint64_t Waited(NetworkWait wait) {
    uint64_t sum = 0;
    for (const Lane& lane : process_.record().lanes) {
      sum += lane.network_wait_ns[static_cast<int>(wait)].load();
    }
    return sum;
  }
  uint64_t Bytes(NetworkDirection direction) {
    uint64_t sum = 0;
    for (const Lane& lane : process_.record().lanes) {
      sum += lane.network_bytes[static_cast<int>(direction)].load();
    }
    return sum;
  }

  Process process_;
  NetworkSteps steps_{process_.instruments, process_.table};
};

TEST_F(NetworkStepsTest, ASendWaitsForTheGpuThePeerAndTheWire) {
  const uint64_t step = steps_.Start(StartProxyOp());
  Record(step, abi::kStateProxyStepSendGpuWait, 5);
  Record(step, abi::kStateProxyStepSendPeerWait, 10);
  Record(step, abi::kStateProxyStepSendPeerWait, 7);  // offered again
  Record(step, abi::kStateProxyStepSendWait, 20, 4096);
  Pass(40);
  steps_.Stop(step);
  EXPECT_EQ(Waited(NetworkWait::kSendGpu), 10u);
  EXPECT_EQ(Waited(NetworkWait::kSendPeer), 27u);
  EXPECT_EQ(Waited(NetworkWait::kSendWire), 40u);
  EXPECT_EQ(Bytes(NetworkDirection::kSend), 4096u);
  EXPECT_EQ(Bytes(NetworkDirection::kReceive), 0u);
}

TEST_F(NetworkStepsTest, AReceiveWaitsOnTheWireForTheFlushAndForTheGpu) {
  const uint64_t step = steps_.Start(StartProxyOp());
  Record(step, abi::kStateProxyStepRecvWait, 5);
  Record(step, abi::kStateProxyStepRecvFlushWait, 10, 512);
  Record(step, abi::kStateProxyStepRecvGpuWait, 20);
  Pass(40);
  steps_.Stop(step);
  EXPECT_EQ(Waited(NetworkWait::kReceiveWire), 10u);
  EXPECT_EQ(Waited(NetworkWait::kReceiveFlush), 20u);
  EXPECT_EQ(Waited(NetworkWait::kReceiveGpu), 40u);
  EXPECT_EQ(Bytes(NetworkDirection::kReceive), 512u);
}

TEST_F(NetworkStepsTest, AStepIsStoppedOnce) {
  const uint64_t step = steps_.Start(StartProxyOp());
  Record(step, abi::kStateProxyStepSendWait, 1, 10);
  steps_.Stop(step);
  steps_.Stop(step);
  Record(step, abi::kStateProxyStepSendWait, 1, 10);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kRepeatedStop), 2u);
  EXPECT_EQ(Bytes(NetworkDirection::kSend), 10u);
}

TEST_F(NetworkStepsTest, StatesComeInTheirOrder) {
  const uint64_t step = steps_.Start(StartProxyOp());
  Record(step, abi::kStateProxyStepSendWait, 1);
  Record(step, abi::kStateProxyStepSendGpuWait, 1);
  Record(step, abi::kStateProxyStepRecvWait, 1);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kUnknownState), 2u);
}

TEST_F(NetworkStepsTest, OfAGraphOnlyWhereStepsAreWatchedAlways) {
  EXPECT_EQ(steps_.Start(StartProxyOp(true)), 0u);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kUnfollowedStep), 1u);
  NetworkSteps always(process_.instruments, process_.table);
  always.Prepare(true);
  EXPECT_NE(always.Start(StartProxyOp(true)), 0u);
}

TEST_F(NetworkStepsTest, BeforeThereIsRoomAllAreRefused) {
  NetworkSteps unprepared(process_.instruments, process_.table);
  EXPECT_EQ(unprepared.Start(StartProxyOp()), 0u);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kUnrequestedType), 1u);
}

TEST_F(NetworkStepsTest, TheFirstThatMovesDataIsNoted) {
  const uint64_t proxy_op = StartProxyOp();
  const uint64_t late = steps_.Start(proxy_op);
  const uint64_t early = steps_.Start(proxy_op);
  Record(early, abi::kStateProxyStepSendPeerWait, 30);
  Record(late, abi::kStateProxyStepRecvFlushWait, 70);
  const uint64_t move = (*process_.parts().first_moves)[Ticket::Operation(proxy_op)].load();
  EXPECT_EQ(FirstMove::Generation(move), Ticket::Generation(proxy_op));
  EXPECT_EQ(FirstMove::DeltaNs(move), 30u);
}

TEST_F(NetworkStepsTest, WhatEndsAfterItsCommunicatorIsNoSample) {
  const uint64_t step = steps_.Start(StartProxyOp());
  Record(step, abi::kStateProxyStepSendWait, 1, 4096);
  CommunicatorRecord& record = process_.record();
  process_.table.Finish(*process_.table.Close(process_.context));
  steps_.Stop(step);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kAfterClose), 1u);
  for (const Lane& lane : record.lanes) EXPECT_EQ(lane.network_bytes[0].load(), 0u);
}

}  // namespace
}  // namespace nccl_pulse
