#include "bench/collective_overhead/rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nccl_pulse::overhead {
namespace {

std::vector<std::size_t> WithoutPlugin(const Options& options) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < options.configurations.size(); ++i) {
    if (IsWithoutPlugin(options.configurations[i])) members.push_back(i);
  }
  return members;
}

// Compares `member` with the mean of the other members of `base` in the same block.
Comparison CompareWith(const PointResult& result, std::size_t member,
                       const std::vector<std::size_t>& base, Measured measured, double confidence) {
  std::vector<Pair> pairs;
  for (const Block& block : result.blocks) {
    double sum_us = 0;
    int count = 0;
    for (const std::size_t other : base) {
      const double us = ValueOf(block.samples[other], measured);
      if (other == member || us <= 0) continue;
      sum_us += us;
      ++count;
    }
    const double with_us = ValueOf(block.samples[member], measured);
    if (count > 0 && with_us > 0) pairs.push_back({block.round, sum_us / count, with_us});
  }
  return Compare(pairs, confidence);
}

void Suspect(Row* row, const std::string& reason) {
  row->verdict = Verdict::kSuspect;
  row->reason = reason;
}

void JudgePlugin(const std::vector<Row>& twins, const Criterion& criterion, Row* row) {
  const Comparison& comparison = row->comparison;
  row->verdict = Judge(comparison, criterion);
  if (comparison.rounds.size() < 2) return;
  double widest_us = 0;
  bool compared = false;
  bool differ = false;
  for (const Row& twin : twins) {
    if (twin.verdict == Verdict::kUndecided) continue;
    compared = true;
    differ |= twin.verdict == Verdict::kDiffer;
    widest_us = std::max(widest_us, std::abs(twin.comparison.difference_us.mean));
  }
  if (!compared) return Suspect(row, "no twin to compare with");
  if (differ) return Suspect(row, "a twin differs here");
  if (IsFaster(comparison)) {
    return Suspect(row, "faster than without");
  }
  if (row->verdict == Verdict::kFail && comparison.difference_us.mean <= widest_us) {
    row->verdict = Verdict::kUndecided;
    row->reason = "a twin shows as much";
  }
}

}  // namespace

const char* Name(Measured measured) {
  return measured == Measured::kOperations ? "operations" : "total";
}

double ValueOf(const Sample& sample, Measured measured) {
  return measured == Measured::kOperations ? sample.operations_us : sample.total_us;
}

std::vector<Row> RowsOf(const PointResult& result, const Options& options) {
  const std::vector<std::size_t> base = WithoutPlugin(options);
  std::vector<Measured> measured = {Measured::kOperations};
  if (result.point.compute) measured.push_back(Measured::kTotal);
  std::vector<Row> rows;
  for (const Measured what : measured) {
    const auto row_of = [&](std::size_t member, bool twin) {
      Row row = {result.launch,
                 result.point,
                 what,
                 options.configurations[member].name,
                 twin,
                 CompareWith(result, member, base, what, options.confidence),
                 Verdict::kUndecided,
                 {},
                 {}};
      if (member < result.notes.size()) row.note = result.notes[member];
      return row;
    };
    std::vector<Row> twins;
    for (const std::size_t member : base) {
      if (member == base.front()) continue;
      Row row = row_of(member, true);
      row.verdict = JudgeTwin(row.comparison);
      twins.push_back(std::move(row));
    }
    rows.insert(rows.end(), twins.begin(), twins.end());
    for (std::size_t i = 0; i < options.configurations.size(); ++i) {
      if (IsWithoutPlugin(options.configurations[i])) continue;
      Row row = row_of(i, false);
      JudgePlugin(twins, options.criterion, &row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<Row> RowsOf(const std::vector<PointResult>& results, const Options& options) {
  std::vector<Row> rows;
  for (const PointResult& result : results) {
    for (Row& row : RowsOf(result, options)) rows.push_back(std::move(row));
  }
  for (const Launch launch : options.launches) {
    const TwinCount twins = CountTwins(rows, launch, options.confidence);
    if (!twins.Suspect()) continue;
    for (Row& row : rows) {
      if (row.launch != launch || row.twin || row.comparison.rounds.size() < 2 ||
          row.verdict == Verdict::kSuspect) {
        continue;
      }
      Suspect(&row, absl::StrCat("twins differ at ", twins.differ, " of ", twins.compared));
    }
  }
  return rows;
}

TwinCount CountTwins(const std::vector<Row>& rows, Launch launch, double confidence) {
  TwinCount count;
  for (const Row& row : rows) {
    if (!row.twin || row.launch != launch || row.verdict == Verdict::kUndecided) continue;
    ++count.compared;
    if (row.verdict == Verdict::kDiffer) ++count.differ;
  }
  count.by_chance = MostByChance(count.compared, 1 - confidence);
  return count;
}

}  // namespace nccl_pulse::overhead
