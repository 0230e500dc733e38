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

TEST(Peers, OfAllLaunchesInFlight) {
  const std::vector<LastCallSnapshot> calls = {Call("Send", 7, 4), Call("Send", 3, 5),
                                               Call("Recv", 1, 5, true), Call("Recv", 2, 6)};
  const PeersSnapshot peers = PeersOf(calls, 6, 4, 0);
  EXPECT_TRUE(peers.are_known);
  EXPECT_EQ(peers.sends_to, Numbers({3}));
  EXPECT_EQ(peers.receives_from, Numbers({1, 2}));
  EXPECT_FALSE(PeersOf(calls, 6, 6, 0).are_known) << "nothing is in flight";
  EXPECT_EQ(PeersOf(calls, 6, 6, 0).sends_to, Numbers());
}

// NCCL cuts these into launches 5 and 6.
TEST(Peers, OfAGroupOfSeveralLaunches) {
  const std::vector<LastCallSnapshot> calls = {Call("Send", 3, 5), Call("Recv", 1, 5, true)};
  EXPECT_TRUE(PeersOf(calls, 6, 5, 0).are_known);
  EXPECT_FALSE(PeersOf({Call("Send", 3, 5)}, 6, 5, 0).are_known) << "whatever launch 6 carries";
}

TEST(Peers, ItselfIsNone) {
  const std::vector<LastCallSnapshot> calls = {Call("Send", -1, 5), Call("Send", 1, 5, true),
                                               Call("Recv", 1, 5, true), Call("Recv", -1, 5, true)};
  const PeersSnapshot peers = PeersOf(calls, 5, 4, 0);
  EXPECT_TRUE(peers.are_known);
  EXPECT_EQ(peers.sends_to, Numbers({1}));
  EXPECT_EQ(PeersOf({Call("Send", 0, 5), Call("Send", 1, 5, true)}, 5, 4, 0).sends_to,
            Numbers({1}));
}

TEST(Peers, UnlessAllAreKnown) {
  const auto is_known = [](const std::vector<LastCallSnapshot>& calls) {
    return PeersOf(calls, 5, 4, 0).are_known;
  };
  EXPECT_FALSE(is_known({}));
  EXPECT_FALSE(is_known({Call("Send", -1, 5)}));
  EXPECT_FALSE(is_known({Call("Send", -1, 5), Call("Recv", -1, 5, true)}));
  EXPECT_FALSE(is_known({Call("Send", -1, 5), Call("Recv", 1, 5, true)}));
  EXPECT_FALSE(is_known({Call("AllReduce", -1, 5)}));
  EXPECT_FALSE(is_known({Call("Send", 1, 5), Call("AllReduce", -1, 5, true)}));
  EXPECT_FALSE(is_known({Call("Send", 1, 5, true)})) << "the beginning of its group is lost";
  EXPECT_FALSE(is_known({Call("Send", 1, 5), Call("Send", 2, 0)})) << "not launched";
  const PeersSnapshot some =
      PeersOf({Call("Send", 1, 5, true), Call("Recv", -1, 5, true)}, 5, 4, 0);
  EXPECT_EQ(some.sends_to, Numbers({1})) << "what is known is kept";
}

}  // namespace
}  // namespace nccl_pulse
