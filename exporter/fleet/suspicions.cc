#include "exporter/fleet/suspicions.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_text.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

}  // namespace

void Suspicions::See(const std::string& what, bool is_hang) {
  const auto at = suspicions_.find(what);
  if (at != suspicions_.end()) {
    at->second.is_here = true;
  } else if (Count(is_hang) < kMost) {
    suspicions_.emplace(what, Suspicion{is_hang});
    ++Count(is_hang);
  } else {
    is_full_ = true;
  }
}

// After a page was read.
void Suspicions::Forget(Time now) {
  for (auto at = suspicions_.begin(); at != suspicions_.end();) {
    const Suspicion& each = at->second;
    const bool is_over =
        !each.is_here && now - each.gone_since >= (each.is_hang ? Time::duration(kHangIsOver)
                                                                : Time::duration(kStragglerIsOver));
    if (is_over) --Count(each.is_hang);
    at = is_over ? suspicions_.erase(at) : std::next(at);
  }
}

void Suspicions::Look(std::string_view text, Time now) {
  const Json page = ParseJson(text);
  if (!page.is_object() || !page.contains("communicators") || !page["communicators"].is_array()) {
    return;
  }
  is_full_ = false;
  for (auto& [what, suspicion] : suspicions_) {
    if (suspicion.is_here) suspicion.gone_since = now;
    suspicion.is_here = false;
  }
  for (const Json& each : page["communicators"]) {
    if (!each.is_object() || !each.contains("comm") || !each["comm"].is_string()) continue;
    const std::string comm = each["comm"].get<std::string>();
    if (!IsCommunicatorId(comm)) continue;
    if (each.contains("hang") && each["hang"].is_object()) {
      const Json& hang = each["hang"];
      const bool is_usual = hang.contains("usual") && hang["usual"] == true;
      if (!is_usual) See(absl::StrCat("hang of communicator ", comm), true);
    }
    if (each.contains("straggler") && each["straggler"].is_object() &&
        each["straggler"].contains("rank") && each["straggler"]["rank"].is_number_integer()) {
      See(absl::StrCat("rank ", each["straggler"]["rank"].get<int64_t>(), " lags in communicator ",
                       comm),
          false);
    }
  }
  Forget(now);
}

std::vector<std::string> Suspicions::New() const {
  std::vector<std::string> fresh;
  for (const auto& [what, suspicion] : suspicions_) {
    if (!suspicion.is_done) fresh.push_back(what);
  }
  return fresh;
}

bool Suspicions::HasNewHang() const {
  return std::any_of(suspicions_.begin(), suspicions_.end(),
                     [](const auto& each) { return each.second.is_hang && !each.second.is_done; });
}

void Suspicions::Done() {
  for (auto& [what, suspicion] : suspicions_) suspicion.is_done = true;
}

}  // namespace nccl_pulse
