#include "exporter/flight_recorder/snapshots.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/text_hash.h"
#include "exporter/flight_recorder/group_calls.h"
#include "metrics/size_class.h"

namespace nccl_pulse::flight_recorder {
namespace {

using Kind = Common::Kind;

// Limit of the compared span: no host runs so far ahead.
constexpr uint64_t kMostSpan = 4096;

int SizeClass(const Kind& kind) { return kind.bytes == 0 ? -1 : SizeClassOf(kind.bytes); }

OldestLaunch LaunchOf(State state, const Dump& dump) {
  if (state == State::kStarted) return OldestLaunch::kBegun;
  return dump.has_started ? OldestLaunch::kNotBegun : OldestLaunch::kUnknown;
}

void AddCalls(const std::vector<Kind>& kinds, CommunicatorSnapshot* communicator) {
  std::map<std::tuple<std::string, int, std::string>, std::pair<uint64_t, uint64_t>> counts;
  for (const Kind& kind : kinds) {
    auto& [calls, bytes] = counts[{kind.op, SizeClass(kind), kind.datatype}];
    ++calls;
    bytes += kind.bytes;
  }
  for (const auto& [key, count] : counts) {
    const auto& [op, size_class, datatype] = key;
    communicator->calls.push_back({op, size_class, datatype, false, count.first, count.second});
  }
  if (kinds.empty()) return;
  communicator->last_call_op = kinds.back().op;
  communicator->last_call_size_class = SizeClass(kinds.back());
}

// `first`: number of the first call.
CallOrderSnapshot OrderOf(const std::vector<Kind>& kinds, uint64_t first) {
  CallOrderSnapshot order;
  order.first = static_cast<uint32_t>(first);
  for (std::size_t i = 0; i < kinds.size() && i < CallOrderSnapshot::kMostCalls; ++i) {
    const auto found =
        std::find_if(order.kinds.begin(), order.kinds.end(), [&kind = kinds[i]](const Kind& each) {
          return each.op == kind.op && each.bytes == kind.bytes && each.datatype == kind.datatype;
        });
    const auto index = static_cast<std::size_t>(found - order.kinds.begin());
    if (found == order.kinds.end()) {
      if (order.kinds.size() == CallOrderSnapshot::kMostKinds) break;
      order.kinds.push_back(kinds[i]);
    }
    order.calls.push_back(static_cast<char>(index));
  }
  return order;
}

// Calls of a group's ranks after the last one that all have completed.
class OpenCalls {
 public:
  OpenCalls(const GroupCalls& group, const Common& common) {
    uint64_t last = 0;
    first_ = UINT64_MAX;
    for (const RankCalls& calls : group.ranks) {
      if (!calls.is_known) continue;
      first_ = std::min(first_, calls.completed + 1);
      last = std::max(last, calls.called);
    }
    if (first_ > last) return;
    first_ = std::max(first_, last - std::min(last, kMostSpan) + 1);
    common_.resize(last - first_ + 1, Kind{kUnknownCollective, "", 0});
    is_sized_.resize(common_.size(), true);
    for (const RankCalls& calls : group.ranks) {
      for (const Collective& each : calls.membership->collectives) {
        if (each.number < first_ || each.number > last) continue;
        const Kind& kind = common.KindOf(each.kind);
        Kind& of_all = common_[each.number - first_];
        if (of_all.op == kUnknownCollective) of_all = kind;
        is_sized_[each.number - first_] = is_sized_[each.number - first_] && kind.bytes != 0;
      }
    }
  }

  uint64_t first() const { return first_; }

  // Returns this rank's calls. Sizes not known on all ranks are not compared.
  std::vector<Kind> CalledBy(const RankCalls& calls, const Common& common) const {
    std::vector<Kind> kinds;
    if (calls.called < first_) return kinds;
    kinds.assign(common_.begin(),
                 common_.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(
                                       calls.called - first_ + 1, common_.size())));
    for (const Collective& each : calls.membership->collectives) {
      if (each.number < first_ || each.number - first_ >= kinds.size()) continue;
      const Kind& kind = common.KindOf(each.kind);
      if (kind.op != kUnknownCollective) kinds[each.number - first_] = kind;
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (!is_sized_[i]) kinds[i].bytes = 0;
    }
    return kinds;
  }

 private:
  uint64_t first_ = 0;  // number of the oldest call
  std::vector<Kind> common_;
  std::vector<bool> is_sized_;
};

class Maker {
 public:
  Maker(const std::vector<Dump>& dumps, int64_t now_ns, const Common& common)
      : common_(common), groups_(FindGroupCalls(dumps)) {
    set_.is_of_all_nodes = true;
    for (const Dump& dump : dumps) {
      index_of_.emplace(&dump, set_.processes.size());
      ProcessSnapshot& process = set_.processes.emplace_back();
      process.is_of_dump = true;
      process.global_rank = absl::StrCat(dump.rank);
      process.poller = PollerState::kRunning;
      process.last_poll_realtime_ns = now_ns;
      newest_ns_ = std::max(newest_ns_, dump.newest_ns);
    }
  }

  Snapshots Make() {
    for (const GroupCalls& group : groups_) {
      const uint64_t id = IdOf(*group.group);
      AddCollectives(group, id);
      AddPairs(group);
    }
    return {std::move(set_), std::move(ranks_)};
  }

 private:
  // Returns the group's ID: its name, if that is a free hexadecimal number other than 0, so that
  // people recognize it.
  uint64_t IdOf(const Group& group) {
    uint64_t id = 0;
    const bool is_number = group.name.size() <= 16 && absl::SimpleHexAtoi(group.name, &id);
    if (is_number && id != 0 && ids_.insert(id).second) return id;
    std::string text = group.name;
    for (const int32_t rank : group.ranks) absl::StrAppend(&text, " ", rank);
    return NewId(std::move(text));
  }

