#include "exporter/flight_recorder/entries.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace nccl_pulse::flight_recorder {
namespace {

using Entries = std::vector<const Entry*>;

uint64_t NumberOf(const Entry& call) {
  return call.is_point_to_point ? call.point_to_point : call.collective;
}

// Returns the kind of coalesced calls.
uint32_t MergeKinds(const Entries& members, const Entry* closing, Common* common) {
  if (closing != nullptr && common->KindOf(closing->kind).op != kUnknownCollective) {
    return closing->kind;
  }
  Common::Kind merged{kUnknownCollective, "", 0};
  for (const Entry* member : members) {
    const Common::Kind& kind = common->KindOf(member->kind);
    if (member == members.front()) {
      merged = kind;
      continue;
    }
    if (kind.op != merged.op) return common->KindIndex({kUnknownCollective, "", 0});
    const bool is_sized = kind.bytes != 0 && merged.bytes != 0 &&
                          !__builtin_add_overflow(merged.bytes, kind.bytes, &merged.bytes);
    if (!is_sized) merged.bytes = 0;
  }
  return common->KindIndex(std::move(merged));
}

// Entries that share a number were coalesced: they have no state of their own. In a dump without
// completed calls, a completed group lacks its last entry.
class Folder {
 public:
  Folder(bool is_only_open, Common* common, Membership* membership)
      : is_only_open_(is_only_open), common_(common), membership_(*membership) {}

  void AddAll(const std::vector<Entry>& all) {
    Entries collectives;
    Entries others;
    for (const Entry& entry : all) {
      (entry.is_point_to_point ? others : collectives).push_back(&entry);
      membership_.last_collective = std::max(membership_.last_collective, entry.collective);
      membership_.last_completion_ns = std::max(membership_.last_completion_ns, entry.completed_ns);
    }
    ForEachNumber(&collectives, [this](const Entries& members, const Entry* closing) {
      AddCollective(members, closing);
    });
    ForEachNumber(&others, [this](const Entries& members, const Entry* closing) {
      AddPeers(members, closing);
    });
    if (is_any_unclosed_) membership_.are_peers_known = false;
    DropCompleted();
  }

 private:
  template <typename Add>
  static void ForEachNumber(Entries* entries, const Add& add) {
    std::stable_sort(entries->begin(), entries->end(),
                     [](const Entry* a, const Entry* b) { return NumberOf(*a) < NumberOf(*b); });
    for (auto begin = entries->begin(); begin != entries->end();) {
      const auto end = std::find_if(begin, entries->end(), [begin](const Entry* entry) {
        return NumberOf(*entry) != NumberOf(**begin);
      });
      Entries members;
      const Entry* closing = nullptr;
      for (auto it = begin; it != end; ++it) {
        if ((*it)->is_closing) {
          closing = *it;
        } else {
          members.push_back(*it);
        }
      }
      add(members, closing);
      begin = end;
    }
  }

  // Returns the state of entries with one number; nothing if not known.
  std::optional<State> StateOf(const Entries& members, const Entry* closing) const {
    if (closing != nullptr) return closing->state;
    if (members.size() == 1) return members.front()->state;
    if (is_only_open_) return std::nullopt;
    return State::kScheduled;  // more may be called
  }

  void AddCollective(const Entries& members, const Entry* closing) {
    const Entry* const first = members.empty() ? closing : members.front();
    if (first == nullptr) return;
    // If unknown, their last entry has completed.
    const State state = StateOf(members, closing).value_or(State::kCompleted);
    membership_.collectives.push_back(
        {first->collective, MergeKinds(members, closing, common_), state, first->created_ns});
  }

  void AddPeers(const Entries& members, const Entry* closing) {
    const std::optional<State> state = StateOf(members, closing);
    // A single entry may then also have been coalesced.
    if (!state) is_any_unclosed_ = true;
    if (!state || *state == State::kCompleted) return;
    for (const Entry* member : members) {
      if (member->peer < 0) {
        membership_.are_peers_known = false;
        continue;
      }
      OpenPeer& peer = membership_.peers[member->peer];
      if (peer.kinds.empty()) {
        peer.oldest_state = *state;
        peer.oldest_ns = member->created_ns;
      }
      peer.newest_ns = std::max(peer.newest_ns, member->created_ns);
      peer.kinds.push_back(member->kind);
    }
  }

  // Drops all but the last completed calls, which suffice to know which call the rank completed
  // last. The kinds of dropped calls are in the dumps of ranks that have not completed them.
  void DropCompleted() {
    constexpr std::size_t kMostCompleted = 16;
    std::vector<Collective>& all = membership_.collectives;
    auto left = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), IsCompleted));
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&left](const Collective& each) {
                               return IsCompleted(each) && left-- > kMostCompleted;
                             }),
              all.end());
    all.shrink_to_fit();
  }

  static bool IsCompleted(const Collective& each) { return each.state == State::kCompleted; }

  const bool is_only_open_;
  Common* const common_;
  Membership& membership_;
  bool is_any_unclosed_ = false;
};

}  // namespace

void AddEntries(const std::vector<Entry>& entries, bool is_only_open, Common* common,
                Membership* membership) {
  Folder(is_only_open, common, membership).AddAll(entries);
}

}  // namespace nccl_pulse::flight_recorder
