#include "bench/collective_overhead/session.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace nccl_pulse::overhead {
namespace {

constexpr double kReserveSeconds = 2;  // of the budget, to end the processes
constexpr double kGuessedQuitSeconds = 0.5;

}  // namespace

Session::Session(const Options& options, double begin_seconds)
    : options_(options),
      begin_seconds_(begin_seconds),
      points_(Points(options)),
      schedule_(/*seed=*/1),
      sets_(options, &schedule_),
      timer_(options, &sets_, &schedule_) {
  for (const Launch launch : options.launches) {
    for (const Point& point : points_) {
      PointResult result = {launch, point, {}, {}};
      result.notes.resize(options.configurations.size());
      results_.push_back(result);
    }
  }
  loads_.resize(results_.size());
  checked_.resize(results_.size());
}

int Session::Run() {
  const double end_seconds = options_.seconds > 0
                                 ? begin_seconds_ + options_.seconds - kReserveSeconds
                                 : std::numeric_limits<double>::infinity();
  Error error;
  const std::size_t launches = options_.launches.size();
  for (std::size_t i = 0; i < launches && error.empty() && !StopRequested(); ++i) {
    const double now = NowSeconds();
    error = RunLaunch(i, now + (end_seconds - now) / static_cast<double>(launches - i));
  }
  sets_.Quit();
  Write();
  printf("%sThe samples are in %s. overhead_report.py %s prints the tables and verdicts.\n",
         StopRequested() ? "Ended early on request. " : "", options_.samples.c_str(),
         options_.samples.c_str());
  fflush(stdout);
  if (!error.empty()) {
    fprintf(stderr, "%s\n", error.c_str());
    return 3;
  }
  return 0;
}

Error Session::RunLaunch(std::size_t launch, double end_seconds) {
  const int sets = static_cast<int>(options_.configurations.size());
  const int ranks = static_cast<int>(options_.devices.size());
  const bool limited = std::isfinite(end_seconds);
  PlanInput input = {end_seconds - NowSeconds(), GuessStartSeconds(sets, ranks),
                     static_cast<int>(points_.size()), sets, options_.sample_ms * 1000};
  int rounds = limited ? MakePlan(input, options_.rounds).rounds : options_.rounds;
  const auto say = [&](const char* what) {
    if (limited) {
      fprintf(stderr, "%s: %s\n", what, PlanText(input, MakePlan(input, options_.rounds)).c_str());
    }
  };
  double quit_seconds = kGuessedQuitSeconds;
  sample_us_ = options_.sample_ms * 1000;
  fprintf(stderr, "%d sets of %d ranks (%s), %zu points\n", sets, ranks,
          Name(options_.launches[launch]), points_.size());
  say("Planned, if starting takes as long as guessed");
  for (int round = 0; round < rounds && !StopRequested(); ++round) {
    const double begin = NowSeconds();
    if (limited && begin >= end_seconds) break;
    Error error = sets_.Start(options_.launches[launch]);
    if (error.empty() && NeedsCompute(options_)) error = timer_.CalibrateCompute();
    if (!error.empty()) return error;
    settled_seconds_ = NowSeconds() + options_.settle_seconds;
    if (round == 0 && limited) {
      input.start_seconds = settled_seconds_ - begin + quit_seconds;
      const Plan plan = MakePlan(input, options_.rounds);
      rounds = plan.rounds;
      sample_us_ = SampleUs(input, plan);
      say("Planned");
    }
    // Whole pairs, as evenly as possible.
    const auto until = [&](int of_rounds) {
      return static_cast<int>(int64_t{options_.pairs} * of_rounds / rounds);
    };
    MeasureRound(launch * points_.size(), round, until(round + 1) - until(round),
                 begin + (end_seconds - begin) / (rounds - round) - quit_seconds, end_seconds);
    const double quit_begin = NowSeconds();
    sets_.Quit();
    quit_seconds = NowSeconds() - quit_begin;
    Write();
  }
  return {};
}

void Session::MeasureRound(std::size_t first, int round, int pairs, double share_end_seconds,
                           double end_seconds) {
  for (std::size_t i = 0; i < points_.size() && !StopRequested(); ++i) {
    const double now = NowSeconds();
    if (now >= end_seconds || !sets_.CanCompare()) break;
    const double share = (share_end_seconds - now) / static_cast<double>(points_.size() - i);
    MeasurePoint(first + i, round, pairs, now + share, end_seconds);
    Progress(first + i, round);
  }
  for (std::size_t i = 0; i < points_.size(); ++i) NoteDropped(&results_[first + i]);
}

