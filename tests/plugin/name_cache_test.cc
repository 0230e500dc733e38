// Strings by address: the same answers as the name table gives, whatever the cache has room for.
#include "plugin/tracker/name_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

class NameCacheTest : public testing::Test {
 protected:
  NameCacheTest() : entries_(new NameEntry[kMaxNames]()), table_(entries_.get()) {
    table_.Initialize();
    cache_ = std::make_unique<NameCache>(table_);
  }

  std::unique_ptr<NameEntry[]> entries_;
  NameTable table_;
  std::unique_ptr<NameCache> cache_;
};

TEST_F(NameCacheTest, FindsWhatTheTableHas) {
  // The second time from the cache.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cache_->Find("AllReduce").id, kAllReduceName);
    EXPECT_EQ(cache_->Find("AllReduce").element_bytes, 1);
    EXPECT_EQ(cache_->Find("ncclFloat32").id, table_.Intern("ncclFloat32"));
    EXPECT_EQ(cache_->Find("ncclFloat32").element_bytes, 4);
    EXPECT_EQ(cache_->Find("ncclBfloat16").element_bytes, 2);
    EXPECT_EQ(cache_->Find("").id, kNoName);
  }
}

TEST_F(NameCacheTest, NoStringIsNoNameOfOneByte) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cache_->Find(nullptr).id, kNoName);
    EXPECT_EQ(cache_->Find(nullptr).element_bytes, 1);
    cache_->Clear();
  }
}

// Far more addresses than places, those of the null pointer's place among them.
TEST_F(NameCacheTest, ManyAddressesOfFewStrings) {
  const std::vector<std::string> texts = {"AllReduce", "AllGather", "ncclFloat64", "RING"};
  std::vector<std::unique_ptr<char[]>> copies;
  for (int i = 0; i < 2000; ++i) {
    const std::string& text = texts[static_cast<size_t>(i) % texts.size()];
    copies.push_back(std::make_unique<char[]>(text.size() + 1));
    memcpy(copies.back().get(), text.c_str(), text.size() + 1);
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& copy : copies) {
      ASSERT_EQ(cache_->Find(copy.get()).id, table_.Intern(copy.get())) << copy.get();
      ASSERT_EQ(cache_->Find(copy.get()).element_bytes, strcmp(copy.get(), "ncclFloat64") ? 1 : 8);
    }
    ASSERT_EQ(cache_->Find(nullptr).id, kNoName);
  }
}

// Another libnccl may be mapped where the last one was, once no communicator is left.
TEST_F(NameCacheTest, ForgetsWhatStoodAtAnAddress) {
  char text[16] = "AllReduce";
  EXPECT_EQ(cache_->Find(text).id, kAllReduceName);
  strcpy(text, "AllGather");
  cache_->Clear();
  EXPECT_EQ(cache_->Find(text).id, kAllGatherName);
}

TEST_F(NameCacheTest, ManyThreadsAtOnce) {
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.emplace_back(i % 2 == 0 ? "AllGather" : "ncclInt64");
  std::atomic<int> wrong{0};
  Threads(4, [&](int) {
    for (int round = 0; round < 20; ++round) {
      for (const std::string& text : texts) {
        const CachedName name = cache_->Find(text.c_str());
        const bool is_operation = text == "AllGather";
        if ((name.id == kAllGatherName) != is_operation ||
            name.element_bytes != (is_operation ? 1 : 8)) {
          ++wrong;
        }
      }
    }
  }).Join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace nccl_pulse
