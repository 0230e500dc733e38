#include "exporter/diagnosis/facts/call_mismatch.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

using Kind = CallOrderSnapshot::Kind;

// True for operations whose data type matters: in all others NCCL only moves bytes.
bool IsReducing(const Kind& kind) {
  return kind.op == "AllReduce" || kind.op == "Reduce" || kind.op == "ReduceScatter";
}

// The compared values, in turn.
enum By : std::size_t { kByBytes, kByType, kByRoot, kBys };

struct OfRank {
  const RankView* rank;
  uint32_t first;
  std::vector<uint32_t> calls;   // indices into the kinds of all ranks
  std::vector<uint32_t> sorted;  // the same calls, sorted within each group
};

// Compares ranks by the order of their last calls. Counts stop showing a difference once all hosts
// have made further calls.
//
// A call is identified by its number among the collectives of its communicator, so it does not
// matter when each rank was read. The comparison covers values that NCCL reports and requires to be
// equal: operation and bytes, then the root, and for reductions the data type (other operations
// only move bytes). It does not cover the kind of reduction (sum, max), which NCCL does not report,
// nor Send and Recv, which ComparePeerCalls compares. Collectives of one group may be called in any
// order.
//
// Cost: linear in the compared calls.
class Comparison {
 public:
  Comparison(const CommunicatorFacts& facts, Compared compared) : compared_(compared) {
    for (const RankView* rank : facts.live) Add(*rank, facts.abandoned);
  }

  std::optional<Mismatch> Make() {
    for (const By by : {kByBytes, kByType, kByRoot}) {
      // Types don't matter here: after calls of equal bytes, nothing is left in the buffers.
      if (by == kByType && compared_ == Compared::kAll) continue;
      if (std::optional<Mismatch> mismatch = Compare(by)) return mismatch;
    }
    return std::nullopt;
  }

 private:
  void Add(const RankView& rank, const AbandonedCalls& abandoned) {
    const CallOrderSnapshot& order = rank.communicator->call_order;
    if (order.calls.empty()) return;
    // Data from the network is untrusted.
    if (order.calls.size() > CallOrderSnapshot::kMostCalls) return;
    if (order.kinds.size() > CallOrderSnapshot::kMostKinds) return;
    std::vector<uint32_t> indices;
    for (const Kind& kind : order.kinds) indices.push_back(IndexOf(kind));
    OfRank of{&rank, order.first, {}, {}};
    of.calls.reserve(order.calls.size());
    of.sorted.reserve(order.calls.size());
    std::optional<std::ptrdiff_t> group;  // begin of the current group; none: it began earlier
    const auto end_group = [&] {
      if (group) {
        std::sort(of.sorted.begin() + *group, of.sorted.end(),
                  [this](uint32_t a, uint32_t b) { return like_[a] < like_[b]; });
      }
      group = of.sorted.end() - of.sorted.begin();
    };
    uint64_t left = abandoned.Of(rank);
    const std::size_t in_flight_at = order.in_flight - order.first;
    std::optional<std::size_t> in_flight;  // without abandoned calls
    for (std::size_t i = 0; i < order.calls.size(); ++i) {
      const auto call = static_cast<uint8_t>(order.calls[i]);
      const std::size_t kind = call & CallOrderSnapshot::kKind;
      if (kind >= indices.size()) return;  // damaged data
      if ((call & CallOrderSnapshot::kSameGroup) == 0) end_group();
      if (order.in_flight != 0 && i == in_flight_at) in_flight = of.calls.size();
      if (order.kinds[kind].is_unlaunched && abandoned.Of(rank, order.kinds[kind].op) != 0) {
        if (left == 0) return;  // not all calls are counted yet
        --left;
      } else {
        of.calls.push_back(indices[kind]);
        of.sorted.push_back(indices[kind]);
      }
    }
    end_group();
    of.first -= static_cast<uint32_t>(left);  // calls before the known ones
    if (in_flight) {
      const uint32_t number = of.first + static_cast<uint32_t>(*in_flight);
      if (!in_flight_ || IsBefore(number, *in_flight_)) in_flight_ = number;
    }
    ranks_.push_back(std::move(of));
  }

