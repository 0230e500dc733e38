#include "bench/collective_overhead/session.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nccl_pulse::overhead {
namespace {

constexpr double kFollowUpShare = 0.2;
// A follow-up of a single point should not burn all the time that is left.
constexpr double kLongestFollowUp = 4;  // times its first share
constexpr double kQuitSeconds = 10;
constexpr double kReserveSeconds = 2;  // of the budget, for ending the processes
constexpr double kShortestSampleUs = 1000;
// Blocks that a share should hold: short shares make short samples rather than few of them.
constexpr double kBlocksPerShare = 16;
constexpr uint32_t kMostSteps = 200000;
constexpr uint32_t kFewestSteps = 2;
constexpr int kMostReplacements = 2;
// The compute beside outlasts the operations by this much, so that all of them run beside it and
// what holds up the compute shows in the total.
constexpr double kComputeExcess = 1.1;

double LargestOf(const std::vector<Reply>& replies, double Reply::*field) {
  double largest = 0;
  for (const Reply& reply : replies) largest = std::max(largest, reply.*field);
  return largest;
}

}  // namespace

Session::Session(const Options& options, double begin_seconds)
    : options_(options),
      begin_seconds_(begin_seconds),
      points_(Points(options)),
      schedule_(options.seed),
      groups_(options.configurations.size()),
      start_errors_(options.configurations.size()),
      replaced_(options.configurations.size()),
      idle_(options.configurations.size()) {
  for (const Launch launch : options.launches) {
    for (const Point& point : points_) {
      PointResult result = {launch, point, {}, {}};
      result.notes.resize(options.configurations.size());
      results_.push_back(result);
    }
  }
  loads_.resize(results_.size());
}

int Session::Run() {
  const double end_seconds = options_.seconds > 0
                                 ? begin_seconds_ + options_.seconds - kReserveSeconds
                                 : std::numeric_limits<double>::infinity();
  const int segments = static_cast<int>(options_.launches.size()) * options_.rounds;
  int done = 0;
  Error error;
  for (const Launch launch : options_.launches) {
    for (int round = 0; round < options_.rounds && error.empty() && !StopRequested(); ++round) {
      const double now = NowSeconds();
      const double share = (end_seconds - now) / (segments - done);
      // Whole pairs, divided as evenly as they go.
      const auto until = [&](int rounds) {
        return static_cast<int>(int64_t{options_.pairs} * rounds / options_.rounds);
      };
      error = RunRound(launch, round, until(round + 1) - until(round), now + share);
      ++done;
    }
  }
  CollectIdle();
  WriteFiles();
  const std::vector<Row> rows = RowsOf(results_, options_);
  printf("%s\n%s", Table(rows).c_str(), Summary(rows, options_, machine_).c_str());
  if (StopRequested()) printf("Ended early on request: the table holds what was there.\n");
  fflush(stdout);
  if (!error.empty()) {
    fprintf(stderr, "%s\n", error.c_str());
    return 3;
  }
  return 0;
}

std::vector<int> Session::Alive() const {
  std::vector<int> alive;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] != nullptr) alive.push_back(static_cast<int>(i));
  }
  return alive;
}

void Session::StartGroups(Launch launch, const std::vector<int>& members) {
  const auto give_up = [this](int member, const Error& error) {
    groups_[member].reset();
    start_errors_[member] = error;
    fprintf(stderr, "%s: %s\n", options_.configurations[member].name.c_str(), error.c_str());
  };
  const auto all = [&](auto step) {
    for (const int member : members) {
      if (groups_[member] == nullptr) continue;
      Error error = step(*groups_[member]);
      if (!error.empty()) give_up(member, error);
    }
  };
  for (const int member : members) {
    start_errors_[member].clear();
    groups_[member] = std::make_unique<Group>(options_, options_.configurations[member], launch);
  }
  std::vector<Reply> replies;
  all([](Group& group) {
    Error error = group.Spawn();
    Request open{};
    open.kind = RequestKind::kOpen;
    return error.empty() ? group.Send(open) : error;
  });
  all([&](Group& group) {
    Error error = group.Receive(&replies);
    if (error.empty()) {
      machine_.gpu = replies[0].text;
      machine_.nccl_version = replies[0].nccl_version;
      machine_.driver_version = replies[0].driver_version;
    }
    return error;
  });
  all([](Group& group) { return group.SendUniqueIdAndConnect(); });
  all([&](Group& group) { return group.Receive(&replies); });
}

