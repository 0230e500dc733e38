// What an endpoint remembers of a process' pace, from page to page.
#include "exporter/diagnosis/stragglers/pace_history.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

// A process whose steps have two Sends and one AllReduce, on one communicator.
class Trainer {
 public:
  Trainer() {
    process_.pid = 7;
    process_.sampling_exponent = 0;
    CommunicatorSnapshot& communicator = process_.communicators.emplace_back();
    communicator.comm_id = 1;
    communicator.calls = {{"AllReduce", 4, "", false, 0, 0}, {"Send", 4, "", false, 0, 0}};
    for (const char* op : {"AllReduce", "Send"}) {
      LatencySnapshot& latency = communicator.latencies.emplace_back();
      latency.kind = LatencyKind::kDurationStream;
      latency.op = op;
      latency.size_class = 4;
    }
    pace_.Update(process_, now_);
  }

  // Steps of that length, of which the AllReduce takes `inside_ns`; a page after every ten seconds.
  void Train(int steps, int64_t step_ns, int64_t inside_ns, int sends = 2) {
    CommunicatorSnapshot& communicator = process_.communicators[0];
    for (int i = 0; i < steps; ++i) {
      now_ += step_ns;
      communicator.calls[0].calls += 1;
      communicator.calls[1].calls += static_cast<uint64_t>(sends);
      if (i % (1 << process_.sampling_exponent) == 0) {
        Time(&communicator.latencies[0], 1, inside_ns);
        Time(&communicator.latencies[1], sends, kUs);
      }
      if (now_ - paged_ >= 10 * kSecond) Page();
    }
  }
  void Pause(int64_t ns) { now_ += ns; }
  ProcessSnapshot& process() { return process_; }
  std::vector<PaceWindow> BeforeAndNow() const { return pace_.BeforeAndNow(); }

 private:
  static void Time(LatencySnapshot* latency, int calls, int64_t each_ns) {
    latency->histogram.cells[0] += static_cast<uint64_t>(calls);
    latency->histogram.sum_ns += static_cast<uint64_t>(calls * each_ns);
  }
  void Page() {
    paged_ = now_;
    pace_.Update(process_, now_);
  }

  ProcessSnapshot process_;
  ProcessPace pace_;
  int64_t now_ = kStart, paged_ = kStart;
};

constexpr int64_t kStep = 500 * kMs;

double Share(const PaceWindow& window) {
  return static_cast<double>(window.inside_ms) / static_cast<double>(window.length_ms);
}

struct PaceHistoryTest : testing::Test {
  Trainer trainer;
};

TEST_F(PaceHistoryTest, NothingIsToldOfASteadyProcess) {
  trainer.Train(1000, kStep, kStep / 2);
  EXPECT_THAT(trainer.BeforeAndNow(), IsEmpty());
  trainer.Train(400, kStep / 2, kStep / 4);  // or of one that became faster
  EXPECT_THAT(trainer.BeforeAndNow(), IsEmpty());
}

TEST_F(PaceHistoryTest, TellsWhatWasBeforeItBecameSlower) {
  trainer.Train(400, kStep, kStep / 2);
  trainer.Train(200, kStep * 3 / 2, kStep);
  const std::vector<PaceWindow> paces = trainer.BeforeAndNow();
  ASSERT_THAT(paces, SizeIs(2));
  const double before = static_cast<double>(paces[0].length_ms) / paces[0].collectives;
  const double now = static_cast<double>(paces[1].length_ms) / paces[1].collectives;
  EXPECT_NEAR(now / before, 1.5, 0.02);
  EXPECT_NEAR(Share(paces[0]), 0.5, 0.01);
  EXPECT_NEAR(Share(paces[1]), 2.0 / 3, 0.01);
  EXPECT_EQ(paces[0].others, 2 * paces[0].collectives);
  // All that is like it, not the last windows alone.
  EXPECT_GT(paces[0].collectives, 300u);
  EXPECT_GT(paces[1].collectives, 150u);
  // Every window is like the others.
  EXPECT_LT(static_cast<double>(paces[1].error_ms), 0.02 * static_cast<double>(paces[1].length_ms));
}