  uint32_t IndexOf(const Kind& kind) {
    const auto next = static_cast<uint32_t>(kinds_.size());
    const auto [found, inserted] =
        indices_.try_emplace({kind.op, kind.bytes, kind.datatype, kind.root}, next);
    if (inserted) {
      const auto first = [&](std::string_view datatype, int32_t root) {
        return firsts_.try_emplace({kind.op, kind.bytes, datatype, root}, next).first->second;
      };
      kinds_.push_back(&kind);
      const std::string_view type = IsReducing(kind) ? std::string_view(kind.datatype) : "";
      like_.push_back({first("", -1), first(type, -1), first("", kind.root)});
    }
    return found->second;
  }

  // Numbers have 32 bits and wrap around.
  static bool IsBefore(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

  // Returns the compared value of a kind, by the kind's index; nothing if it is not known.
  std::optional<uint32_t> What(uint32_t kind, By by) const {
    if (by == kByRoot && kinds_[kind]->root < 0) return std::nullopt;
    return like_[kind][by];
  }

  std::optional<Mismatch> Compare(By by) const {
    if ((!in_flight_ && compared_ == Compared::kInFlight) || ranks_.size() < 2) return std::nullopt;
    // The comparison by bytes has compared this value too, unless calls differ in it alone.
    const auto is_by_bytes = [by](const auto& like) { return like[by] == like[kByBytes]; };
    if (by != kByBytes && std::all_of(like_.begin(), like_.end(), is_by_bytes)) return std::nullopt;
    // Within a group the order may differ, so a difference of the unsorted calls is not enough.
    if (!FirstDifference(&OfRank::calls, by)) return std::nullopt;
    const std::optional<uint32_t> number = FirstDifference(&OfRank::sorted, by);
    if (!number) return std::nullopt;
    return SidesAt(*number, by);
  }

  std::optional<uint32_t> FirstDifference(std::vector<uint32_t> OfRank::*calls, By by) const {
    std::unordered_map<uint32_t, uint32_t> seen;  // by number
    std::optional<uint32_t> first;
    for (const OfRank& of : ranks_) {
      uint32_t number = of.first;
      for (const uint32_t kind : of.*calls) {
        const std::optional<uint32_t> what = What(kind, by);
        const bool differs = what && seen.try_emplace(number, *what).first->second != *what;
        const bool is_compared = compared_ == Compared::kAll || !IsBefore(number, *in_flight_);
        if (differs && is_compared && (!first || IsBefore(number, *first))) first = number;
        ++number;
      }
    }
    return first;
  }

  Mismatch SidesAt(uint32_t number, By by) const {
    Mismatch mismatch{
        by == kByRoot ? Mismatch::By::kRoots : Mismatch::By::kCallNumber, {}, {}, number};
    std::map<uint32_t, std::size_t> side_of;
    for (const OfRank& of : ranks_) {
      const uint32_t at = number - of.first;
      if (at >= of.sorted.size()) continue;
      const std::optional<uint32_t> what = What(of.sorted[at], by);
      if (!what) continue;
      const auto [found, inserted] = side_of.try_emplace(*what, mismatch.sides.size());
      if (inserted) {
        const Kind& kind = *kinds_[of.sorted[at]];
        mismatch.operations.insert(kind.op);
        mismatch.sides.push_back({{{{kind.op, SizeClassOf(kind.bytes)}, 1}}, {}, kind});
      }
      mismatch.sides[found->second].ranks.push_back(of.rank);
    }
    return mismatch;
  }

  const Compared compared_;
  std::vector<OfRank> ranks_;
  std::optional<uint32_t>
      in_flight_;  // number of the oldest call known to be in flight on some rank
  std::vector<const Kind*> kinds_;
  // For each kind, the first kind that is equal: in operation and bytes; also in data type, if it
  // reduces; also in root.
  std::vector<std::array<uint32_t, kBys>> like_;
  using Indices =
      std::map<std::tuple<std::string_view, uint64_t, std::string_view, int32_t>, uint32_t>;
  Indices indices_, firsts_;
};

void AddSide(const Calls& calls, const RankView* rank, Mismatch* mismatch) {
  for (const auto& [kind, count] : calls) mismatch->operations.insert(kind.first);
  for (CallSide& side : mismatch->sides) {
    if (side.calls == calls) return side.ranks.push_back(rank);
  }
  mismatch->sides.push_back({calls, {rank}});
}

// Returns null if the rank's calls with this peer are not known.
const PeerCallsSnapshot* CallsWith(const RankView& rank, const RankView& peer, bool receives) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  // The change may have hidden some.
  if (rank.process->event_mask_changes != 0 || communicator.captured) return nullptr;
  for (const PeerCallsSnapshot& each : communicator.peer_calls) {
    if (each.peer == peer.rank() && each.receives == receives) return &each;
  }
  return nullptr;
}