void Session::NoteDropped(PointResult* result) const {
  for (std::size_t i = 0; i < options_.configurations.size(); ++i) {
    const std::string& reason = sets_.Reason(static_cast<int>(i));
    if (!reason.empty()) result->notes[i] = reason;
  }
}

void Session::PreparePoint(std::size_t index) {
  const PointResult& result = results_[index];
  const std::vector<int> alive = sets_.Alive();
  std::set<int>& checked = checked_[index];
  Request prepare{};
  prepare.kind = RequestKind::kPrepare;
  prepare.point = result.point;
  prepare.graph_operations = static_cast<uint32_t>(OperationsPerStep(options_, result.point.mode));
  prepare.layer_rounds = timer_.LayerRounds();
  // Once is enough: comparing 256 MiB takes longer than a timing. All members check together.
  prepare.check_values = std::any_of(alive.begin(), alive.end(),
                                     [&](int member) { return checked.count(member) == 0; });
  prepare.largest_bytes = *std::max_element(options_.sizes.begin(), options_.sizes.end());
  for (const Operation operation : options_.operations) {
    prepare.per_peer |= operation == Operation::kAllGather || operation == Operation::kAllToAll ||
                        operation == Operation::kReduceScatter;
  }
  for (const int member : schedule_.Shuffle(alive)) {
    std::vector<Reply> replies;
    if (sets_.Call(member, prepare, &replies).empty()) checked.insert(member);
  }
}

bool Session::MeasureBlock(std::size_t index, int round) {
  Block block;
  block.round = round;
  block.samples.resize(options_.configurations.size());
  const bool is_settled = NowSeconds() >= settled_seconds_;
  const auto processor = static_cast<uint32_t>(schedule_.NextRandom() >> 32);
  for (const int member : schedule_.NextBlock(sets_.Alive())) {
    Sample sample;
    if (!timer_.Time(member, results_[index].point, loads_[index], processor, &sample).empty()) {
      return false;
    }
    // The mean of a block's two runs.
    Sample& mean = block.samples[static_cast<std::size_t>(member)];
    const bool second = mean.operations_us > 0;
    mean.operations_us =
        second ? (mean.operations_us + sample.operations_us) / 2 : sample.operations_us;
    mean.total_us = second ? (mean.total_us + sample.total_us) / 2 : sample.total_us;
  }
  if (is_settled) results_[index].blocks.push_back(block);
  return is_settled;
}

void Session::MeasurePoint(std::size_t index, int round, int pairs, double deadline_seconds,
                           double last_seconds) {
  PointResult& result = results_[index];
  PreparePoint(index);
  if (!sets_.CanCompare()) return;
  Load& load = loads_[index];
  if (load.steps == 0) {
    if (!timer_.CalibrateLoad(result.point, sample_us_, &load).empty()) return;
  }

  double longest_block_seconds = 0;
  for (int done = 0; (pairs == 0 || done < pairs) && !StopRequested();) {
    const std::vector<int> alive = sets_.Alive();
    if (!sets_.CanCompare() || alive.size() < 2) break;
    const double begin = NowSeconds();
    // A round without any block would have no result for this point.
    const double until = done == 0 ? last_seconds : deadline_seconds;
    if (begin + longest_block_seconds > until) break;
    if (MeasureBlock(index, round)) ++done;
    longest_block_seconds = std::max(longest_block_seconds, NowSeconds() - begin);
  }
}

void Session::Progress(std::size_t index, int round) const {
  const PointResult& result = results_[index];
  fprintf(stderr, "[%zu/%zu, %.0f s] round %d, %s, %s: %zu pairs\n", index + 1, results_.size(),
          NowSeconds() - begin_seconds_, round + 1, PointName(result.point).c_str(),
          Name(result.launch), result.blocks.size());
}

void Session::Write() const {
  const std::string error = WriteSamples(options_.samples, options_, sets_.machine(), results_);
  if (!error.empty()) fprintf(stderr, "%s\n", error.c_str());
}

}  // namespace nccl_pulse::overhead
