// The clock and the processor's are the test's own.
#include "exporter/http/page_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/exporter/gunzip.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kKinds = 4;

class PageCacheTest : public ::testing::Test {
 protected:
  PageCache MakeCache(double share = 0.012) {
    PageCache::Options options;
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      // As exporter/endpoint/pages.cc has them: the last one is the JSON.
      options.kinds.push_back(
          {[this, kind](auto&) { return Make(kind); }, kind + 1 == kKinds ? 2 : 1});
    }
    options.clock = [this] { return now_; };
    options.cpu_time = [this] { return cpu_; };
    options.cut_off_slowest = [this](bool in_any_case) {
      if (sending_.empty() || !(in_any_case || slow_)) return false;
      sending_.pop_front();
      ++cut_off_;
      return true;
    };
    options.on_failure = [this](const std::string& reason) { failures_.push_back(reason); };
    options.on_work = [](double, bool) {};
    options.cpu_share = share;
    return PageCache(std::move(options));
  }

  std::optional<std::string> Make(std::size_t kind) {
    if (fails_) throw std::runtime_error("no source");
    cpu_ += cost_;
    now_ += cost_;
    ++made_[kind];
    if (!exists_) return std::nullopt;
    return "page " + std::to_string(made_[kind]) + std::string(bytes_, 'x');
  }
  int all_made() const {
    int all = 0;
    for (const int made : made_) all += made;
    return all;
  }

  PageCache::Time now_{seconds(1000)};
  std::chrono::nanoseconds cpu_{0};
  milliseconds cost_{5};
  std::size_t bytes_ = 0;
  bool fails_ = false;
  bool exists_ = true;
  bool slow_ = true;
  std::array<int, kKinds> made_{};
  std::deque<PageCache::Body> sending_;
  int cut_off_ = 0;
  std::vector<std::string> failures_;
};

TEST_F(PageCacheTest, IsSharedForItsLifetime) {
  PageCache cache = MakeCache();
  const PageCache::Answer first = cache.Get(0, "", false);
  now_ += kPageLifetime - milliseconds(1) - cost_;
  EXPECT_EQ(cache.Get(0, "", false).body, first.body);
  EXPECT_EQ(cache.Get(0, "", true).is_packed, true);
  now_ += milliseconds(1) + cost_;
  EXPECT_NE(cache.Get(0, "", false).body, first.body);
  EXPECT_EQ(made_[0], 2);
}

// A hundred requests a second of each kind for ten minutes.
TEST_F(PageCacheTest, WhateverIsAskedNoMoreIsSpentThanTheShare) {
  for (const milliseconds cost : {milliseconds(1), milliseconds(20), milliseconds(300)}) {
    cost_ = cost;
    const auto start = now_;
    const auto cpu_start = cpu_;
    PageCache cache = MakeCache();
    seconds oldest{0};
    while (now_ - start < seconds(600)) {
      for (std::size_t kind = 0; kind < kKinds; ++kind) {
        const PageCache::Answer answer = cache.Get(kind, "", kind % 2 == 0);
        ASSERT_EQ(answer.status, 200);
        oldest = std::max(oldest, answer.age);
      }
      now_ += milliseconds(10);
    }
    const auto elapsed = now_ - start;
    EXPECT_LE(cpu_ - cpu_start, (elapsed + kPageBurst) * 0.012 + (kKinds + 1) * cost);
    EXPECT_EQ(cpu_ - cpu_start, cache.cpu_spent());
    // What page_cache.h says of their age.
    EXPECT_LE(oldest, cost * 500 + cost + seconds(1));
  }
}

// It takes nothing of what the others have for themselves, however often it is asked for anew.
TEST_F(PageCacheTest, AKindWithoutAShareIsMadeFromWhatIsThereForAll) {
  PageCache::Options options;
  for (std::size_t kind = 0; kind < 2; ++kind) {
    options.kinds.push_back({[this, kind](auto&) { return Make(kind); }, kind == 0 ? 1 : 0});
  }
  options.clock = [this] { return now_; };
  options.cpu_time = [this] { return cpu_; };
  options.cut_off_slowest = [](bool) { return false; };
  options.on_work = [](double, bool) {};
  options.cpu_share = 0.012;
  PageCache cache(std::move(options));
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    const PageCache::Answer answer = cache.Get(1, std::to_string(i), false);
    if (answer.status != 503) continue;
    ++refused;
    EXPECT_GE(answer.retry_after, seconds(1));
  }
  EXPECT_EQ(made_[1] + refused, 100);
  // A sixth of 1.2 % of 20 s, and one more.
  EXPECT_LE(made_[1], 9);
  for (int i = 0; i < 20; ++i) {
    now_ += kPageLifetime;
    EXPECT_EQ(cache.Get(0, "", false).age, seconds(0));
  }
  EXPECT_EQ(made_[0], 20);
  now_ += seconds(30);
  EXPECT_EQ(cache.Get(1, "", false).status, 200);
}