// Returns the bytes of the first `calls` calls, modulo 2^48; nothing if they are not known.
std::optional<uint64_t> TotalOf(const PeerCallsSnapshot& all, uint64_t calls) {
  if (calls == 0) return 0;
  const uint64_t before_last = all.calls - calls;
  if (before_last >= all.totals.size()) return std::nullopt;
  return all.totals[all.totals.size() - 1 - before_last];
}

std::optional<uint64_t> BytesOf(const PeerCallsSnapshot& all, uint64_t call) {
  const std::optional<uint64_t> total = TotalOf(all, call);
  const std::optional<uint64_t> before = TotalOf(all, call - 1);
  if (!total || !before) return std::nullopt;
  return (*total - *before) & PeerCallsSnapshot::kBytesMask;
}

}  // namespace

Mismatch CompareSides(const CommunicatorFacts& facts) {
  std::vector<Calls> compared;
  for (const Calls& each : facts.calls) compared.push_back(WithoutSizes(each));
  const bool by_size = std::all_of(compared.begin(), compared.end(),
                                   [&](const Calls& each) { return each == compared.front(); });
  if (by_size) compared = facts.calls;
  Calls common = compared.front();
  for (const Calls& each : compared) common = Common(common, each);
  Mismatch mismatch{by_size ? Mismatch::By::kSizes : Mismatch::By::kOperations, {}, {}, 0};
  for (std::size_t i = 0; i < compared.size(); ++i) {
    AddSide(Excess(compared[i], common), facts.live[i], &mismatch);
  }
  return mismatch;
}

std::optional<Mismatch> CompareCallOrder(const CommunicatorFacts& facts, Compared compared) {
  return Comparison(facts, compared).Make();
}

std::optional<Mismatch> ComparePeerCalls(const RankView& rank, const RankView& peer, bool sends) {
  const RankView& sender = sends ? rank : peer;
  const RankView& receiver = sends ? peer : rank;
  const PeerCallsSnapshot* const sent = CallsWith(sender, receiver, false);
  const PeerCallsSnapshot* const received = CallsWith(receiver, sender, true);
  if (sent == nullptr || received == nullptr) return std::nullopt;
  const uint64_t both = std::min(sent->calls, received->calls);
  const auto differ = [&](uint64_t number, uint64_t a, uint64_t b) {
    return Mismatch{number == 0 ? Mismatch::By::kPeerTotals : Mismatch::By::kPeerCall,
                    {{{}, {&sender}, Kind{"Send", sent->datatype, a}},
                     {{}, {&receiver}, Kind{"Recv", received->datatype, b}}},
                    {"Send", "Recv"},
                    number == 0 ? both : number};
  };
  std::optional<Mismatch> oldest;
  for (uint64_t number = both; number != 0; --number) {
    const std::optional<uint64_t> a = BytesOf(*sent, number);
    const std::optional<uint64_t> b = BytesOf(*received, number);
    if (!a || !b) break;
    if (*a != *b) oldest = differ(number, *a, *b);
  }
  const std::optional<uint64_t> a = TotalOf(*sent, both);
  const std::optional<uint64_t> b = TotalOf(*received, both);
  if (!oldest && a && b && *a != *b) oldest = differ(0, *a, *b);
  return oldest;
}

bool HasCalledPeer(const RankView& rank, const RankView& peer, bool sends) {
  const PeerCallsSnapshot* const own = CallsWith(rank, peer, !sends);
  const PeerCallsSnapshot* const others = CallsWith(peer, rank, sends);
  return own != nullptr && others != nullptr && others->calls >= own->calls;
}

}  // namespace nccl_pulse
