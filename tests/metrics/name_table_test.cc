#include "metrics/name_table.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {
namespace {

class NameTableTest : public ::testing::Test {
 protected:
  NameTableTest() : entries_(new NameEntry[kMaxNames]()), table_(entries_.get()) {
    table_.Initialize();
  }

  std::string Text(NameId id) {
    NameText name{};
    return entries_[id].Read(&name) ? CopyFromShared(name.text) : "";
  }
  // Ids that are taken, the fixed ones included.
  int Used() {
    int used = 0;
    NameText name;
    while (used < kMaxNames && entries_[used].Read(&name)) ++used;
    return used;
  }

  std::unique_ptr<NameEntry[]> entries_;
  NameTable table_;
};

TEST_F(NameTableTest, FixedIds) {
  EXPECT_EQ(Text(kNoName), "");
  EXPECT_EQ(Text(kOtherName), "other");
  EXPECT_EQ(Text(kOverflowName), "overflow");
  const std::map<std::string, NameId> fixed = {{"AllReduce", kAllReduceName},
                                               {"AllGather", kAllGatherName},
                                               {"ReduceScatter", kReduceScatterName},
                                               {"AlltoAll", kAlltoAllName},
                                               {"Gather", kGatherName},
                                               {"Scatter", kScatterName}};
  for (const auto& [text, id] : fixed) {
    EXPECT_EQ(Text(id), text);
    EXPECT_EQ(table_.Intern(text.c_str()), id);
  }
}

TEST_F(NameTableTest, NothingIsNoName) {
  EXPECT_EQ(table_.Intern(nullptr), kNoName);
  EXPECT_EQ(table_.Intern(""), kNoName);
}

TEST_F(NameTableTest, KnownNamesAreAllDifferent) {
  std::set<std::string> texts;
  for (int id = 0; id < Used(); ++id) EXPECT_TRUE(texts.insert(Text(id)).second) << Text(id);
  for (const char* known : {"Broadcast", "Send", "Recv", "RING", "TREE", "LL128", "ncclBfloat16"}) {
    EXPECT_EQ(texts.count(known), 1u) << known;
  }
}

TEST_F(NameTableTest, AppendsOnceAndFindsAgain) {
  const int before = Used();
  const NameId first = table_.Intern("AllFuture");
  const NameId second = table_.Intern("ncclFloat4e2m1");
  EXPECT_EQ(first, before);
  EXPECT_EQ(second, before + 1);
  const std::string elsewhere = "AllFuture";  // another address
  EXPECT_EQ(table_.Intern(elsewhere.c_str()), first);
  EXPECT_EQ(Text(first), "AllFuture");
  EXPECT_EQ(Text(second), "ncclFloat4e2m1");
  EXPECT_EQ(Used(), before + 2);
}

TEST_F(NameTableTest, CutsAt27Characters) {
  const std::string longest(27, 'x');
  const NameId id = table_.Intern(longest.c_str());
  EXPECT_EQ(Text(id), longest);
  EXPECT_EQ(table_.Intern((longest + "y").c_str()), id);
  EXPECT_EQ(table_.Intern((longest + std::string(1000, 'z')).c_str()), id);
  EXPECT_NE(table_.Intern(std::string(26, 'x').c_str()), id);
}

TEST_F(NameTableTest, ReadsNoFurtherThan27Characters) {
  // At the end of an allocation of exactly 27 bytes, without a terminator: AddressSanitizer looks
  // on.
  const std::unique_ptr<char[]> text(new char[27]);
  memset(text.get(), 'q', 27);
  EXPECT_EQ(Text(table_.Intern(text.get())), std::string(27, 'q'));
}

TEST_F(NameTableTest, OddCharactersBecomeUnderscores) {
  EXPECT_EQ(Text(table_.Intern("a b\"\n\x7f\xc3\xa9~!")), "a_b\"____~!");
}

TEST_F(NameTableTest, OurOwnLabelsAreNotEnteredAgain) {
  const int before = Used();
  EXPECT_EQ(table_.Intern("other"), kOtherName);
  EXPECT_EQ(table_.Intern("overflow"), kOverflowName);
  EXPECT_EQ(Used(), before);
}

TEST_F(NameTableTest, FullTableIsOther) {
  const int room = kMaxNames - Used();
  ASSERT_GT(room, 50) << "a later NCCL must find room for its names";
  for (int i = 0; i < room; ++i) {
    EXPECT_NE(table_.Intern(("name" + std::to_string(i)).c_str()), kOtherName);
  }
  EXPECT_EQ(table_.Intern("one too many"), kOtherName);
  EXPECT_NE(table_.Intern("name0"), kOtherName) << "what is there is still found";
  EXPECT_EQ(table_.Intern("AllReduce"), kAllReduceName);
}

TEST_F(NameTableTest, NameBeingWrittenIsOtherMeanwhile) {
  const int next = Used();
  // The state comes first in an entry.
  auto& state = *reinterpret_cast<std::atomic<uint32_t>*>(&entries_[next]);
  state.store(NameEntry::kWriting);
  EXPECT_EQ(table_.Intern("AllFuture"), kOtherName);
  EXPECT_EQ(table_.Intern("AllReduce"), kAllReduceName);
  state.store(NameEntry::kFree);
  EXPECT_EQ(table_.Intern("AllFuture"), next);
}

}  // namespace
}  // namespace nccl_pulse
