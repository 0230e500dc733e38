// A communicator that replays graphs without a pause, with eager calls between, on a GPU that makes
// progress at random: NCCL's counter is proven soon, all replays count exactly, and nothing else is
// taken for the counter.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kAt = uint64_t{0x7f} << 32;
constexpr WorkOwner kOwner{0, 2, 1};
constexpr uint64_t kLookNs = 100000000;

struct Kernel {
  enum Kind { kEager, kReplay, kHidden } kind;
  uint32_t channels;
  uint64_t number;     // of all
  uint32_t ended = 0;  // channels that have stored
};

class Model {
 public:
  // What a word does when that kernel ends on that channel, null: what NCCL's counter does.
  using Word = std::function<uint64_t(const Kernel&, uint32_t channel)>;

  // `kinds`: at most so many kinds of captured calls. `word`: instead of NCCL's counter.
  Model(uint32_t seed, bool hides, uint32_t kinds = 3, Word word = nullptr)
      : random_(seed), hides_(hides), word_(std::move(word)), block_(kWorkBlockBytes) {
    counter_ = Below(2) == 0 ? 44 : 45;
    const int32_t head[] = {0, 2, 0, 1};
    std::memcpy(block_.data(), head, sizeof(head));
    const uint64_t channels = kAt + kWorkChannelsAt;
    std::memcpy(block_.data() + kWorkChannelsAddressAt, &channels, sizeof(channels));
    for (uint32_t channel = 0; channel < kWorkChannels; ++channel) {
      for (size_t word = 0; word < kWorkWords; ++word) {
        const uint64_t values[] = {0, 1, UINT64_MAX, random_(), kAt + random_() % 1000000};
        if (word != counter_) Cell(channel, word) = values[Below(5)];
      }
    }
    for (uint32_t i = Below(kinds) + 1; i > 0; --i) {
      captured_.push_back((word_ == nullptr ? 1 : 4) + Below(20));
    }
    every_ = 1 + Below(Below(2) == 0 ? 4 : 60);
    eager_channels_ = 1 + Below(32);
    proof_.Begin(kAt, kOwner, now_ns_);
  }

  // Eager calls, each complete at a look of its own.
  void WarmUp(int looks) {
    for (int i = 0; i < looks; ++i) {
      Launch(Kernel::kEager);
      Finish(queue_.size());
      Look();
    }
  }
  // The same, and nobody looks.
  void WarmUpUnseen(int calls) {
    for (int i = 0; i < calls; ++i) Launch(Kernel::kEager);
    Finish(queue_.size());
  }
  void Capture() { is_captured_ = true; }
  // The word is a clock.
  void UseClock() { is_clock_ = true; }
  // Calls are rare enough, and launches wide enough, for each look to tell.
  void BeEasy(std::vector<uint32_t> captured) {
    every_ = 20;
    captured_ = std::move(captured);
  }
  // Eager calls are wide, and many are in flight at each look.
  void BeBusy() {
    every_ = 1;
    eager_channels_ = 32;
    captured_ = {4};
    is_busy_ = true;
  }
  // Eager calls take a channel, and many are in flight at each look.
  void BeNarrow() {
    BeBusy();
    eager_channels_ = 1;
    captured_ = {32};
  }
  // Eager calls are wide, and few are in flight.
  void BeWide() {
    BeBusy();
    is_busy_ = false;
  }
  // Another word counts the same.
  void HaveTwin() {
    has_twin_ = true;
    for (uint32_t channel = 0; channel < kWorkChannels; ++channel) Cell(channel, Twin()) = 0;
  }
  // The other word has that value on the first channels, and so many more has the counter.
  void HaveConstants(uint32_t channels, uint64_t other, uint64_t more) {
    HaveTwin();
    has_twin_ = false;
    for (uint32_t channel = 0; channel < channels; ++channel) {
      Cell(channel, Twin()) = other;
      Cell(channel, counter_) = more;
    }
  }
  // All operations have so many channels.
  void BeAlike(uint32_t channels) {
    eager_channels_ = channels;
    captured_ = {channels};
  }
  // Some looks find a launch whose operation is not reported yet.
  void ReportLate() { reports_late_ = true; }
  // As many channels more count as well.
  void CountOnMore(uint32_t channels) { more_channels_ = channels; }
  // Some replays and eager calls. So many of them are still in flight afterwards.
  void Go(int replays, size_t in_flight) {
    if (is_busy_) in_flight += 60;
    for (int i = 0; i < replays; ++i) {
      Launch(Kernel::kReplay);
      if (++replayed_ % every_ == 0) Launch(hides_ ? Kernel::kHidden : Kernel::kEager);
      if (queue_.size() > in_flight) Finish(queue_.size() - in_flight);
    }
  }
  // Nothing is launched from now on.
  void Drain() {
    goes_on_ = false;
    Finish(queue_.size());
  }
  // Nothing goes on from now on, whatever is in flight.
  void Hang() {
    goes_on_ = false;
    hangs_ = true;
  }