// Two people look at two communicators at a time.
TEST_F(PageCacheTest, PagesOfOneKindAreSharedByTheirArgument) {
  PageCache cache = MakeCache();
  const PageCache::Answer first = cache.Get(0, "a", false);
  const PageCache::Answer second = cache.Get(0, "b", false);
  EXPECT_NE(first.body, second.body);
  EXPECT_EQ(cache.Get(0, "a", false).body, first.body);
  EXPECT_EQ(cache.Get(0, "b", false).body, second.body);
  EXPECT_EQ(made_[0], 2);
}

TEST_F(PageCacheTest, WhoAsksForOneArgumentAfterTheOtherLeavesFewPagesBehind) {
  cost_ = milliseconds(0);
  PageCache cache = MakeCache();
  std::vector<std::weak_ptr<const std::string>> bodies;
  for (int i = 0; i < 1000; ++i) {
    bodies.push_back(cache.Get(0, std::to_string(i), false).body);
  }
  EXPECT_LE(std::count_if(bodies.begin(), bodies.end(), [](auto& each) { return !each.expired(); }),
            5);
  now_ += kPageLifetime;
  cache.Get(0, "last", false);
  EXPECT_TRUE(std::all_of(bodies.begin(), bodies.end(), [](auto& each) { return each.expired(); }));
}

TEST_F(PageCacheTest, WhatThereIsNoPageOfIsAskedForAnew) {
  exists_ = false;
  PageCache cache = MakeCache();
  EXPECT_EQ(cache.Get(0, "a", true).status, 404);
  exists_ = true;
  EXPECT_EQ(cache.Get(0, "a", true).status, 200);
}

// All alone, every page is new.
TEST_F(PageCacheTest, AScraperEveryFiveSecondsAlwaysGetsANewPage) {
  cost_ = milliseconds(19);
  PageCache cache = MakeCache();
  for (int i = 1; i <= 200; ++i) {
    const PageCache::Answer answer = cache.Get(2, "", true);
    EXPECT_EQ(answer.age, seconds(0));
    EXPECT_EQ(made_[2], i);
    now_ += seconds(5) - cost_;
  }
}

// A kind's own share is out of the others' reach.
TEST_F(PageCacheTest, AScraperGetsNewPagesWhileOthersAreAskedForAllTheTime) {
  cost_ = milliseconds(29);
  PageCache cache = MakeCache();
  for (int i = 1; i <= 100; ++i) {
    const auto next = now_ + seconds(15);
    for (; now_ < next; now_ += milliseconds(10)) {
      for (std::size_t kind = 1; kind < kKinds; ++kind) cache.Get(kind, "", false);
    }
    EXPECT_EQ(cache.Get(0, "", true).age, seconds(0));
    EXPECT_EQ(made_[0], i);
  }
}

// A person at the status page, beside Prometheus, and somebody who asks for every scrape format all
// the time.
TEST_F(PageCacheTest, WhoLooksEveryTwoSecondsGetsNewPagesWhateverIsScraped) {
  cost_ = milliseconds(7);
  PageCache cache = MakeCache();
  for (int i = 1; i <= 300; ++i) {
    const auto next = now_ + seconds(2);
    EXPECT_EQ(cache.Get(kKinds - 1, "", true).age, seconds(0));
    EXPECT_EQ(made_[kKinds - 1], i);
    for (; now_ < next; now_ += milliseconds(10)) {
      for (std::size_t kind = 0; kind + 1 < kKinds; ++kind) cache.Get(kind, "", true);
    }
  }
}

TEST_F(PageCacheTest, AnOldPageSaysItsAge) {
  cost_ = milliseconds(1000);  // each of the two that may pay has less
  PageCache cache = MakeCache();
  cache.Get(0, "", true);
  now_ += seconds(1);
  cache.Get(0, "", true);
  now_ += seconds(7);
  for (const bool gzip : {false, true}) {
    EXPECT_EQ(cache.Get(0, "", gzip).age, seconds(7));
    EXPECT_EQ(cache.Get(0, "", gzip).status, 200);
  }
  EXPECT_EQ(made_[0], 2);  // one by each
  now_ += seconds(600);
  EXPECT_EQ(cache.Get(0, "", true).age, seconds(0));
  EXPECT_EQ(made_[0], 3);
}