Error Session::CalibrateCompute() {
  Request request{};
  request.kind = RequestKind::kRun;
  request.pin = options_.pin;
  request.compute_kernels = 20;
  request.compute_rounds = 10000;
  double round_us = 0;
  // The first timings raise the clocks.
  for (int i = 0; i < 4; ++i) {
    std::vector<Reply> replies;
    Error error = groups_[0]->Call(request, &replies);
    if (!error.empty()) return error;
    round_us = LargestOf(replies, &Reply::total_us) /
               (static_cast<double>(request.compute_rounds) * request.compute_kernels);
    if (!(round_us > 0)) return "the compute kernel took no time";
    request.compute_rounds =
        static_cast<uint32_t>(std::clamp(options_.compute_us / round_us, 1.0, 1e9));
  }
  compute_rounds_ = request.compute_rounds;
  return {};
}

Error Session::Time(int configuration, const Point& point, const Load& load, uint32_t processor,
                    Sample* sample) {
  Request request{};
  request.kind = RequestKind::kRun;
  request.steps = load.steps;
  request.warmup_steps = std::max<uint32_t>(2, load.steps / 10);
  request.compute_kernels = load.compute_kernels;
  request.compute_rounds = compute_rounds_;
  request.processor = processor;
  request.pin = options_.pin;
  std::vector<Reply> replies;
  Error error = groups_[configuration]->Call(request, &replies);
  if (!error.empty()) return error;
  const double operations = static_cast<double>(load.steps) *
                            (point.mode == Mode::kGraph ? options_.graph_operations : 1);
  // The rank that comes last: an operation is over when all have what they wanted.
  sample->operations_us = LargestOf(replies, &Reply::operations_us) / operations;
  sample->total_us = LargestOf(replies, &Reply::total_us) / operations;
  return {};
}

Error Session::CalibrateLoad(const Point& point, double sample_us, Load* load) {
  Load trial;
  trial.steps = kFewestSteps;
  trial.compute_kernels = point.compute ? 1 : 0;
  const double operations_per_step =
      point.mode == Mode::kGraph ? static_cast<double>(options_.graph_operations) : 1;
  double kernel_us = options_.compute_us;
  for (int i = 0; i < 5; ++i) {
    Sample sample;
    Error error = Time(0, point, trial, 0, &sample);
    if (!error.empty()) return error;
    const double step_us = std::max(sample.operations_us * operations_per_step, 0.01);
    // When the compute came last its kernels' length shows, slowed by the operations.
    if (point.compute && sample.total_us > 1.02 * sample.operations_us) {
      kernel_us = std::max(
          kernel_us, sample.total_us * operations_per_step * trial.steps / trial.compute_kernels);
    }
    // Ten times at once at most: the first, short timings say little.
    const double wanted = std::min(sample_us / step_us, 10.0 * trial.steps);
    trial.steps =
        static_cast<uint32_t>(std::clamp(wanted, double{kFewestSteps}, double{kMostSteps}));
    if (point.compute) {
      trial.compute_kernels =
          static_cast<uint32_t>(std::ceil(kComputeExcess * trial.steps * step_us / kernel_us));
    }
  }
  *load = trial;
  return {};
}

void Session::Replace(int configuration, Launch launch, const Error& error, PointResult* result) {
  fprintf(stderr, "%s: %s: %s\n", options_.configurations[configuration].name.c_str(),
          PointName(result->point).c_str(), error.c_str());
  result->notes[configuration] = error;
  groups_[configuration].reset();
  if (StopRequested() || replaced_[configuration]++ >= kMostReplacements) {
    start_errors_[configuration] = absl::StrCat("given up after: ", error);
    return;
  }
  StartGroups(launch, {configuration});
}

