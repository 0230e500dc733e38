#include "metrics/peers.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using Numbers = std::vector<uint64_t>;

LastCallSnapshot Call(const std::string& op, int32_t peer, uint64_t launch, bool joins = false) {
  LastCallSnapshot call;
  call.op = op;
  call.peer = peer;
  call.launch = launch;
  call.is_of_group = joins;
  return call;
}

PeersSnapshot PeersOf(const std::vector<LastCallSnapshot>& calls, uint64_t launches,
                      uint64_t completed, OldestLaunch oldest = {}, bool is_at_oldest = false) {
  CommunicatorSnapshot communicator;
  communicator.rank = 0;
  communicator.launches = launches;
  communicator.launches_completed = completed;
  communicator.oldest_launch = oldest;
  communicator.is_at_oldest = is_at_oldest;
  return PeersOf(calls, communicator);
}

TEST(Peers, OfAllLaunchesInFlight) {
  const std::vector<LastCallSnapshot> calls = {Call("Send", 7, 4), Call("Send", 3, 5),
                                               Call("Recv", 1, 5, true), Call("Recv", 2, 6)};
  const PeersSnapshot peers = PeersOf(calls, 6, 4);
  EXPECT_TRUE(peers.are_known);
  EXPECT_EQ(peers.sends_to, Numbers({3}));
  EXPECT_EQ(peers.receives_from, Numbers({1, 2}));
  EXPECT_FALSE(PeersOf(calls, 6, 6).are_known) << "nothing is in flight";
  EXPECT_EQ(PeersOf(calls, 6, 6).sends_to, Numbers());
}

// NCCL cuts these into launches 5 and 6.
TEST(Peers, OfAGroupOfSeveralLaunches) {
  const std::vector<LastCallSnapshot> calls = {Call("Send", 3, 5), Call("Recv", 1, 5, true)};
  EXPECT_TRUE(PeersOf(calls, 6, 5).are_known);
  EXPECT_FALSE(PeersOf({Call("Send", 3, 5)}, 6, 5).are_known) << "whatever launch 6 carries";
}

TEST(Peers, ItselfIsNone) {
  const std::vector<LastCallSnapshot> calls = {Call("Send", -1, 5), Call("Send", 1, 5, true),
                                               Call("Recv", 1, 5, true), Call("Recv", -1, 5, true)};
  const PeersSnapshot peers = PeersOf(calls, 5, 4);
  EXPECT_TRUE(peers.are_known);
  EXPECT_EQ(peers.sends_to, Numbers({1}));
  EXPECT_EQ(PeersOf({Call("Send", 0, 5), Call("Send", 1, 5, true)}, 5, 4).sends_to, Numbers({1}));
}

TEST(Peers, UnlessAllAreKnown) {
  const auto is_known = [](const std::vector<LastCallSnapshot>& calls) {
    return PeersOf(calls, 5, 4).are_known;
  };
  EXPECT_FALSE(is_known({}));
  EXPECT_FALSE(is_known({Call("Send", -1, 5)}));
  EXPECT_FALSE(is_known({Call("Send", -1, 5), Call("Recv", -1, 5, true)}));
  EXPECT_FALSE(is_known({Call("Send", -1, 5), Call("Recv", 1, 5, true)}));
  EXPECT_FALSE(is_known({Call("AllReduce", -1, 5)}));
  EXPECT_FALSE(is_known({Call("Send", 1, 5), Call("AllReduce", -1, 5, true)}));
  EXPECT_FALSE(is_known({Call("Send", 1, 5, true)})) << "the beginning of its group is lost";
  EXPECT_FALSE(is_known({Call("Send", 1, 5), Call("Send", 2, 0)})) << "not launched";
  const PeersSnapshot some = PeersOf({Call("Send", 1, 5, true), Call("Recv", -1, 5, true)}, 5, 4);
  EXPECT_EQ(some.sends_to, Numbers({1})) << "what is known is kept";
}

// The first of several launches in flight may be complete, unless a gate shows that it is not.
TEST(Peers, OfTheCallThatTheGpuIsIn) {
  const auto receiver = [](const std::vector<LastCallSnapshot>& calls, uint64_t launches,
                           OldestLaunch oldest, bool is_at_oldest) {
    return PeersOf(calls, launches, 4, oldest, is_at_oldest).is_sending_to;
  };
  const LastCallSnapshot send = Call("Send", 3, 5);
  const LastCallSnapshot receive = Call("Recv", 1, 6);
  EXPECT_EQ(receiver({send, receive}, 6, OldestLaunch::kBegun, true), 3);
  EXPECT_EQ(receiver({send, receive}, 6, OldestLaunch::kBegun, false), -1);
  EXPECT_EQ(receiver({send}, 5, OldestLaunch::kUnknown, false), 3) << "the only one";
  EXPECT_EQ(receiver({send}, 5, OldestLaunch::kNotBegun, false), -1);
  const PeersSnapshot receives =
      PeersOf({Call("Recv", 3, 5), Call("Send", 1, 6)}, 6, 4, OldestLaunch::kBegun, true);
  EXPECT_EQ(receives.is_sending_to, -1);
  EXPECT_EQ(receives.is_receiving_from, 3);
  EXPECT_EQ(receiver({Call("Send", 0, 5)}, 5, OldestLaunch::kBegun, true), -1) << "itself";
  EXPECT_EQ(receiver({send, Call("Send", 2, 5, true)}, 5, OldestLaunch::kBegun, true), -1);
  EXPECT_EQ(receiver({Call("Send", 3, 5, true)}, 5, OldestLaunch::kBegun, true), -1)
      << "the beginning of its group is lost";
}

}  // namespace
}  // namespace nccl_pulse