TEST_F(PageCacheTest, AFailureIsKeptLikeAPage) {
  fails_ = true;
  PageCache cache = MakeCache();
  EXPECT_EQ(cache.Get(0, "", true).status, 500);
  EXPECT_EQ(cache.Get(0, "", false).status, 500);
  EXPECT_EQ(failures_, std::vector<std::string>{"no source"});
  fails_ = false;
  now_ += kPageLifetime;
  EXPECT_EQ(cache.Get(0, "", true).status, 200);
}

TEST_F(PageCacheTest, LargePagesAreNotKeptBesideEachOther) {
  bytes_ = kMaxHeldBytes + 1;
  PageCache cache = MakeCache(4);
  const std::weak_ptr<const std::string> first = cache.Get(0, "", false).body;
  EXPECT_FALSE(first.expired());
  cache.Get(1, "", false);
  EXPECT_TRUE(first.expired());
}

// What is compressed stays, and is what an old page is answered with.
TEST_F(PageCacheTest, OfALargePageTheCompressedFormIsKept) {
  bytes_ = kMaxHeldBytes + 1;
  cost_ = milliseconds(200);
  PageCache cache = MakeCache();
  EXPECT_TRUE(cache.Get(0, "", true).is_packed);  // paid by its own budget
  now_ += kPageLifetime;
  cache.Get(1, "", false);
  now_ += kPageLifetime;
  cache.Get(1, "", false);  // by the shared one
  now_ += seconds(2);
  const PageCache::Answer packed = cache.Get(0, "", true);
  EXPECT_EQ(packed.status, 200);
  EXPECT_EQ(packed.age, seconds(2));
  EXPECT_EQ(Gunzip(*packed.body).substr(0, 6), "page 1");
  const PageCache::Answer plain = cache.Get(0, "", false);
  EXPECT_EQ(plain.status, 503);
  EXPECT_GT(plain.retry_after, seconds(0));
  now_ += plain.retry_after;
  EXPECT_EQ(cache.Get(0, "", false).status, 200);
}

TEST_F(PageCacheTest, WhoTakesAPageTooLongIsCutOffForANewOne) {
  bytes_ = kMaxHeldBytes + 1;
  PageCache cache = MakeCache(4);
  sending_.push_back(cache.Get(0, "", false).body);
  now_ += kPageLifetime;
  slow_ = false;
  // In time: the old page once more.
  EXPECT_EQ(cache.Get(0, "", false).body, sending_.front());
  EXPECT_EQ(cut_off_, 0);
  // But of another kind there is none yet.
  cache.Get(1, "", false);
  EXPECT_EQ(cut_off_, 1);
  sending_.push_back(cache.Get(1, "", false).body);
  now_ += kPageLifetime;
  slow_ = true;
  EXPECT_EQ(made_[1], 1);
  cache.Get(1, "", false);
  EXPECT_EQ(made_[1], 2);
  EXPECT_EQ(cut_off_, 2);
}

// Readers that come and go all the time do not keep a page old.
TEST_F(PageCacheTest, WhoIsInTimeIsCutOffAllTheSameWhenThePageIsTooOld) {
  bytes_ = kMaxHeldBytes + 1;
  slow_ = false;
  PageCache cache = MakeCache(4);
  sending_.push_back(cache.Get(0, "", false).body);
  now_ += kPageGrace - milliseconds(1) - cost_;
  cache.Get(0, "", false);
  EXPECT_EQ(made_[0], 1);
  now_ += milliseconds(1) + cost_;
  cache.Get(0, "", false);
  EXPECT_EQ(made_[0], 2);
  EXPECT_EQ(cut_off_, 1);
}

TEST_F(PageCacheTest, NoMorePagesAreHeldThanItSays) {
  PageCache cache = MakeCache(4);
  std::vector<std::weak_ptr<const std::string>> all;
  for (int i = 0; i < 100; ++i) {
    sending_.push_back(cache.Get(i % kKinds, "", false).body);
    all.push_back(sending_.back());
    now_ += kPageLifetime;
    int held = 0;
    for (const auto& each : all) held += each.expired() ? 0 : 1;
    EXPECT_LE(held, kMaxPages);
  }
  EXPECT_GT(cut_off_, 0);
  EXPECT_EQ(all_made(), 100);
}

}  // namespace
}  // namespace nccl_pulse