  void Look() {
    now_ns_ += kLookNs;
    if (is_clock_) {
      for (uint32_t channel = 0; channel < kWorkChannels; ++channel)
        Cell(channel, counter_) = now_ns_;
    }
    look_ = {};
    look_.now_ns = now_ns_;
    const bool is_late = reports_late_ && Below(3) == 0;
    const LaunchedWork reported = launched_;
    if (is_late) {
      Launch(Kernel::kEager);
      const uint64_t launches = launched_.launches;
      launched_ = reported;
      launched_.launches = launches;
    }
    look_.before = launched_;
    look_.completed = completed_.size();
    look_.completed_work = completed_.empty() ? 0 : completed_.back();
    // Kernels end while it is copied, and others are launched.
    std::vector<char> copy(block_.size());
    for (size_t at = 0; at < block_.size(); at += 736) {
      std::memcpy(copy.data() + at, block_.data() + at, std::min<size_t>(736, block_.size() - at));
      if (Below(is_late ? 1 : 8) == 0 && !hangs_) StepKernel();
      if (Below(16) == 0 && is_captured_ && goes_on_ && !is_late) Go(1, queue_.size() + 1);
    }
    look_.after = launched_;
    look_.is_captured = is_captured_;
    for (const uint32_t channels : captured_) {
      look_.least_channels =
          look_.most_channels == 0 ? channels : std::min(look_.least_channels, channels);
      look_.most_channels = std::max(look_.most_channels, channels);
    }
    look_.may_hide = look_.has_hidden = launched_.hidden != 0;
    proof_.Take(copy.data(), look_);
    if (!is_late) return;
    launched_.work += eager_channels_;
    ++launched_.alone;
    launched_.reported = launched_.launches;
  }

  const WorkProof& proof() const { return proof_; }
  size_t counter() const { return counter_; }
  uint64_t replays_ended() const { return replays_ended_; }
  std::string Text() const {
    return "every " + std::to_string(every_) + ", eager channels " +
           std::to_string(eager_channels_) + ", captured kinds " +
           std::to_string(captured_.size()) + ", hides " + std::to_string(hides_);
  }

 private:
  size_t Twin() const { return 44 + 45 - counter_; }
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  uint64_t& Cell(uint32_t channel, size_t word) {
    return *reinterpret_cast<uint64_t*>(block_.data() + kWorkChannelsAt +
                                        channel * kWorkChannelBytes + word * sizeof(uint64_t));
  }
  void Launch(Kernel::Kind kind) {
    const bool is_replay = kind == Kernel::kReplay;
    queue_.push_back(
        {kind,
         is_replay ? captured_[Below(static_cast<uint32_t>(captured_.size()))] : eager_channels_,
         ++kernels_});
    if (kind == Kernel::kHidden) ++launched_.hidden;
    if (kind != Kernel::kEager) return;
    launched_.work += eager_channels_;
    ++launched_.alone;
    launched_.reported = ++launched_.launches;
  }
  void StepKernel() {
    if (queue_.empty()) return;
    Kernel& kernel = queue_.front();
    if (kernel.ended < kernel.channels) {
      // In either direction: which channel ends first is open.
      const uint32_t channel =
          replays_ended_ % 2 == 0 ? kernel.ended : kernel.channels - 1 - kernel.ended;
      Cell(channel, counter_) += word_ == nullptr ? 1 : word_(kernel, channel);
      if (has_twin_) ++Cell(channel, Twin());
      if (channel < more_channels_) ++Cell(channel + 32, counter_);
      ++kernel.ended;
      return;
    }
    replays_ended_ += kernel.kind == Kernel::kReplay;
    if (kernel.kind == Kernel::kEager) {
      completed_.push_back((completed_.empty() ? 0 : completed_.back()) + kernel.channels);
    }
    queue_.pop_front();
  }
  void Finish(size_t kernels) {
    const size_t left = queue_.size() - kernels;
    while (queue_.size() > left) StepKernel();
  }

