// Which calls of Send and Recv have a name, and that all others have none.
#include "plugin/tracker/composite_call.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_pulse {
namespace {

constexpr uint64_t kOneCall = 0x7f0000010000;  // as ThreadGroups tells them
constexpr uint64_t kOwnGroup = 0x7f0000020000;

// S: Send, R: Recv, C: a collective.
NameId NameOf(const std::string& parts, uint32_t nranks, uint64_t group = kOneCall) {
  CompositeCall call;
  call.Reset();
  for (const char part : parts) {
    call.Add(group,
             part == 'S'   ? CompositeCall::Part::kSend
             : part == 'R' ? CompositeCall::Part::kReceive
                           : CompositeCall::Part::kOther,
             4096, nranks);
  }
  return call.Finish(static_cast<uint32_t>(parts.size()), nranks);
}

TEST(CompositeCall, EachHasItsOrder) {
  EXPECT_EQ(NameOf("SRSR", 2), kAlltoAllName);
  EXPECT_EQ(NameOf("SRR", 2), kGatherName);
  EXPECT_EQ(NameOf("SSR", 2), kScatterName);
  EXPECT_EQ(NameOf("SRSRSRSR", 4), kAlltoAllName);
  EXPECT_EQ(NameOf("SRRRR", 4), kGatherName);
  EXPECT_EQ(NameOf("SSSSR", 4), kScatterName);
}

TEST(CompositeCall, NothingElseHasAName) {
  for (const char* parts : {"", "S", "R", "SR", "RS", "SSRR", "RSRS", "SRS", "SRSRS", "SRSRSR",
                            "SRRS", "SRRR", "SSSR", "SSRRR", "RRS", "SRCR", "CRSR", "SRC"}) {
    EXPECT_EQ(NameOf(parts, 2), kNoName) << parts;
  }
  EXPECT_EQ(NameOf("SR", 1), kNoName);  // all of a communicator of one rank
  EXPECT_EQ(NameOf("SRR", 1), kNoName);
  EXPECT_EQ(NameOf("SRSR", 4), kNoName);  // to some of the ranks
  EXPECT_EQ(NameOf("SRR", 4), kNoName);
}

TEST(CompositeCall, AGroupOfTheApplicationsHasNone) {
  EXPECT_EQ(NameOf("SRSR", 2, kOwnGroup), kNoName);
  EXPECT_EQ(NameOf("SRR", 2, kOwnGroup), kNoName);
  EXPECT_EQ(NameOf("SRSR", 2, 0), kNoName);  // whose it is is not known
}

TEST(CompositeCall, PartsOfSeveralSizesHaveNone) {
  CompositeCall call;
  call.Reset();
  call.Add(kOneCall, CompositeCall::Part::kSend, 4096, 2);
  call.Add(kOneCall, CompositeCall::Part::kReceive, 4096, 2);
  call.Add(kOneCall, CompositeCall::Part::kSend, 4095, 2);
  call.Add(kOneCall, CompositeCall::Part::kReceive, 4096, 2);
  EXPECT_EQ(call.Finish(4, 2), kNoName);
}

TEST(CompositeCall, PartsOfAnotherGroupAreNotItsOwn) {
  CompositeCall call;
  call.Reset();
  call.Add(kOneCall, CompositeCall::Part::kSend, 8, 2);
  call.Add(kOneCall, CompositeCall::Part::kReceive, 8, 2);
  call.Add(kOneCall + 0x20000, CompositeCall::Part::kSend, 4096, 2);
  call.Add(kOneCall + 0x20000, CompositeCall::Part::kReceive, 4096, 2);
  call.Add(kOneCall + 0x20000, CompositeCall::Part::kReceive, 4096, 2);
  EXPECT_EQ(call.bytes(), 4096u);
  EXPECT_EQ(call.Finish(3, 2), kGatherName);
}

TEST(CompositeCall, ALaunchOfOtherCallsThanItsPartsIsNone) {
  CompositeCall call;
  call.Reset();
  for (int i = 0; i < 2; ++i) {
    call.Add(kOneCall, CompositeCall::Part::kSend, 8, 2);
    call.Add(kOneCall, CompositeCall::Part::kReceive, 8, 2);
  }
  EXPECT_EQ(call.Finish(3, 2), kNoName);
  EXPECT_EQ(call.Finish(0, 2), kNoName);  // and the next one has no part of it
}

}  // namespace
}  // namespace nccl_pulse
