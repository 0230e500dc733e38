#include "exporter/fleet/suspicions.h"

#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

bool IsCommunicatorId(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

}  // namespace

void Suspicions::See(const std::string& what, bool is_hang, Time now) {
  const auto at = suspicions_.find(what);
  if (at != suspicions_.end()) {
    at->second.seen = now;
  } else if (suspicions_.size() < kMost) {
    suspicions_.emplace(what, Suspicion{now, false, is_hang});
  }
}

void Suspicions::Look(const Json& page, Time now) {
  for (auto at = suspicions_.begin(); at != suspicions_.end();) {
    const auto age = now - at->second.seen;
    const bool is_over = at->second.is_hang ? age >= kHangIsOver : age >= kStragglerIsOver;
    at = is_over ? suspicions_.erase(at) : std::next(at);
  }
  if (!page.is_object() || !page.contains("communicators") || !page["communicators"].is_array()) {
    return;
  }
  for (const Json& each : page["communicators"]) {
    if (!each.is_object() || !each.contains("comm") || !each["comm"].is_string()) continue;
    const std::string comm = each["comm"].get<std::string>();
    if (!IsCommunicatorId(comm)) continue;
    if (each.contains("hang") && each["hang"].is_object()) {
      const Json& hang = each["hang"];
      const bool is_usual = hang.contains("usual") && hang["usual"] == true;
      if (!is_usual) See(absl::StrCat("hang of communicator ", comm), true, now);
    }
    if (each.contains("straggler") && each["straggler"].is_object() &&
        each["straggler"].contains("rank") && each["straggler"]["rank"].is_number_integer()) {
      See(absl::StrCat("rank ", each["straggler"]["rank"].get<int64_t>(), " lags in communicator ",
                       comm),
          false, now);
    }
  }
}

std::vector<std::string> Suspicions::New() const {
  std::vector<std::string> fresh;
  for (const auto& [what, suspicion] : suspicions_) {
    if (!suspicion.is_done) fresh.push_back(what);
  }
  return fresh;
}

void Suspicions::Done() {
  for (auto& [what, suspicion] : suspicions_) suspicion.is_done = true;
}

}  // namespace nccl_pulse
