#include "exporter/cli/status/calls_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/json_field.h"
#include "exporter/base/size_words.h"
#include "exporter/cli/status/status_words.h"
#include "exporter/diagnosis/words/words.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

std::string WhatOf(const Json& call) {
  const std::string number = Text(At(call, "of_kind"));
  return absl::StrCat(Text(At(call, "op")), " ", BytesWords(Number(At(call, "bytes"))),
                      number.empty() ? "" : absl::StrCat(" #", number));
}

struct RankColumn {
  std::string title;
  bool is_suspect = false;
  std::string missing;  // "": has calls
  std::map<int64_t, Json> collectives;
  int64_t first = 0;  // oldest kept call
};

RankColumn ColumnOf(const Json& rank, const Json& suspects) {
  RankColumn column;
  column.title = absl::StrCat("rank ", Text(At(rank, "rank")));
  column.is_suspect = Contains(suspects, At(rank, "rank"));
  if (!At(rank, "calls").is_array()) {
    column.missing = Text(At(rank, "missing"));
    if (column.missing.empty()) column.missing = "unknown";
    return column;
  }
  for (const Json& call : At(rank, "calls")) {
    const auto number = static_cast<int64_t>(Number(At(call, "collective")));
    if (number > 0) column.collectives.emplace(number, call);
  }
  if (!column.collectives.empty()) column.first = column.collectives.begin()->first;
  return column;
}

// Returns the call that most ranks made with this number; "" if no two ranks agree.
std::string MostCalled(const std::vector<RankColumn>& columns, int64_t number) {
  std::map<std::string, int> votes;
  for (const RankColumn& column : columns) {
    const auto found = column.collectives.find(number);
    if (found != column.collectives.end()) ++votes[WhatOf(found->second)];
  }
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return votes.size() == 1 || (most != votes.end() && most->second > 1) ? most->first : "";
}

std::string CellOf(const RankColumn& column, int64_t number, const std::string& most) {
  if (!column.missing.empty()) return column.missing == "off" ? "off" : "not kept";
  const auto found = column.collectives.find(number);
  if (found == column.collectives.end()) {
    if (number < column.first) return "not kept";
    return "> not called";
  }
  const std::string what = WhatOf(found->second);
  const std::string state = Text(At(found->second, "state_word"));
  return what == most ? state : absl::StrCat("> ", what, ", ", state);
}

}  // namespace

std::string CallsTable(const Json& page, std::size_t lines, int width) {
  std::vector<RankColumn> columns;
  int64_t newest = 0;
  for (const Json& rank : List(At(page, "ranks"))) {
    columns.push_back(ColumnOf(rank, At(page, "suspects")));
    const auto& collectives = columns.back().collectives;
    if (!collectives.empty()) newest = std::max(newest, collectives.rbegin()->first);
  }
  const std::string out =
      absl::StrCat("communicator ", CommunicatorName(page), "  last collectives\n");
  if (newest == 0) return absl::StrCat(out, "  no collective is kept\n");
  // Numbers calls as the verdict does: per operation and size or, if operations differ between
  // ranks, over all collectives.
  const bool is_numbered = Text(At(page, "verdict")) == "mismatched_operations";
  std::vector<std::vector<std::string>> rows(1);
  if (is_numbered) rows[0].emplace_back("COLLECTIVE");
  rows[0].emplace_back("CALL");
  for (const RankColumn& column : columns) {
    rows[0].push_back(absl::StrCat(column.is_suspect ? ">> " : "", column.title));
  }
  const int64_t oldest = std::max<int64_t>(1, newest - static_cast<int64_t>(lines) + 1);
  for (int64_t number = oldest; number <= newest; ++number) {
    const std::string most = MostCalled(columns, number);
    rows.emplace_back();
    if (is_numbered) rows.back().push_back(absl::StrCat(number));
    rows.back().push_back(most.empty() ? "differs" : most);
    for (const RankColumn& column : columns) rows.back().push_back(CellOf(column, number, most));
  }
  return absl::StrCat(out, AlignedRows(rows, static_cast<std::size_t>(std::max(width, 0))));
}

}  // namespace nccl_pulse
