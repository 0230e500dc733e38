#include "exporter/fleet/suspicions.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_field.h"
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
  const Json& communicators = At(page, "communicators");
  if (!communicators.is_array()) return;
  is_full_ = false;
  for (auto& [what, suspicion] : suspicions_) {
    if (suspicion.is_here) suspicion.gone_since = now;
    suspicion.is_here = false;
  }
  for (const Json& each : communicators) {
    const std::string comm = TextAt(each, "comm");
    if (!IsCommunicatorId(comm)) continue;
    const Json& hang = At(each, "hang");
    if (hang.is_object() && At(hang, "usual") != true) {
      See(absl::StrCat("hang of communicator ", comm), true);
    }
    const Json& late = At(At(each, "straggler"), "rank");
    if (late.is_number_integer()) {
      See(absl::StrCat("rank ", late.get<int64_t>(), " lags in communicator ", comm), false);
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