  uint64_t NewId(std::string text) {
    while (true) {
      const uint64_t id = TextHash(text);
      if (id != 0 && ids_.insert(id).second) return id;
      text += '+';
    }
  }

  static std::string NameOf(const Group& group) {
    return group.desc.empty() || group.desc == "undefined" ? absl::StrCat("group ", group.name)
                                                           : group.desc;
  }

  // Never 0, which means that nothing is in flight.
  int64_t TimeOf(int64_t ns) const { return std::max<int64_t>(ns != 0 ? ns : newest_ns_, 1); }

  CommunicatorSnapshot& Add(const Dump& dump, uint64_t id, std::string name, int32_t rank,
                            std::size_t nranks) {
    CommunicatorSnapshot& communicator =
        set_.processes[index_of_.at(&dump)].communicators.emplace_back();
    communicator.comm_id = id;
    communicator.name = std::move(name);
    communicator.rank = rank;
    communicator.nranks = static_cast<int32_t>(nranks);
    return communicator;
  }

  void AddCollectives(const GroupCalls& group, uint64_t id) {
    if (std::none_of(group.ranks.begin(), group.ranks.end(),
                     [](const RankCalls& calls) { return calls.has_open(); })) {
      return;
    }
    ranks_[id] = group.group->ranks;
    const OpenCalls open(group, common_);
    for (const RankCalls& calls : group.ranks) {
      CommunicatorSnapshot& communicator =
          Add(*calls.dump, id, NameOf(*group.group), calls.rank, group.group->ranks.size());
      if (!calls.is_known) {
        communicator.overflowed_calls = 1;
        continue;
      }
      const std::vector<Kind> kinds = open.CalledBy(calls, common_);
      AddCalls(kinds, &communicator);
      communicator.call_order = OrderOf(kinds, open.first());
      communicator.has_heartbeat = true;
      communicator.launches = kinds.size();
      communicator.launches_completed = std::min<uint64_t>(
          kinds.size(), calls.completed - std::min(calls.completed, open.first() - 1));
      communicator.last_completion_realtime_ns = calls.membership->last_completion_ns;
      if (!calls.membership->collectives.empty()) {
        communicator.last_launch_realtime_ns = calls.membership->collectives.back().created_ns;
      }
      if (!calls.has_open()) continue;
      const auto oldest =
          std::find_if(calls.membership->collectives.begin(), calls.membership->collectives.end(),
                       [&calls](const Collective& each) { return each.number > calls.completed; });
      communicator.call_order.in_flight = static_cast<uint32_t>(calls.completed + 1);
      communicator.oldest_inflight_realtime_ns = TimeOf(oldest->created_ns);
      communicator.oldest_launch = LaunchOf(oldest->state, *calls.dump);
    }
  }

  // Adds the pairs of ranks with an incomplete Send or Recv.
  void AddPairs(const GroupCalls& group) {
    std::set<std::pair<int32_t, int32_t>> pairs;
    std::map<int32_t, const RankCalls*> by_rank;
    for (const RankCalls& calls : group.ranks) {
      by_rank.emplace(calls.rank, &calls);
      for (const auto& [peer, open] : calls.membership->peers) {
        const bool is_rank = static_cast<std::size_t>(peer) < group.group->ranks.size();
        if (is_rank && peer != calls.rank) pairs.insert(std::minmax(peer, calls.rank));
      }
    }
    for (const auto& [lower, higher] : pairs) {
      const std::vector<int32_t> ranks = {group.group->ranks[lower], group.group->ranks[higher]};
      const uint64_t id = NewId(absl::StrCat(group.group->name, " ", ranks[0], "<>", ranks[1]));
      const std::string name =
          absl::StrCat(NameOf(*group.group), ", global ranks ", ranks[0], " and ", ranks[1]);
      ranks_[id] = ranks;
      for (const int32_t rank : {lower, higher}) {
        const auto calls = by_rank.find(rank);
        if (calls == by_rank.end()) continue;
        AddPair(*calls->second, rank == lower ? higher : lower,
                Add(*calls->second->dump, id, name, rank == lower ? 0 : 1, ranks.size()));
      }
    }
  }

  void AddPair(const RankCalls& calls, int32_t peer, CommunicatorSnapshot& communicator) const {
    if (!calls.membership->are_peers_known) {
      communicator.overflowed_calls = 1;
      return;
    }
    communicator.has_heartbeat = true;
    const auto open = calls.membership->peers.find(peer);
    if (open == calls.membership->peers.end()) return;
    std::vector<Kind> kinds;
    for (const uint32_t kind : open->second.kinds) kinds.push_back(common_.KindOf(kind));
    AddCalls(kinds, &communicator);
    communicator.launches = kinds.size();
    communicator.oldest_inflight_realtime_ns = TimeOf(open->second.oldest_ns);
    communicator.last_launch_realtime_ns = open->second.newest_ns;
    communicator.oldest_launch = LaunchOf(open->second.oldest_state, *calls.dump);
  }

  const Common& common_;
  const std::vector<GroupCalls> groups_;
  SnapshotSet set_;
  std::map<const Dump*, std::size_t> index_of_;
  std::set<uint64_t> ids_;
  std::map<uint64_t, std::vector<int32_t>> ranks_;
  int64_t newest_ns_ = 0;
};

}  // namespace

Snapshots MakeSnapshots(const std::vector<Dump>& dumps, int64_t now_ns, const Common& common) {
  return Maker(dumps, now_ns, common).Make();
}

}  // namespace nccl_pulse::flight_recorder