  std::mt19937_64 random_;
  const bool hides_;
  const Word word_;
  std::vector<char> block_;
  size_t counter_;
  std::vector<uint32_t> captured_;
  uint64_t every_, replayed_ = 0;
  uint32_t eager_channels_;
  std::deque<Kernel> queue_;
  uint64_t kernels_ = 0;
  LaunchedWork launched_;
  std::vector<uint64_t> completed_;  // work of the eager launches until each
  uint64_t replays_ended_ = 0;
  bool is_captured_ = false;
  bool goes_on_ = true;
  bool is_clock_ = false;
  bool is_busy_ = false;
  bool has_twin_ = false;
  bool reports_late_ = false;
  bool hangs_ = false;
  uint32_t more_channels_ = 0;
  uint64_t now_ns_ = kLookNs;
  WorkLook look_;
  WorkProof proof_;
};

TEST(WorkProofModel, ProvenBesideEagerCallsAndCountedExactly) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Model model(seed, seed % 3 == 0);
    model.WarmUp(static_cast<int>(random() % 3));
    model.Capture();
    int looks = 0;
    for (int i = 0; i < 60; ++i) {
      model.Go(50 + static_cast<int>(random() % 200), random() % 10);
      model.Look();
      ASSERT_NE(model.proof().state(), WorkState::kRefuted)
          << seed << ", " << WorkRefutalName(model.proof().refutal()) << ", " << model.Text();
      looks += model.proof().state() != WorkState::kProven;
      // More go on while the copy is made.
      ASSERT_LE(model.proof().operations(), model.replays_ended() + 1)
          << seed << ", " << model.Text();
    }
    EXPECT_LT(looks, 30) << seed << ", " << model.Text();
    model.Drain();
    model.Look();
    ASSERT_EQ(model.proof().state(), WorkState::kProven);
    EXPECT_EQ(model.proof().word(), model.counter());
    EXPECT_TRUE(model.proof().are_operations_known());
    EXPECT_EQ(model.proof().operations(), model.replays_ended()) << seed << ", " << model.Text();
  }
}

// Whatever is in flight at it, each look tells, but for one that finds several launches half counted.
TEST(WorkProofModel, ProvenWithinASecond) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    Model model(seed, false);
    model.BeEasy({8 + seed % 16});
    model.WarmUp(1);
    model.Capture();
    for (uint32_t i = 0; i < WorkProof::kReplayMatches + 2; ++i) {
      if (i <= WorkProof::kReplayMatches) {
        ASSERT_EQ(model.proof().state(), WorkState::kCalibrating) << seed;
      }
      model.Go(400, random() % 40);
      model.Look();
    }
    EXPECT_EQ(model.proof().state(), WorkState::kProven) << seed << ", " << model.Text();
  }
}

void ExpectNotProven(const std::string& what, const std::function<void(Model&)>& change,
                     uint32_t kinds, int warm_up = 2, const Model::Word& word = nullptr,
                     bool hides = false) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Model model(seed, hides, kinds, word);
    change(model);
    model.WarmUp(warm_up);
    model.Capture();
    for (size_t i = 0; i < 40; ++i) {
      model.Go(100, i % 10);
      model.Look();
      // At no moment, also if it is refuted later.
      ASSERT_NE(model.proof().state(), WorkState::kProven)
          << what << ", " << seed << ", " << model.Text();
    }
  }
}