TEST_F(PaceHistoryTest, TheErrorIsLargeWhereWindowsDiffer) {
  trainer.Train(400, kStep, kStep / 2);
  for (int i = 0; i < 10; ++i) trainer.Train(20, kStep * 3 / 2, i % 2 == 0 ? kStep / 4 : kStep);
  const std::vector<PaceWindow> paces = trainer.BeforeAndNow();
  ASSERT_THAT(paces, SizeIs(2));
  EXPECT_GT(static_cast<double>(paces[1].error_ms), 0.05 * static_cast<double>(paces[1].length_ms));
}

// Of a sample: the durations stand for all calls, how many these were is known.
TEST_F(PaceHistoryTest, ScalesToAllCalls) {
  trainer.process().sampling_exponent = 3;
  trainer.Train(1, kStep, kStep / 8);  // begins anew
  trainer.Train(400, kStep, kStep / 2);
  trainer.Train(300, kStep * 3 / 2, kStep);
  const std::vector<PaceWindow> paces = trainer.BeforeAndNow();
  ASSERT_THAT(paces, SizeIs(2));
  EXPECT_NEAR(Share(paces[0]), 0.5, 0.01);
}

TEST_F(PaceHistoryTest, APauseIsNotInAllWindows) {
  trainer.Train(400, kStep, kStep / 2);
  trainer.Pause(60 * kSecond);
  for (int i = 0; i < 70; ++i) {
    trainer.Train(1, kStep, kStep / 2);
    EXPECT_THAT(trainer.BeforeAndNow(), IsEmpty()) << i;
  }
}

// What it does otherwise, as in an evaluation, is not compared.
TEST_F(PaceHistoryTest, OtherWorkIsNotCompared) {
  trainer.Train(400, kStep, kStep / 2);
  trainer.Train(200, kStep * 3 / 2, kStep, 1);
  EXPECT_THAT(trainer.BeforeAndNow(), IsEmpty());
}

TEST_F(PaceHistoryTest, NothingIsKnownOfGraphsAndWithoutTiming) {
  Trainer captured;
  captured.Train(400, kStep, kStep / 2);
  captured.process().communicators[0].captured = true;
  captured.Train(200, kStep * 3 / 2, kStep);
  EXPECT_THAT(captured.BeforeAndNow(), IsEmpty());
  Trainer untimed;
  untimed.Train(400, kStep, kStep / 2);
  untimed.process().sampling_exponent = 25;  // more than any sampler's
  untimed.Train(200, kStep * 3 / 2, kStep);
  EXPECT_THAT(untimed.BeforeAndNow(), IsEmpty());
}

// Days of pages take no more than the room for a few windows, and the past is still there.
TEST_F(PaceHistoryTest, RemembersLong) {
  trainer.Train(20000, kStep, kStep / 2);
  trainer.Train(3000, kStep * 3 / 2, kStep);
  EXPECT_THAT(trainer.BeforeAndNow(), SizeIs(2));
}

// A process that is gone is forgotten; another one with its pid has its own past.
TEST_F(PaceHistoryTest, IsOfOneProcess) {
  PaceHistory history;
  trainer = Trainer();
  SnapshotSet set({trainer.process()});
  int64_t now = kStart;
  const auto train = [&](int steps, int64_t step_ns) {
    for (int i = 0; i < steps; ++i) {
      now += step_ns * 20;
      CommunicatorSnapshot& communicator = set.processes[0].communicators[0];
      communicator.calls[0].calls += 20;
      communicator.latencies[0].histogram.cells[0] += 30;
      communicator.latencies[0].histogram.sum_ns += static_cast<uint64_t>(20 * step_ns / 2);
      history.Update(&set, now);
    }
  };
  train(30, kStep);
  train(10, 2 * kStep);
  EXPECT_THAT(set.processes[0].pace, SizeIs(2));
  set.processes[0].start_realtime_ns = 5;
  train(10, 2 * kStep);
  EXPECT_THAT(set.processes[0].pace, IsEmpty());
}

}  // namespace
}  // namespace nccl_pulse