void Session::MeasurePoint(std::size_t index, int round, std::vector<int> members, int pairs,
                           double deadline_seconds, double last_seconds) {
  PointResult& result = results_[index];
  const double share_seconds = deadline_seconds - NowSeconds();

  Request prepare{};
  prepare.kind = RequestKind::kPrepare;
  prepare.point = result.point;
  prepare.graph_operations = static_cast<uint32_t>(options_.graph_operations);
  prepare.largest_bytes = *std::max_element(options_.sizes.begin(), options_.sizes.end());
  for (const Operation operation : options_.operations) {
    prepare.per_peer |= operation == Operation::kAllGather || operation == Operation::kAllToAll ||
                        operation == Operation::kReduceScatter;
  }
  for (std::size_t i = 0; i < members.size();) {
    std::vector<Reply> replies;
    const Error error = groups_[members[i]]->Call(prepare, &replies);
    if (error.empty()) {
      ++i;
      continue;
    }
    Replace(members[i], result.launch, error, &result);
    if (members[i] == 0) return;
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(i));
  }

  Load& load = loads_[index];
  if (load.steps == 0) {
    double sample_us = options_.sample_ms * 1000;
    if (std::isfinite(share_seconds)) {
      const double fitting_us =
          share_seconds * 1e6 / (kBlocksPerShare * 2 * static_cast<double>(members.size()));
      sample_us = std::max(kShortestSampleUs, std::min(sample_us, fitting_us));
    }
    const Error error = CalibrateLoad(result.point, sample_us, &load);
    if (!error.empty()) {
      load = {};
      Replace(0, result.launch, error, &result);
      return;
    }
  }

  const int needed = SmallestSample(options_.confidence);
  double longest_block_seconds = 0;
  for (int done = 0; (pairs == 0 || done < pairs) && members.size() > 1 && !StopRequested();
       ++done) {
    const double begin = NowSeconds();
    const int have = static_cast<int>(result.blocks.size());
    const double until = have < needed ? last_seconds : deadline_seconds;
    if (begin + longest_block_seconds > until) break;

    Block block;
    block.round = round;
    block.samples.resize(options_.configurations.size());
    const auto processor = static_cast<uint32_t>(schedule_.NextRandom() >> 32);
    for (const int member : schedule_.NextBlock(members)) {
      Sample sample;
      const Error error = Time(member, result.point, load, processor, &sample);
      if (!error.empty()) {
        // Half a block is none.
        Replace(member, result.launch, error, &result);
        if (member == 0) return;
        members.erase(std::find(members.begin(), members.end(), member));
        block.samples.clear();
        break;
      }
      // Two runs per block: their mean.
      Sample& mean = block.samples[member];
      const bool second = mean.operations_us > 0;
      mean.operations_us =
          second ? (mean.operations_us + sample.operations_us) / 2 : sample.operations_us;
      mean.total_us = second ? (mean.total_us + sample.total_us) / 2 : sample.total_us;
    }
    if (!block.samples.empty()) result.blocks.push_back(block);
    longest_block_seconds = std::max(longest_block_seconds, NowSeconds() - begin);
  }
}

