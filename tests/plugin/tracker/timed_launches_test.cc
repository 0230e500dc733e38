// What a timed launch stands for, and which operation learns that its launch was timed.
#include "plugin/tracker/timed_launches.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_pulse {
namespace {

constexpr OperationMeta kCall{kAllReduceName, 4, 0, false, 17};

TEST(TimedLaunches, ALaunchOfOneCallStandsForThatCall) {
  auto timed = std::make_unique<TimedLaunches>();
  timed->Carry(2, 1, kCall, 4096, 8192);
  const TimedLaunches::Load load = timed->LoadOf(2);
  EXPECT_TRUE(load.is_single);
  EXPECT_EQ(load.meta.op, kAllReduceName);
  EXPECT_EQ(load.meta.call_number, 17u);
  EXPECT_EQ(load.bytes, 4096u);
  EXPECT_EQ(load.bus_bytes, 8192u);
}

TEST(TimedLaunches, ALaunchOfSeveralStandsForWhatNcclSaysItCarries) {
  auto timed = std::make_unique<TimedLaunches>();
  timed->Carry(0, 3, kCall, 3000, 6000);
  EXPECT_FALSE(timed->LoadOf(0).is_single);
  EXPECT_EQ(timed->LoadOf(0).bytes, 3000u);
  timed->AddSeen(0, 1000, 2000);
  timed->AddSeen(0, 500, 1000);
  EXPECT_EQ(timed->LoadOf(0).bytes, 1500u);
  EXPECT_EQ(timed->LoadOf(0).bus_bytes, 3000u);
  EXPECT_EQ(timed->LoadOf(0).meta.op, kGroupedName);
  EXPECT_EQ(timed->LoadOf(0).meta.size_class, SizeClassOf(1500));
  timed->Carry(0, 2, kCall, 10, 20);  // the pair's next launch
  EXPECT_EQ(timed->LoadOf(0).bytes, 10u);
}

TEST(TimedLaunches, ACompositeStandsForItselfOnceAllItsPartsCame) {
  auto timed = std::make_unique<TimedLaunches>();
  const OperationMeta alltoall{kAlltoAllName, 3, 0, false, 9};
  timed->Carry(0, 8, alltoall, 8 * 1000, 8 * 1000);
  for (int part = 0; part < 7; ++part) timed->AddSeen(0, 1000, 1000);
  EXPECT_EQ(timed->LoadOf(0).meta.op, kGroupedName);  // another launch has the rest
  EXPECT_EQ(timed->LoadOf(0).bytes, 7000u);
  timed->AddSeen(0, 1000, 1000);
  EXPECT_EQ(timed->LoadOf(0).meta.op, kAlltoAllName);
  EXPECT_EQ(timed->LoadOf(0).meta.size_class, 3);
  EXPECT_EQ(timed->LoadOf(0).meta.call_number, 9u);
  EXPECT_FALSE(timed->LoadOf(0).is_single);  // its parts have been counted
  EXPECT_EQ(timed->LoadOf(0).bytes, 1000u);
  EXPECT_EQ(timed->LoadOf(0).bus_bytes, 3u * 1000);  // to the other ranks of four
  timed->AddSeen(0, 1000, 1000);
  EXPECT_EQ(timed->LoadOf(0).meta.op, kGroupedName);  // and others with it
}

TEST(TimedLaunches, AsManySerialsAreKnownAsThereArePairs) {
  auto timed = std::make_unique<TimedLaunches>();
  for (uint32_t serial = 1; serial <= kTimedPairs; ++serial) timed->NoteTimed(serial);
  EXPECT_TRUE(timed->WasTimed(1));
  timed->NoteTimed(kTimedPairs + 1);
  EXPECT_FALSE(timed->WasTimed(1));
  EXPECT_TRUE(timed->WasTimed(2));
}

TEST(TimedLaunches, SerialsAreNeverZeroAndFitTheirTicket) {
  auto timed = std::make_unique<TimedLaunches>();
  for (uint32_t i = 0; i < Ticket::kGenerationMask; ++i) timed->NextSerial();
  EXPECT_EQ(timed->serial(), Ticket::kGenerationMask);
  EXPECT_EQ(timed->NextSerial(), 1u);
}

TEST(TimedLaunches, OneThatIsNotMadeIsForgottenUnlessItsOperationCame) {
  auto timed = std::make_unique<TimedLaunches>();
  timed->NoteTimed(5);
  EXPECT_FALSE(timed->Forget());
  EXPECT_FALSE(timed->WasTimed(5));
  timed->NoteTimed(6);
  timed->NoteReported(6);
  EXPECT_TRUE(timed->Forget());  // the operation was told so: it is lost
}

TEST(TimedLaunches, TheNextCommunicatorCountsAnew) {
  auto timed = std::make_unique<TimedLaunches>();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(timed->NextGrouped(7).call_number, 0u) << "set-up: never timed";
  }
  EXPECT_EQ(timed->NextGrouped(9).call_number, 9u) << "the number of the launch";
  timed->NoteTimed(5);
  timed->Reset();
  EXPECT_EQ(timed->NextGrouped(9).call_number, 0u);
  EXPECT_FALSE(timed->WasTimed(5));
}

}  // namespace
}  // namespace nccl_pulse
