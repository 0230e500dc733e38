// What is read of RAS' reports: of good ones, of those that NCCL itself spoils, and of hostile ones.
#include "exporter/outside/ras_answer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/outside/made_up_ras.h"

namespace nccl_pulse::outside {
namespace {

RasAnswer Read(const std::string& text) {
  RasAnswer answer;
  std::string error;
  EXPECT_TRUE(ReadRasAnswer(text, &answer, &error)) << error;
  return answer;
}

TEST(RasAnswer, HasRanksAndCounts) {
  MadeUpCommunicator world = World(4, 14000);
  world.ranks[1].all_reduces = 13990;
  world.ranks[2].broadcasts = 3;
  const RasAnswer answer = Read(RasText({world}));
  EXPECT_EQ(answer.nccl_version, "2.28.9");
  EXPECT_TRUE(answer.proves_absence);
  ASSERT_EQ(answer.communicators.size(), 1U);
  const RasCommunicator& communicator = answer.communicators.begin()->second;
  EXPECT_EQ(communicator.id, 0x68dffeadac8cd14bU);
  ASSERT_EQ(communicator.ranks.size(), 4U);
  EXPECT_EQ(communicator.ranks[1].counts, (Counts{0, 0, 0, 0, 13990}));
  EXPECT_EQ(communicator.ranks[2].counts, (Counts{3, 0, 0, 0, 14000}));
  EXPECT_EQ(communicator.ranks[3].host, "10.0.3.7");
  EXPECT_EQ(communicator.ranks[3].pid, 1003);
  EXPECT_EQ(communicator.ranks[3].nvml_dev, 3);
}

// NCCL 2.28.7 and 2.28.9 write invalid JSON exactly when a rank is missing.
TEST(RasAnswer, ForgottenCommasAreAdded) {
  MadeUpCommunicator world = World(4, 7);
  world.ranks[2].is_missing = world.ranks[3].is_missing = world.ranks[3].is_dead = true;
  for (const bool has_commas : {true, false}) {
    const RasAnswer answer = Read(RasText({world}, has_commas));
    ASSERT_EQ(answer.communicators.size(), 1U);
    const auto& ranks = answer.communicators.begin()->second.ranks;
    ASSERT_EQ(ranks.size(), 4U);
    EXPECT_FALSE(ranks[1].is_missing);
    EXPECT_TRUE(ranks[2].is_missing && !ranks[2].is_dead);
    EXPECT_TRUE(ranks[3].is_missing && ranks[3].is_dead);
    EXPECT_EQ(ranks[3].pid, 1003);
  }
}

TEST(RasAnswer, ACommunicatorThatIsBeingCreatedProvesNoAbsence) {
  MadeUpCommunicator empty;
  empty.hash = "0x0";
  EXPECT_FALSE(Read(RasText({World(2, 1), empty})).proves_absence);
  EXPECT_EQ(Read(RasText({World(2, 1), empty})).communicators.size(), 1U);
  MadeUpCommunicator world = World(2, 1);
  world.ranks[0].init_state = 7;
  EXPECT_FALSE(Read(RasText({world})).proves_absence);
}

TEST(RasAnswer, ManyRanks) {
  const RasAnswer answer = Read(RasText({World(4096, 123456)}));
  ASSERT_EQ(answer.communicators.size(), 1U);
  EXPECT_EQ(answer.communicators.begin()->second.ranks.size(), 4096U);
  EXPECT_EQ(answer.communicators.begin()->second.ranks[4095].counts[4], 123456U);
}

TEST(RasAnswer, RanksOutsideTheirCommunicatorAndTwiceAreLeftOut) {
  MadeUpCommunicator world = World(3, 1);
  world.ranks[1].rank = 0;
  world.ranks[2].rank = 3;
  EXPECT_EQ(Read(RasText({world})).communicators.begin()->second.ranks.size(), 1U);
}

// The order of communicators in a report may change; their ids do not.
TEST(RasAnswer, CommunicatorsOfOneHashAreToldApart) {
  MadeUpCommunicator other = World(3, 1);
  other.secondary = "0x1a:0x3c";
  const RasAnswer answer = Read(RasText({World(2, 1), other}));
  const RasAnswer turned = Read(RasText({other, World(2, 1)}));
  ASSERT_EQ(answer.communicators.size(), 2U);
  for (const auto& [id, communicator] : turned.communicators) {
    ASSERT_EQ(answer.communicators.count(id), 1U);
    EXPECT_EQ(answer.communicators.at(id).size, communicator.size);
  }
}

TEST(RasAnswer, AProcessThatAnswersWithoutTheCommunicatorHasLeftIt) {
  MadeUpCommunicator world = World(4, 7);
  world.ranks[2].is_missing = world.ranks[2].has_left = true;
  const RasRank rank = Read(RasText({world})).communicators.begin()->second.ranks[2];
  EXPECT_TRUE(rank.has_left);
  EXPECT_FALSE(rank.is_missing || rank.is_dead || rank.has_counts);
}

TEST(RasAnswer, WhatIsNoReport) {
  RasAnswer answer;
  std::string error;
  for (const char* text : {"", "{", "null", "[]", "{\"communicators\": 3}",
                           "ERROR: Unknown command\n", "{\"communicators\": [}", "\"nvml_dev\":"}) {
    EXPECT_FALSE(ReadRasAnswer(text, &answer, &error)) << text;
    EXPECT_FALSE(error.empty());
  }
  EXPECT_FALSE(ReadRasAnswer(std::string(1 << 20, '['), &answer, &error));
}

TEST(RasAnswer, TooManyRanksAreRefused) {
  std::string text = "{\"communicators\": [{\"hash\": \"0x1\", \"size\": 9, \"ranks\": [{}";
  for (std::size_t i = 0; i < kMostAnswerRanks; ++i) text += ",{}";
  text += "]}]}";
  RasAnswer answer;
  std::string error;
  EXPECT_FALSE(ReadRasAnswer(text, &answer, &error));
}

// Any user can listen, and answer otherwise each time.
TEST(RasAnswer, AllAnswersTogetherHaveALimit) {
  RasAnswer heard;
  for (uint64_t number = 1; number <= 3; ++number) {
    RasAnswer answer;
    answer.communicators[{number, 1}].ranks.resize(kMostAnswerRanks / 2);
    EXPECT_EQ(heard.Add(answer), number <= 2);
    EXPECT_TRUE(heard.communicators.count({1, 1}) == 1);
  }
  EXPECT_EQ(heard.communicators.size(), 2U);
}

// Bytes of an honest report replaced, cut off and repeated: what is read stays within its bounds.
TEST(RasAnswer, HostileReports) {
  MadeUpCommunicator world = World(4, 14000);
  world.ranks[3].is_missing = true;
  const std::string honest = RasText({world}, false);
  constexpr char kPieces[] = "\"{}[]:,-0123456789eE.\\u0000\x1b\x80\xff true null";
  std::mt19937 random(20261128);  // NOLINT(cert-msc51-cpp): repeatable
  const auto any = [&random](std::size_t below) { return random() % below; };
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = honest;
    for (std::size_t i = 0; i <= any(4); ++i) {
      const std::size_t at = any(text.size());
      switch (any(4)) {
        case 0:
          text[at] = kPieces[any(sizeof(kPieces) - 1)];
          break;
        case 1:
          text.erase(at, any(40));
          break;
        case 2:
          text.insert(at, std::to_string(static_cast<int64_t>(random()) * random()));
          break;
        default:
          text.insert(at, text.substr(any(text.size()), any(60)));
      }
    }
    RasAnswer answer;
    std::string error;
    if (!ReadRasAnswer(text, &answer, &error)) continue;
    ++read;
    for (const auto& [id, communicator] : answer.communicators) {
      ASSERT_NE(communicator.id, 0U);
      ASSERT_FALSE(communicator.ranks.empty());
      int32_t last = -1;
      for (const RasRank& rank : communicator.ranks) {
        ASSERT_GT(rank.rank, last);
        ASSERT_LT(rank.rank, communicator.size);
        ASSERT_GE(rank.pid, 0);
        for (const char c : rank.host) ASSERT_GE(static_cast<unsigned char>(c), 0x20);
        last = rank.rank;
      }
    }
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace nccl_pulse::outside
