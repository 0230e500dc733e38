// Whether the stated intervals hold what they say, on made-up samples with two levels: what a set
// of processes has for its own, drawn anew in every round, and what each sample has.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bench/collective_overhead/rows.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

struct Model {
  int rounds;
  int blocks;               // in each round
  double between;           // standard deviation, as a share, of a set's own speed
  double within;            // of a sample
  double slowdown = 0.005;  // of the plugin
  double special = 0;       // of the first set alone: a baseline unlike its twin
  double base_us = 100;
  bool two_speeds = false;  // a set is fast or slow, and nothing between
};

std::string Text(const Model& m) {
  return std::to_string(m.rounds) + " rounds of " + std::to_string(m.blocks) + ", between " +
         std::to_string(m.between) + ", within " + std::to_string(m.within);
}

Options ThreeSets() {
  Options options;
  options.configurations = {{"none", "none", {}}, {"twin", "none", {}}, {"plugin", "/p.so", {}}};
  return options;
}

class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {}

  PointResult Measure(const Model& model) {
    PointResult result = {
        Launch::kProcesses, {Operation::kAllReduce, Mode::kSync, false, 4096}, {}, {"", "", ""}};
    const double effects[] = {1 + model.special, 1, 1 + model.slowdown};
    for (int round = 0; round < model.rounds; ++round) {
      // What all sets share, the weather of this minute, and what each has for its own.
      const double common = 1 + 0.02 * normal_(random_);
      double own[3];
      for (double& speed : own) {
        const double drawn = normal_(random_);
        speed = 1 + model.between * (model.two_speeds ? std::copysign(1.0, drawn) : drawn);
      }
      for (int i = 0; i < model.blocks; ++i) {
        Block block = {round, std::vector<Sample>(3)};
        for (std::size_t set = 0; set < 3; ++set) {
          double us = model.base_us * common * own[set] * effects[set] *
                      (1 + model.within * normal_(random_));
          if (uniform_(random_) < 0.02) us *= 1.3;  // something else ran
          block.samples[set].operations_us = us;
        }
        result.blocks.push_back(block);
      }
    }
    return result;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

// The method before: all pairs of one start are the sample, against the first set; the interval
// between the order statistics of the sign test.
bool OldIntervalHolds(const PointResult& result, double truth) {
  std::vector<double> ratios;
  for (const Block& block : result.blocks) {
    ratios.push_back(block.samples[2].operations_us / block.samples[0].operations_us);
  }
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<int>(ratios.size());
  double exactly = std::pow(0.5, n);
  double missed = 2 * exactly;
  int k = 0;
  while (missed <= 0.05) {
    ++k;
    exactly *= static_cast<double>(n - k + 1) / k;
    missed += 2 * exactly;
  }
  return ratios[static_cast<std::size_t>(k - 1)] <= truth &&
         truth <= ratios[static_cast<std::size_t>(n - k)];
}

constexpr int kTrials = 4000;

struct Coverage {
  double plugin = 0;
  double twin = 0;
  double old = 0;
};

Coverage CoverageOf(const Model& model) {
  Simulation simulation(7);
  const Options options = ThreeSets();
  Coverage held;
  for (int trial = 0; trial < kTrials; ++trial) {
    const PointResult result = simulation.Measure(model);
    const std::vector<Row> rows = RowsOf(result, options);
    if (rows[1].comparison.ratio.Holds(1 + model.slowdown)) held.plugin += 1.0 / kTrials;
    if (rows[0].comparison.ratio.Holds(1)) held.twin += 1.0 / kTrials;
    if (OldIntervalHolds(result, 1 + model.slowdown)) held.old += 1.0 / kTrials;
  }
  return held;
}

TEST(CoverageTest, IntervalsHoldTheTruthAsOftenAsTheySay) {
  for (const int rounds : {2, 5, 8, 20}) {
    for (const Model& model : {Model{rounds, 3, 0, 0.005}, Model{rounds, 3, 0.003, 0.005},
                               Model{rounds, 3, 0.02, 0.005}, Model{rounds, 9, 0.003, 0.005}}) {
      const Coverage held = CoverageOf(model);
      // 4,000 trials: the standard error is 0.34 %.
      EXPECT_GE(held.plugin, 0.93) << Text(model);
      EXPECT_LE(held.plugin, 0.975) << Text(model);
      EXPECT_GE(held.twin, 0.93) << Text(model);
      EXPECT_LE(held.twin, 0.975) << Text(model);
    }
  }
}

// Nothing between fast and slow is as far from normal as processes get.
TEST(CoverageTest, IntervalsHoldForProcessesOfTwoSpeeds) {
  for (const int rounds : {5, 8, 20}) {
    Model model = {rounds, 6, 0.01, 0.005};
    model.two_speeds = true;
    const Coverage held = CoverageOf(model);
    EXPECT_GE(held.plugin, 0.93) << Text(model);
    EXPECT_LE(held.plugin, 0.98) << Text(model);
  }
}

// What was stated before holds where processes do not differ, and only there.
TEST(CoverageTest, PairsOfOneStartAsTheSampleDoNotHold) {
  Model model = {1, 30, 0, 0.005};
  EXPECT_GE(CoverageOf(model).old, 0.93);
  model.between = 0.003;
  EXPECT_LT(CoverageOf(model).old, 0.6);
  model.between = 0.02;
  EXPECT_LT(CoverageOf(model).old, 0.2);
}

TEST(CoverageTest, TwoAndAHalfPerCentOfVerdictsOnTheLimitAreWrong) {
  Model model = {6, 5, 0.005, 0.005, 0.01};
  Simulation simulation(3);
  Options options = ThreeSets();
  options.criterion.absolute_us = 0;
  int passed = 0;
  int failed = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::vector<Row> rows = RowsOf(simulation.Measure(model), options);
    if (rows[1].verdict == Verdict::kPass) ++passed;
    if (rows[1].verdict == Verdict::kFail) ++failed;
  }
  EXPECT_GT(passed, kTrials * 0.01);
  EXPECT_LT(passed, kTrials * 0.035);
  EXPECT_GT(failed, kTrials * 0.005);  // some are undecided for what the twin shows
  EXPECT_LT(failed, kTrials * 0.035);
}

// As today's tool had it: the set that is the baseline is slower than any other.
TEST(CoverageTest, BaselineUnlikeItsTwinIsFoundAndNothingPasses) {
  Model model = {6, 5, 0.005, 0.005, 0};
  model.special = 0.03;
  Simulation simulation(5);
  const Options options = ThreeSets();
  int suspect = 0;
  constexpr int kRuns = 500;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<PointResult> results;
    for (int point = 0; point < 9; ++point) results.push_back(simulation.Measure(model));
    const std::vector<Row> rows = RowsOf(results, options);
    if (std::all_of(rows.begin(), rows.end(),
                    [](const Row& row) { return row.twin || row.verdict == Verdict::kSuspect; })) {
      ++suspect;
    }
  }
  EXPECT_GE(suspect, kRuns * 0.99);
}

TEST(CoverageTest, HonestRunIsSeldomSuspectAsAWhole) {
  const Model model = {6, 3, 0.005, 0.005, 0};
  Simulation simulation(9);
  const Options options = ThreeSets();
  int suspect = 0;
  constexpr int kRuns = 1000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<PointResult> results;
    for (int point = 0; point < 9; ++point) results.push_back(simulation.Measure(model));
    if (CountTwins(RowsOf(results, options), Launch::kProcesses, 0.95).Suspect()) ++suspect;
  }
  EXPECT_LE(suspect, kRuns * 0.06);
}

}  // namespace
}  // namespace nccl_pulse::overhead