Error Session::RunRound(Launch launch, int round, int pairs, double end_seconds) {
  std::vector<int> everyone;
  for (std::size_t i = 0; i < groups_.size(); ++i) everyone.push_back(static_cast<int>(i));
  fprintf(stderr, "Starting %zu configurations of %zu ranks (%s)...\n", everyone.size(),
          options_.devices.size(), Name(launch));
  StartGroups(launch, everyone);
  if (groups_[0] == nullptr) return start_errors_[0];
  if (std::find(options_.compute.begin(), options_.compute.end(), true) != options_.compute.end()) {
    Error error = CalibrateCompute();
    if (!error.empty()) return error;
  }

  const std::size_t first = static_cast<std::size_t>(std::find(options_.launches.begin(),
                                                               options_.launches.end(), launch) -
                                                     options_.launches.begin()) *
                            points_.size();
  const double measure_begin = NowSeconds();
  const double follow_up_share = pairs == 0 ? kFollowUpShare : 0;
  const double first_end = measure_begin + (end_seconds - measure_begin) * (1 - follow_up_share);
  const double first_share = (first_end - measure_begin) / static_cast<double>(points_.size());
  for (std::size_t i = 0; i < points_.size() && !StopRequested(); ++i) {
    const double now = NowSeconds();
    if (now >= end_seconds) break;
    PointResult& result = results_[first + i];
    for (std::size_t c = 0; c < groups_.size(); ++c) {
      if (groups_[c] == nullptr) result.notes[c] = start_errors_[c];
    }
    if (groups_[0] == nullptr) return start_errors_[0];
    const double share = (first_end - now) / static_cast<double>(points_.size() - i);
    MeasurePoint(first + i, round, Alive(), pairs, now + share, end_seconds);
    Progress(first + i);
    WriteFiles();
  }

  // Those that are undecided, with whom it is undecided.
  std::vector<std::pair<std::size_t, std::vector<int>>> again;
  for (std::size_t i = first; i < first + points_.size() && follow_up_share > 0; ++i) {
    std::vector<int> members = {0};
    for (const Row& row : RowsOf(results_[i], options_)) {
      if (row.comparison.verdict != Verdict::kUndecided || row.comparison.pairs == 0) continue;
      for (const int member : Alive()) {
        if (options_.configurations[member].name == row.configuration &&
            std::find(members.begin(), members.end(), member) == members.end()) {
          members.push_back(member);
        }
      }
    }
    if (members.size() > 1) again.emplace_back(i, members);
  }
  for (std::size_t i = 0; i < again.size() && groups_[0] != nullptr && !StopRequested(); ++i) {
    const double now = NowSeconds();
    if (now >= end_seconds) break;
    if (i == 0) fprintf(stderr, "Once more, undecided: %zu points\n", again.size());
    const double share = std::min((end_seconds - now) / static_cast<double>(again.size() - i),
                                  kLongestFollowUp * first_share);
    std::vector<int> members;
    for (const int member : again[i].second) {
      if (groups_[member] != nullptr) members.push_back(member);
    }
    MeasurePoint(again[i].first, round, members, 0, now + share, end_seconds);
    Progress(again[i].first);
    WriteFiles();
  }

  CollectIdle();
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group != nullptr) group->Quit(StopRequested() ? 2 : kQuitSeconds);
  }
  for (std::unique_ptr<Group>& group : groups_) group.reset();
  return {};
}

void Session::CollectIdle() {
  machine_.idle_cpu.assign(groups_.size(), -1);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] != nullptr) {
      idle_[i].cpu_us += groups_[i]->idle().cpu_us;
      idle_[i].wall_us += groups_[i]->idle().wall_us;
    }
    if (idle_[i].wall_us > 0) machine_.idle_cpu[i] = idle_[i].cpu_us / idle_[i].wall_us;
  }
}

void Session::Progress(std::size_t index) const {
  const PointResult& result = results_[index];
  double base_us = 0;
  std::string line;
  for (const Row& row : RowsOf(result, options_)) {
    if (row.comparison.pairs == 0) continue;
    if (base_us == 0) base_us = row.comparison.base_us;
    absl::StrAppend(&line, "; ", row.configuration,
                    row.measured == Measured::kTotal ? " total " : " ", RatioText(row.comparison),
                    " ", Name(row.comparison.verdict));
  }
  fprintf(stderr, "[%zu/%zu, %.0f s] %s, %s: %.2f us, %zu pairs%s\n", index + 1, results_.size(),
          NowSeconds() - begin_seconds_, PointName(result.point).c_str(), Name(result.launch),
          base_us, result.blocks.size(), line.c_str());
}

void Session::WriteFiles() const {
  const auto write = [](const std::string& path, const std::string& text) {
    if (path.empty()) return;
    const std::string error = WriteFile(path, text);
    if (!error.empty()) fprintf(stderr, "%s\n", error.c_str());
  };
  const std::vector<Row> rows = RowsOf(results_, options_);
  write(options_.csv, Csv(rows));
  if (!options_.json.empty()) write(options_.json, Json(results_, options_, machine_));
  write(options_.markdown, Markdown(rows, options_));
}

}  // namespace nccl_pulse::overhead
