#include "bench/jobs/describe.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nccl_pulse {
namespace {

constexpr const char* kStateNames[] = {
    "mismatched", "failed",   "gone",   "stopped", "left",   "exiting", "behind own work", "alone",
    "in NCCL",    "idle GPU", "behind", "outside", "unseen", "unknown", "inside",          "moving",
};
static_assert(std::size(kStateNames) == static_cast<std::size_t>(ActorState::kMoving) + 1);
constexpr const char* kSureNames[] = {"must", "may", "posted", "unsure", "unless sent", "perhaps"};
constexpr const char* kKindNames[] = {"host", "GPU",    "call",    "event",
                                      "left", "unseen", "unknown", "mismatch"};

std::string NameOf(const std::vector<CommunicatorView>& views, const Actor& actor) {
  std::string name = kKindNames[static_cast<std::size_t>(actor.kind)];
  if (actor.kind == ActorKind::kCall) absl::StrAppend(&name, " ", actor.number);
  if (actor.rank != nullptr && actor.view == kNoView) {
    absl::StrAppend(&name, " of pid ", actor.rank->process->pid, " on ",
                    actor.rank->process->hostname);
  } else if (actor.rank != nullptr) {
    absl::StrAppend(&name, " of rank ", actor.rank->rank(), " (", actor.rank->process->pid, " on ",
                    actor.rank->process->hostname, ")");
  }
  if (actor.view != kNoView) {
    absl::StrAppendFormat(&name, " of %x", views[actor.view].comm_id);
  }
  return name;
}

}  // namespace

std::string DescribeWaits(const std::vector<CommunicatorView>& views, const WaitGraph& graph) {
  std::string text;
  for (const Actor& actor : graph.actors) {
    if (!actor.is_start && actor.arrows.empty() && actor.kind == ActorKind::kHost) continue;
    absl::StrAppend(&text, actor.is_start ? "* " : "  ", NameOf(views, actor), ": ",
                    kStateNames[static_cast<std::size_t>(actor.state)]);
    const char* separator = " -> ";
    for (const Arrow& arrow : actor.arrows) {
      absl::StrAppend(&text, separator, NameOf(views, graph.actors[arrow.to]), " (",
                      kSureNames[static_cast<std::size_t>(arrow.sure)], ")");
      separator = ", ";
    }
    text += "\n";
  }
  return text;
}

}  // namespace nccl_pulse