TEST(WorkProofModel, NothingElseIsTakenForTheCounter) {
  const auto none = [](Model&) {};
  ExpectNotProven(
      "a clock", [](Model& model) { model.UseClock(); }, 1);
  ExpectNotProven(
      "a clock beside Broadcasts", [](Model& model) { model.UseClock(); }, 1, 0, nullptr, true);
  ExpectNotProven(
      "three channels more", [](Model& model) { model.CountOnMore(3); }, 1, 0);
  ExpectNotProven("bytes", none, 3, 2, [](const Kernel&, uint32_t) { return 4096; });
  ExpectNotProven("twice", none, 3, 2, [](const Kernel&, uint32_t) { return 2; });
  ExpectNotProven("replays", none, 3, 2,
                  [](const Kernel& kernel, uint32_t) { return kernel.kind == Kernel::kReplay; });
  ExpectNotProven("all but channel 0", none, 3, 2,
                  [](const Kernel&, uint32_t channel) { return channel == 0 ? 0 : 1; });
  ExpectNotProven(
      "one kernel in four on channel 0 alone, beside much that is in flight",
      [](Model& model) { model.BeBusy(); }, 1, 0,
      [](const Kernel& kernel, uint32_t channel) {
        return channel == 0 || kernel.kind == Kernel::kEager || kernel.number % 4 >= 2;
      });
  // Where launches of one channel are mixed with those of many, these count as one that counts less.
  ExpectNotProven("channel 0 alone", none, 1, 2,
                  [](const Kernel&, uint32_t channel) { return channel == 0 ? 1 : 0; });
  ExpectNotProven("one kernel in four on channel 0 alone", none, 1, 2,
                  [](const Kernel& kernel, uint32_t channel) {
                    return channel == 0 || kernel.kind == Kernel::kEager || kernel.number % 8 >= 2;
                  });
  ExpectNotProven(
      "more on channel 1",
      [](Model& model) {
        model.BeEasy({8, 24});
      },
      3, 2,
      [](const Kernel& kernel, uint32_t channel) {
        return channel == 1 && kernel.kind == Kernel::kReplay && kernel.number % 3 == 0 ? 2 : 1;
      });
}

// Replays stop, or a launch is reported late: what was counted until then was not too much.
TEST(WorkProofModel, StaysProvenWhenReplaysStop) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Model model(seed, false);
    model.ReportLate();
    if (seed % 2 == 0) model.BeWide();
    model.WarmUpUnseen(static_cast<int>(random() % 3));
    model.Capture();
    while (model.proof().state() == WorkState::kCalibrating && model.replays_ended() < 50000) {
      model.Go(50 + static_cast<int>(random() % 200), 1 + random() % 10);
      model.Look();
    }
    ASSERT_EQ(model.proof().state(), WorkState::kProven) << seed << ", " << model.Text();
    model.Drain();
    model.WarmUp(5);
    ASSERT_EQ(model.proof().state(), WorkState::kProven)
        << seed << ", " << WorkRefutalName(model.proof().refutal()) << ", " << model.Text();
    EXPECT_EQ(model.proof().operations(), model.replays_ended()) << seed << ", " << model.Text();
  }
}

// As many eager calls as replays, which are launched and end while it is copied.
TEST(WorkProofModel, ProvenSoonBesideWideEagerCalls) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Model model(seed, false);
    model.BeWide();
    model.Capture();
    for (uint32_t i = 0; i < 3 * WorkProof::kReplayMatches; ++i) {
      model.Go(400, seed % 4);
      model.Look();
    }
    EXPECT_EQ(model.proof().state(), WorkState::kProven) << seed << ", " << model.Text();
  }
}

TEST(WorkProofModel, NothingIsProvenByLittleOrByChance) {
  // Two words count alike: which is NCCL's is not known.
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Model twins(seed, false);
    twins.HaveTwin();
    twins.Capture();
    Model few(seed, false);
    few.Capture();
    // It counts from some moment on, so the calls before are missing.
    Model late(seed, false, 3,
               [](const Kernel& kernel, uint32_t) { return kernel.number > 5000 ? 1 : 0; });
    late.BeWide();
    late.WarmUpUnseen(5000);
    late.Capture();
    for (int i = 0; i < 40; ++i) {
      twins.Go(100, 1 + i % 10);
      twins.Look();
      if (few.proof().state() != WorkState::kProven) {
        few.Go(3, 1);
        few.Look();
      }
      late.Go(20, 1 + i % 10);
      late.Look();
      ASSERT_NE(late.proof().state(), WorkState::kProven) << seed << ", " << late.Text();
    }
    EXPECT_NE(twins.proof().state(), WorkState::kProven) << seed << ", " << twins.Text();
    EXPECT_TRUE(few.proof().state() != WorkState::kProven ||
                few.replays_ended() >= WorkProof::kReplayMatches * WorkProof::kReplayedLaunches)
        << seed << ", " << few.Text();
  }
  ExpectNotProven(
      "one replay in eight twice on channel 0, beside many eager calls in flight",
      [](Model& model) { model.BeNarrow(); }, 1, 0,
      [](const Kernel& kernel, uint32_t channel) {
        return channel == 0 && kernel.kind == Kernel::kReplay && kernel.number % 16 < 2 ? 2 : 1;
      });
}

