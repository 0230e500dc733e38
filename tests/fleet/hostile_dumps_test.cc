// What a dump may hold to make `pulse diagnose --flight-recorder` stumble: tens of thousands of
// damaged ones, and some that are built to. The seed is fixed, so a failure comes back.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include "exporter/fleet/dump_look.h"
#include "exporter/fleet/job_report.h"
#include "exporter/flight_recorder/dump.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fleet/hostile_dump.h"

namespace nccl_pulse {
namespace {

using flight_recorder::Parsed;
using testing::HasSubstr;

class Vandal {
 public:
  explicit Vandal(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t end) { return random_() % end; }

  const std::string& Honest(int rank) {
    return (Below(3) == 0 ? jsons_ : pickles_)[static_cast<std::size_t>(rank)];
  }

  std::string Damaged(std::string text) {
    // All that the reader knows, what it must not, and bytes that begin lengths.
    constexpr std::string_view kBytes =
        "\x80\x95.N\x88\x89JKM\x8aGX\x8c])}(aseut\x85\x86\x87qr\x94hjcRbiQPo\x81\x93{}[]\":,"
        "0\xff\x7f";
    for (uint64_t left = 1 + Below(12); left != 0; --left) {
      const std::size_t at = 2 + Below(text.size() - 2);
      switch (Below(6)) {
        case 0:
          text[at] = static_cast<char>(Below(256));
          break;
        case 1:
          text[at] = kBytes[Below(kBytes.size())];
          break;
        case 2:
          text.insert(at, 1, kBytes[Below(kBytes.size())]);
          break;
        case 3:
          text.erase(at, 1 + Below(8));
          break;
        case 4:  // a part of it once more
          text.insert(at, text.substr(Below(text.size()), Below(200)));
          break;
        default:  // a number
          text.replace(at, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");
          break;
      }
      if (text.size() < 16) text.resize(16);
    }
    if (Below(20) == 0) text.resize(2 + Below(text.size() - 2));
    return text;
  }

 private:
  std::mt19937_64 random_;
  const std::array<std::string, 4> pickles_ = {HonestPickle(0), HonestPickle(1), HonestPickle(2),
                                               HonestPickle(3)};
  const std::array<std::string, 4> jsons_ = {HonestJson(0), HonestJson(1), HonestJson(2),
                                             HonestJson(3)};
};

// Zeros included.
template <std::size_t N>
std::string Bytes(const char (&text)[N]) {
  return std::string(text, N - 1);
}

std::string WhyNot(std::string_view bytes) {
  flight_recorder::Common common;
  flight_recorder::Dump dump;
  std::string error;
  EXPECT_EQ(ParseDump(bytes, &common, &dump, &error), Parsed::kDamaged);
  return error;
}

// So that damage below is damage.
TEST(HostileDumps, HonestOnesAreRead) {
  for (int rank = 0; rank < 4; ++rank) {
    for (const std::string& bytes : {HonestPickle(rank), HonestJson(rank)}) {
      flight_recorder::Common common;
      flight_recorder::Dump dump;
      std::string error;
      EXPECT_EQ(ParseDump(bytes, &common, &dump, &error), Parsed::kDump) << error;
      ASSERT_EQ(dump.groups.size(), 2u);
      EXPECT_EQ(dump.groups[0].collectives.size(), rank == 2 ? 5u : 6u);
      EXPECT_EQ(dump.groups[1].peers.size(), rank == 3 ? 0u : 1u);
    }
  }
}

TEST(HostileDumps, Damaged) {
  Vandal vandal(1);
  for (int round = 0; round < 40000; ++round) {
    const int rank = static_cast<int>(vandal.Below(4));
    ASSERT_EQ(ReadAndCheck(vandal.Damaged(vandal.Honest(rank))), "") << "round " << round;
  }
}

// From the files to the words.
TEST(HostileDumps, FoldersOfDamagedOnes) {
  const std::string folder = testing::TempDir() + "/dumps";
  std::filesystem::create_directory(folder);
  Vandal vandal(2);
  int read = 0;
  for (int round = 0; round < 400; ++round) {
    for (int rank = 0; rank < 4; ++rank) {
      std::string bytes = vandal.Honest(rank);
      if (vandal.Below(2) == 0) bytes = vandal.Damaged(std::move(bytes));
      std::ofstream(folder + "/" + std::to_string(rank), std::ios::binary) << bytes;
    }
    JobLook look;
    std::string error;
    if (!LookAtDumps(folder, &look, &error)) {
      ASSERT_NE(error, "");
      continue;
    }
    read += static_cast<int>(look.heard);
    ASSERT_NE(JobText(look), "");
    ASSERT_NE(JobJson(look), "");
    FindingOfJob(look);
  }
  EXPECT_GT(read, 800) << "most damage should not keep the others from being read";
}

TEST(HostileDumps, ListsWithinLists) {
  EXPECT_THAT(WhyNot("\x80\x02" + std::string(1000000, '(')), HasSubstr("too deep"));
  EXPECT_THAT(WhyNot("{\"a\":" + std::string(1000000, '[')), HasSubstr("too deep"));
}

// Each list has the one before it twice: 2^60 of them, for who follows them all.
TEST(HostileDumps, AListThatIsInMorePlacesThanCanBeCounted) {
  std::string bytes = Bytes("\x80\x02(]q\x00");
  for (char i = 1; i < 60; ++i) {
    bytes +=
        std::string("](h") + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "eq" + i;
  }
  EXPECT_THAT(WhyNot(bytes + "t."), HasSubstr("it is not a dump of PyTorch's Flight Recorder"));
}

// {"version": "2", "pg_config": {}, "entries": the dictionary itself}
TEST(HostileDumps, AListThatIsInItself) {
  const std::string bytes = Bytes(
      "\x80\x02}q\x00("
      "X\x07\x00\x00\x00version"
      "X\x01\x00\x00\x00"
      "2"
      "X\x09\x00\x00\x00pg_config}"
      "X\x07\x00\x00\x00"
      "entriesh\x00u.");
  EXPECT_THAT(WhyNot(bytes), HasSubstr("an entry is not a dictionary"));
}

TEST(HostileDumps, NumbersOfWhatIsKept) {
  EXPECT_THAT(WhyNot(Bytes("\x80\x02Nr\xff\xff\xff\xff.")), HasSubstr("not kept in order"));
  EXPECT_THAT(WhyNot(Bytes("\x80\x02j\xff\xff\xff\x7f.")), HasSubstr("was not kept"));
}

TEST(HostileDumps, EveryOpcodeThatRunsSomething) {
  for (const char opcode : std::string("cRbiQPo\x81\x82\x83\x84\x92\x93")) {
    EXPECT_THAT(WhyNot(std::string("\x80\x02NN") + opcode + "os\nsystem\n."),
                HasSubstr("is a pickle that runs code, which is refused"));
  }
}

// The dump of a rank in groups of other names than those of other dumps, each with many ranks.
std::string DumpWithGroups(int dump, int groups, int ranks) {
  std::string list = "[0";
  for (int i = 1; i < ranks; ++i) list += "," + std::to_string(i);
  list += "]";
  std::string text = R"({"version":"2.5","entries":[],"pg_config":{)";
  for (int i = 0; i < groups; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(dump) + "g" + std::to_string(i) +
            R"(":{"desc":"d","ranks":")" + list + "\"}";
  }
  return text + "}}";
}

// Small files can have many ranks in many groups, and each file can have other ones.
TEST(HostileDumps, TakeNoMoreMemoryTogetherThanTheyMay) {
  flight_recorder::Common common(std::size_t{16} << 20);
  int read = 0, refused = 0;
  for (int i = 0; i < 20; ++i) {
    flight_recorder::Dump dump;
    std::string error;
    if (ParseDump(DumpWithGroups(i, 8, 4000), &common, &dump, &error) == Parsed::kDump) {
      ++read;
    } else {
      ++refused;
      EXPECT_EQ(error, "it and the dumps before it take too much memory");
    }
  }
  EXPECT_GT(read, 3);
  EXPECT_GT(refused, 3);
  flight_recorder::Dump dump;
  std::string error;
  flight_recorder::Common other;
  EXPECT_EQ(ParseDump(DumpWithGroups(0, 8, 4000), &other, &dump, &error), Parsed::kDump) << error;
}

}  // namespace
}  // namespace nccl_pulse
