#include "exporter/timeline/recording.h"

#include <algorithm>

#include "exporter/base/communicator_id.h"
#include "exporter/base/json_field.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostWord = 64;  // bytes of an operation's name, or a state
constexpr std::size_t kMostName = 256;

uint64_t CountAt(const Json& object, const char* key) {
  return static_cast<uint64_t>(std::max<int64_t>(0, NumberAt(object, key)));
}

// Reads the fields that never change between polls.
SeenCall ReadCall(const Json& json, int64_t seen_ns) {
  SeenCall call;
  call.number = CountAt(json, "number");
  call.collective = CountAt(json, "collective");
  call.op = TextAt(json, "op", kMostWord);
  call.datatype = TextAt(json, "datatype", kMostWord);
  call.stream = TextAt(json, "stream", kMostWord);
  call.bytes = CountAt(json, "bytes");
  call.group = CountAt(json, "group");
  call.seen_ns = seen_ns;
  return call;
}

// Updates fields that become known later. An endpoint's older data (`is_newer` false) changes
// nothing.
void UpdateCall(const Json& json, int64_t time_ns, bool is_newer, SeenCall* call) {
  const int64_t launched_ns = TimeAt(json, "launched");
  if (launched_ns != 0) call->launched_ns = launched_ns;
  const Json& seconds = At(json, "seconds");
  constexpr double kMostSeconds = 1e6;
  if (seconds.is_number() && seconds.get<double>() >= 0 && seconds.get<double>() < kMostSeconds) {
    call->seconds = seconds.get<double>();
  }
  if (!is_newer && time_ns <= call->updated_ns) return;
  call->updated_ns = time_ns;
  call->state = TextAt(json, "state", kMostWord);
  const Json& begun = At(json, "begun");
  call->begun = begun.is_boolean() ? std::optional<bool>(begun.get<bool>()) : std::nullopt;
}

}  // namespace

std::vector<CallGap> SeenRank::Gaps() const {
  std::vector<CallGap> gaps;
  const SeenCall* before = nullptr;
  for (const auto& [number, call] : calls) {
    if (before != nullptr && number != before->number + 1) {
      gaps.push_back({before->number + 1, number - 1, KnownTime(*before),
                      std::max(KnownTime(*before), KnownTime(call))});
    }
    before = &call;
  }
  return gaps;
}

std::optional<uint64_t> SeenRank::LastCollective() const {
  if (!has_calls) return std::nullopt;
  if (calls.empty()) {
    return dropped_through == 0 ? std::optional<uint64_t>(0) : std::nullopt;
  }
  for (auto it = calls.rbegin(); it != calls.rend(); ++it) {
    if (it->second.collective != 0) return it->second.collective;
  }
  return std::nullopt;  // only Send and Recv are left
}

bool JobRecording::MakeRoom(SeenRank* rank, uint64_t number) {
  if (number <= rank->dropped_through) return false;  // already counted
  if (calls_ < most_calls_) return true;
  SeenRank* victim = rank;
  if (rank->calls.size() < most_calls_ / ranks_.size()) {
    for (auto& [key, other] : ranks_) {
      if (other.calls.size() > victim->calls.size()) victim = &other;
    }
  }
  ++dropped_;
  if (victim->calls.empty() || (victim == rank && number < rank->calls.begin()->first)) {
    rank->dropped_through = number;
    return false;
  }
  victim->dropped_through = victim->calls.begin()->first;
  victim->calls.erase(victim->calls.begin());
  --calls_;
  return true;
}

bool JobRecording::IsSeenAtEnd(const SeenRank& rank) const {
  const auto newest = arrived_ns_.find(rank.comm);
  if (newest == arrived_ns_.end()) return false;
  const int64_t end_ns = last_ns_ != 0 ? last_ns_ : newest->second;
  return end_ns - rank.arrived_ns <= kMostUnseenNs;
}

int64_t JobRecording::AddCalls(std::size_t endpoint, const Json& page, int64_t arrived_ns) {
  const int64_t time_ns = TimeAt(page, "time");
  const std::string comm = TextAt(page, "comm");
  const Json& ranks = At(page, "ranks");
  if (time_ns == 0 || !IsCommunicatorId(comm) || !ranks.is_array()) return 0;
  end_ns_ = std::max(end_ns_, time_ns);
  for (const Json& each : ranks) {
    if (!each.is_object()) continue;
    const Key key(comm, TextAt(each, "hostname", kMostName), NumberAt(each, "pid"),
                  NumberAt(each, "rank"));
    if (ranks_.size() >= kMostRanks && ranks_.count(key) == 0) continue;
    SeenRank& rank = ranks_[key];
    rank.endpoint = endpoint;
    rank.comm = comm;
    rank.name = TextAt(page, "name", kMostName);
    rank.nranks = NumberAt(page, "nranks");
    rank.hostname = std::get<1>(key);
    rank.pid = std::get<2>(key);
    rank.pid_namespace = NumberAt(each, "pid_namespace");
    rank.rank = std::get<3>(key);
    rank.global_rank = TextAt(each, "global_rank", kMostName);
    rank.gpu = TextAt(each, "gpu", kMostName);
    rank.missing = TextAt(each, "missing", kMostName);
    AddRank(&rank, At(each, "calls"), time_ns, arrived_ns);
  }
  return time_ns;
}

void JobRecording::AddRank(SeenRank* rank, const Json& calls, int64_t time_ns, int64_t arrived_ns) {
  if (!calls.is_array() || rank->looked_ns == time_ns) return;  // the same page again
  const bool is_newer =
      time_ns > rank->looked_ns || (rank->looked_by == rank->endpoint && rank->looks != 0);
  rank->has_calls = true;
  if (is_newer) ++rank->looks;
  std::size_t open = 0;
  for (const Json& each : calls) {
    const uint64_t number = CountAt(each, "number");
    if (number == 0) continue;
    auto found = rank->calls.find(number);
    if (found == rank->calls.end()) {
      if (!MakeRoom(rank, number)) continue;
      ++calls_;
      found = rank->calls.emplace(number, ReadCall(each, time_ns)).first;
    }
    UpdateCall(each, time_ns, is_newer, &found->second);
    if (is_newer) found->second.updated_look = rank->looks;
    if (found->second.is_open()) ++open;
  }
  if (!is_newer) return;
  rank->looked_ns = time_ns;
  rank->looked_by = rank->endpoint;
  rank->arrived_ns = arrived_ns;
  int64_t& newest_ns = arrived_ns_[rank->comm];
  newest_ns = std::max(newest_ns, arrived_ns);
  rank->open_calls.emplace_back(time_ns, open);
}

}  // namespace nccl_pulse