// A job hangs, or rests, before anybody has looked at its counter twice.
TEST(WorkProofModel, IsKnownToBeAtRestFromOneLook) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Model model(seed, false);
    model.WarmUpUnseen(3 + static_cast<int>(random() % 20));
    model.Capture();
    model.Go(static_cast<int>(random() % 500), random() % 2);
    if (seed % 2 == 0) model.Hang();
    if (seed % 2 != 0) model.Drain();
    model.Look();
    const uint64_t moved_ns = model.proof().moved_ns();
    EXPECT_NE(moved_ns, 0u) << seed << ", " << model.Text();
    for (int i = 0; i < 20; ++i) model.Look();
    EXPECT_EQ(model.proof().moved_ns(), moved_ns) << seed << ", " << model.Text();
    EXPECT_EQ(model.proof().state(), WorkState::kCalibrating);
  }
}

void ExpectNotAtRest(const char* what, const std::function<void(Model&)>& run,
                     const Model::Word& word = nullptr) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Model model(seed, false, 1, word);
    run(model);
    model.Hang();
    for (int i = 0; i < 20; ++i) {
      model.Look();
      ASSERT_EQ(model.proof().moved_ns(), 0u) << what << ", " << seed << ", " << model.Text();
    }
  }
}

TEST(WorkProofModel, AtRestIsOnlyWhatCountedAsTheCounterDoes) {
  const auto work = [](Model& model) {
    model.WarmUpUnseen(20);
    model.Capture();
    model.Go(300, 0);
  };
  ExpectNotAtRest("nothing", work, [](const Kernel&, uint32_t) { return 0; });
  ExpectNotAtRest("channel 0 alone", work,
                  [](const Kernel&, uint32_t channel) { return channel == 0 ? 1 : 0; });
  ExpectNotAtRest("all but channel 0", work,
                  [](const Kernel&, uint32_t channel) { return channel == 0 ? 0 : 1; });
  ExpectNotAtRest(
      "more on channel 1",
      [&work](Model& model) {
        model.BeEasy({8, 24});
        work(model);
      },
      [](const Kernel& kernel, uint32_t channel) {
        return channel == 1 && kernel.kind == Kernel::kReplay ? 2 : 1;
      });
  ExpectNotAtRest("one of two words", [&work](Model& model) {
    model.HaveTwin();
    work(model);
  });
  ExpectNotAtRest("a few launches", [](Model& model) {
    model.WarmUpUnseen(2);
    model.Capture();
    model.Go(2, 0);
  });
  ExpectNotAtRest(
      "channel 0 alone, beside much that is in flight",
      [](Model& model) {
        model.BeBusy();
        model.Capture();
        model.Go(60, 0);
      },
      [](const Kernel&, uint32_t channel) { return channel == 0 ? 1 : 0; });
  ExpectNotAtRest("a word that was wrong before", [](Model& model) {
    model.BeAlike(8);
    model.HaveConstants(8, 0, 24);
    model.WarmUp(1);
    model.Capture();
    model.Go(300, 0);
  });
}

// Sizes, say, that NCCL keeps of each channel that it uses.
TEST(WorkProofModel, AConstantIsNotTakenToCount) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Model model(seed, false, 1);
    model.BeAlike(8);
    model.HaveConstants(8, uint64_t{4} << 20, 0);
    model.WarmUpUnseen(20);
    model.Capture();
    model.Go(300, 0);
    model.Hang();
    model.Look();
    EXPECT_NE(model.proof().moved_ns(), 0u) << seed << ", " << model.Text();
  }
}

}  // namespace
}  // namespace nccl_pulse
