#include "exporter/flight_recorder/group_calls.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace nccl_pulse::flight_recorder {
namespace {

// Uses the dump's calls. The rank may also have made others.
void ConcludeByCalls(RankCalls* calls) {
  const Membership& membership = *calls->membership;
  const std::vector<Collective>& collectives = membership.collectives;
  const auto open =
      std::find_if(collectives.begin(), collectives.end(),
                   [](const Collective& each) { return each.state != State::kCompleted; });
  calls->called = membership.last_collective;
  if (open != collectives.end()) {
    calls->completed = std::max<uint64_t>(open->number, 1) - 1;
    calls->is_known = true;
    return;
  }
  calls->completed = calls->called;
  calls->is_known =
      !calls->dump->is_only_open && (calls->dump->is_from_first || !collectives.empty());
}

// Uses the status of a rank without work in flight: the number of a collective, or of a Send or
// Recv. A collective's number is close to the other ranks' numbers: no rank completes a collective
// that another rank has not called, except a few operations that a rank can leave before others
// arrive.
void ConcludeByStatus(uint64_t most_completed, uint64_t most_called, RankCalls* calls) {
  constexpr uint64_t kMostAhead = 16;
  const Membership& status = *calls->membership;
  if (!status.enqueued || status.enqueued != status.completed) return;
  const auto number = static_cast<uint64_t>(std::max<int64_t>(*status.enqueued, 0));
  if (number < calls->called || number > most_called || number + kMostAhead < most_completed)
    return;
  calls->called = calls->completed = number;
  calls->is_known = true;
}

// Uses the time of the group's first call. A rank whose dump goes further back, and has no call in
// the group, has made none.
void ConcludeByTime(int64_t first_ns, RankCalls* calls) {
  constexpr int64_t kClocksDiffer = 100'000'000;
  const Dump& dump = *calls->dump;
  calls->is_known = calls->membership->collectives.empty() && !dump.is_only_open &&
                    dump.oldest_call_ns != 0 && dump.oldest_call_ns < first_ns - kClocksDiffer;
}

void Conclude(GroupCalls* group) {
  uint64_t most_completed = 0;
  uint64_t most_called = 0;
  int64_t first_ns = INT64_MAX;
  for (RankCalls& calls : group->ranks) {
    ConcludeByCalls(&calls);
    if (!calls.is_known) continue;
    most_completed = std::max(most_completed, calls.completed);
    most_called = std::max(most_called, calls.called);
    const std::vector<Collective>& collectives = calls.membership->collectives;
    if (!collectives.empty() && collectives.front().number == 1) {
      first_ns = std::min(first_ns, collectives.front().created_ns);
    }
  }
  for (RankCalls& calls : group->ranks) {
    if (!calls.is_known) ConcludeByStatus(most_completed, most_called, &calls);
    if (!calls.is_known && first_ns != INT64_MAX) ConcludeByTime(first_ns, &calls);
  }
}

}  // namespace

std::vector<GroupCalls> FindGroupCalls(const std::vector<Dump>& dumps) {
  std::vector<GroupCalls> groups;
  std::map<const Group*, std::size_t> index_of;
  for (const Dump& dump : dumps) {
    for (const Membership& membership : dump.groups) {
      const Group* group = membership.group;
      const auto at = std::find(group->ranks.begin(), group->ranks.end(), dump.rank);
      if (at == group->ranks.end()) continue;
      const auto [found, inserted] = index_of.try_emplace(group, groups.size());
      if (inserted) groups.push_back({group, {}});
      RankCalls& calls = groups[found->second].ranks.emplace_back();
      calls.dump = &dump;
      calls.membership = &membership;
      calls.rank = static_cast<int32_t>(std::distance(group->ranks.begin(), at));
    }
  }
  for (GroupCalls& group : groups) {
    std::sort(group.ranks.begin(), group.ranks.end(),
              [](const RankCalls& a, const RankCalls& b) { return a.rank < b.rank; });
    Conclude(&group);
  }
  return groups;
}

}  // namespace nccl_pulse::flight_recorder
