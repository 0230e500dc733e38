// A communicator that calls at random, on a GPU that makes progress at random: what is said to have
// finished has finished.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "plugin/cuda/finished_calls.h"

namespace nccl_pulse {
namespace {

constexpr int kChannels = 6;

// A kernel, or none: then it is over.
struct Launch {
  int items[kChannels] = {};  // that it counts
  int left = 0;               // the channels that it has not ended: the bits
};

class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed) {}

  // Something happens: a group of calls, a report, progress of the GPU.
  void Step() {
    const int what = Below(12);
    while (running_ < launches_.size() && launches_[running_].left == 0) ++running_;
    // The host waits for the GPU now and then.
    if (what == 0 && launches_.size() < running_ + 3) return Call();
    if (what == 1) return Report();
    if (running_ == launches_.size()) return;
    Launch& launch = launches_[running_];
    const int channel = Below(kChannels);
    if ((launch.left >> channel & 1) == 0) return;
    launch.left &= ~(1 << channel);
    counters_[channel] += static_cast<uint64_t>(launch.items[channel]);
  }

  // A copy, during which things happen, and what is read behind it.
  void Look() {
    const uint32_t calls = called_.calls;
    const bool was_over = AreReportedComplete();
    uint64_t sum = 0;
    uint64_t first = 0;
    for (int channel = 0; channel < kChannels; ++channel) {
      if (Below(4) == 0) Step();
      sum += counters_[channel];
      if (channel == 0) first = counters_[0];
    }
    const LaunchedWork launched = launched_;  // a report or a call may come in between
    if (Below(4) == 0) Step();
    const bool is_over = was_over && calls == called_.calls && standing_ == 0 && reports_.empty();
    finished_.Look(sum, first, called_, launched, is_over);
    if (!finished_.is_known()) return;
    for (; seen_ < finished_.calls(); ++seen_) {
      ASSERT_EQ(launches_[launch_of_[seen_]].left, 0) << "call " << seen_;
      known_ += is_over ? 0 : 1;
    }
  }
  // Calls that were known to have finished before events told.
  int known() const { return known_; }

 private:
  struct Reported {
    uint64_t work;
    int calls;
  };

  int Below(int end) { return static_cast<int>(random_() % static_cast<uint32_t>(end)); }
  bool AreReportedComplete() const { return reports_.empty() && running_ >= last_reported_; }
  void Use(Launch* launch, int from, int channels, bool counts) {
    for (int c = from; c < from + channels; ++c) {
      launch->left |= 1 << c;
      launch->items[c] += counts ? 1 : 0;
    }
  }
  void NoteCall(size_t launch) {
    ++called_.calls;
    launch_of_.push_back(launch);
  }
  void Call() {
    // Long runs of one size, as jobs make them, and sometimes another one.
    if (Below(200) == 0) bytes_ = 1 + static_cast<uint64_t>(Below(3));
    Launch launch;
    const size_t number = launches_.size();
    const int kind = Below(400);
    if (kind < 340) {
      const int count = 1 + (Below(8) == 0 ? Below(3) : 0);
      for (int i = 0; i < count; ++i) {
        if (called_.bytes != bytes_) called_.run = called_.broadcasts;
        called_.bytes = bytes_;
        ++called_.broadcasts;
        NoteCall(number);
        if (kind != 0) Use(&launch, 0, static_cast<int>(2 * bytes_), true);  // else it has failed
      }
      standing_ += count;
    } else if (kind < 397) {
      const int count = kind < 343 ? 2 : 1;  // of a launch
      Reported reported{0, count};
      int from = 0;
      for (int i = 0; i < count; ++i) {
        const int channels = 1 + Below(3);
        NoteCall(number);
        Use(&launch, from, channels, true);
        from = Below(2) * (from + channels - 1);
        from = std::min(from, kChannels - 3);
        reported.work += static_cast<uint64_t>(channels);
      }
      reports_.push_back(reported);
      standing_ = 0;
      last_reported_ = number + 1;
    } else {  // symmetric memory: not reported, and not counted
      NoteCall(number);
      Use(&launch, 0, kChannels, false);
      ++standing_;
    }
    launches_.push_back(launch);
  }
  void Report() {
    if (reports_.empty()) return;
    const Reported reported = reports_.front();
    reports_.erase(reports_.begin());
    launched_.work += reported.work;
    if (reported.calls == 1) {
      ++launched_.alone;
    } else {
      launched_.grouped += static_cast<uint64_t>(reported.calls);
    }
  }

  std::mt19937 random_;
  uint64_t counters_[kChannels] = {};
  std::vector<Launch> launches_;
  std::vector<size_t> launch_of_;  // by call
  std::vector<Reported> reports_;  // that are still to come
  size_t last_reported_ = 0;       // launches until the last one that NCCL reports
  size_t running_ = 0;             // launches before it are over
  uint32_t seen_ = 0;              // calls that were said to have finished
  int standing_ = 0;
  uint64_t bytes_ = 1;
  CalledWork called_;
  LaunchedWork launched_;
  FinishedCalls finished_;
  int known_ = 0;
};

TEST(FinishedCallsModel, WhatIsSaidToHaveFinishedHas) {
  int known = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    Model model(seed);
    for (int i = 0; i < 10000 && !testing::Test::HasFatalFailure(); ++i) {
      model.Step();
      if (i % 3 == 0) model.Look();
    }
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
    known += model.known();
  }
  EXPECT_GT(known, 1000);
}

}  // namespace
}  // namespace nccl_pulse
