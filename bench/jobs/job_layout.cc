#include "bench/jobs/job_layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace nccl_pulse {
namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;

// The finalizer of SplitMix64.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

struct Place {
  int tensor, data, pipeline;
};

Place PlaceOf(const JobLayout& layout, int rank) {
  return {rank % layout.tensor, rank / layout.tensor % layout.data,
          rank / layout.tensor / layout.data};
}

int RankAt(const JobLayout& layout, Place place) {
  return (place.pipeline * layout.data + place.data) * layout.tensor + place.tensor;
}

// Returns the index of a rank's group among the groups of its kind.
int NumberOf(const JobLayout& layout, GroupKind kind, Place place) {
  switch (kind) {
    case GroupKind::kTensor:
      return place.pipeline * layout.data + place.data;
    case GroupKind::kData:
    case GroupKind::kSecond:
    case GroupKind::kInput:
      return place.pipeline * layout.tensor + place.tensor;
    case GroupKind::kExperts:
      return (place.pipeline * (layout.data / layout.experts) + place.data / layout.experts) *
                 layout.tensor +
             place.tensor;
    case GroupKind::kPipeline:
    case GroupKind::kForward:
    case GroupKind::kBackward:
      return place.data * layout.tensor + place.tensor;
    case GroupKind::kWorld:
      break;
  }
  return 0;
}

bool Has(const JobLayout& layout, GroupKind kind) {
  switch (kind) {
    case GroupKind::kWorld:
      return layout.has_world;
    case GroupKind::kSecond:
      return layout.has_second;
    case GroupKind::kPipeline:
      return !layout.posts_ahead;
    case GroupKind::kForward:
    case GroupKind::kBackward:
      return layout.posts_ahead && layout.pipeline == 2;
    case GroupKind::kInput:
      return layout.posts_ahead && layout.pipeline == 1;
    default:
      return true;
  }
}

int StreamOf(GroupKind kind) {
  if (kind == GroupKind::kBackward) return 2;
  return kind == GroupKind::kForward || kind == GroupKind::kInput ? 1 : 0;
}

class Programmer {
 public:
  Programmer(const JobLayout& layout, const std::vector<JobGroup>& groups, int rank)
      : layout_(layout), groups_(groups), rank_(rank), place_(PlaceOf(layout, rank)) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto& members = groups[i].members;
      if (std::find(members.begin(), members.end(), rank) != members.end()) {
        group_of_[groups[i].kind] = static_cast<int>(i);
      }
    }
  }

  std::vector<JobStep> Evaluate() {
    Add({StepKind::kHostWork, -1, -1, "", 0, 2 * kMs});  // the next batch
    for (int i = 0; i < layout_.microbatches; ++i) Forward();
    Collective(GroupKind::kWorld, "AllReduce", 0, 200 * kUs);
    Add({StepKind::kSync, -1, -1, "", 0, 0});
    return std::move(steps_);
  }

  std::vector<JobStep> Make() {
    Add({StepKind::kHostWork, -1, -1, "", 0, 2 * kMs});  // the next batch
    if (layout_.is_ring || layout_.has_broadcasts_alone) return Plain();
    if (layout_.has_broadcast) {
      Collective(GroupKind::kData, "Broadcast", 3, 200 * kUs);
      steps_.back().root = 0;
    }
    if (layout_.posts_ahead) {
      Overlapped();
    } else {
      OneByOne();
    }
    if (layout_.is_sharded) {
      Collective(GroupKind::kData, "AllReduce", 0, 200 * kUs);  // the gradients' norm
    } else if (layout_.has_lists) {
      List("Reduce");
    } else {
      Collective(GroupKind::kData, "ReduceScatter", 6, 3 * kMs);
    }
    Collective(GroupKind::kSecond, "AllReduce", 5, 2 * kMs);
    Collective(GroupKind::kWorld, "AllReduce", 0, 200 * kUs);
    Add({StepKind::kHostWork, -1, -1, "", 0, 1 * kMs});
    Add({StepKind::kGpuWork, -1, -1, "", 0, 2 * kMs});  // the optimizer
    if (layout_.has_lists) {
      List("Broadcast");
      steps_.back().is_hidden = true;
      Collective(GroupKind::kData, "AllReduce", 0, 200 * kUs);  // a barrier
    } else if (!layout_.is_sharded) {
      Collective(GroupKind::kData, "AllGather", 6, 3 * kMs);
    }
    Add({StepKind::kSync, -1, -1, "", 0, 0});  // the loss is read
    // The root has read the next batch. The others posted theirs long ago.
    if (place_.data == 0) Collective(GroupKind::kInput, "Broadcast", 5, 300 * kUs);
    return std::move(steps_);
  }

 private:
  std::vector<JobStep> Plain() {
    for (int i = 0; i < layout_.layers; ++i) {
      Add({StepKind::kGpuWork, -1, -1, "", 0, 5 * kMs});
      if (layout_.is_ring) {
        const int ranks = layout_.ranks();
        Message(StepKind::kSend, (rank_ + 1) % ranks, GroupKind::kData);
        Message(StepKind::kReceive, (rank_ + ranks - 1) % ranks, GroupKind::kData);
      } else {
        Collective(GroupKind::kData, "Broadcast", 5, 300 * kUs);
        steps_.back().root = 0;
      }
    }
    Add({StepKind::kSync, -1, -1, "", 0, 0});
    return std::move(steps_);
  }

  void OneByOne() {
    const int stages = layout_.pipeline;
    const int warm = layout_.sends_wait
                         ? layout_.microbatches
                         : std::min(layout_.microbatches, stages - place_.pipeline - 1);
    for (int i = 0; i < warm; ++i) Forward();
    for (int i = warm; i < layout_.microbatches; ++i) {
      Forward();
      Backward();
    }
    for (int i = 0; i < warm; ++i) Backward();
  }

  void Overlapped() {
    if (layout_.pipeline == 1) {
      // From the previous step; nothing in the first one.
      Await(0, StreamOf(GroupKind::kInput));
      if (place_.data != 0) Collective(GroupKind::kInput, "Broadcast", 5, 300 * kUs);
      Layers(false);
      return Layers(true);
    }
    const bool is_first = place_.pipeline == 0;
    if (is_first) {
      SendAhead(GroupKind::kForward);
    } else {
      ReceiveAhead(GroupKind::kForward);
    }
    for (int i = 0; i < layout_.microbatches; ++i) {
      const bool is_last = i + 1 == layout_.microbatches;
      if (is_first) {
        ReceiveAhead(GroupKind::kBackward);
        if (!is_last) SendAhead(GroupKind::kForward);
        Await(0, StreamOf(GroupKind::kBackward));
        Layers(true);
      } else {
        Await(0, StreamOf(GroupKind::kForward));
        Layers(false);
        if (!is_last) ReceiveAhead(GroupKind::kForward);
        SendAhead(GroupKind::kBackward);
      }
      if (layout_.syncs_often) Add({StepKind::kSync, -1, -1, "", 0, 0});
    }
  }
  void Await(int stream, int awaited_stream) {
    steps_.push_back({StepKind::kAwait, -1, -1, "", 0, 0, stream, awaited_stream});
  }
  // After the layers that produce the data.
  void SendAhead(GroupKind kind) {
    Layers(kind == GroupKind::kBackward);
    Await(StreamOf(kind), 0);
    Peer(StepKind::kSend, 1 - place_.pipeline, kind);
  }
  void ReceiveAhead(GroupKind kind) { Peer(StepKind::kReceive, 1 - place_.pipeline, kind); }

  void Add(JobStep step) {
    step.work_ns *= layout_.slowdown;
    steps_.push_back(step);
  }

  void Collective(GroupKind kind, const char* op, int size_class, int64_t work_ns) {
    const auto found = group_of_.find(kind);
    if (found == group_of_.end()) return;
    Add({StepKind::kCollective, found->second, -1, op, size_class, work_ns});
  }

  void List(const char* op) {
    Collective(GroupKind::kData, op, 4, 3 * kMs);
    steps_.back().is_list = true;
  }

  void Exchange() {
    const auto found = group_of_.find(GroupKind::kExperts);
    if (found == group_of_.end()) return;
    Add({StepKind::kExchange, found->second, -1, "Send", 4, 300 * kUs});
  }

  void Peer(StepKind kind, int stage, GroupKind group = GroupKind::kPipeline) {
    if (stage < 0 || stage >= layout_.pipeline) return;
    Place peer = place_;
    peer.pipeline = stage;
    Message(kind, RankAt(layout_, peer), group);
  }
  void Message(StepKind kind, int number, GroupKind group) {
    const std::vector<int>& members = groups_[group_of_.at(group)].members;
    const auto found = std::find(members.begin(), members.end(), number);
    Add({kind, group_of_.at(group), number, kind == StepKind::kSend ? "Send" : "Recv", 5, 400 * kUs,
         0, 0, -1, static_cast<int>(found - members.begin())});
  }

  void Layers(bool is_backward) {
    for (int i = 0; i < layout_.layers; ++i) {
      if (layout_.is_sharded) Collective(GroupKind::kData, "AllGather", 4, 200 * kUs);
      Add({StepKind::kHostWork, -1, -1, "", 0, 400 * kUs});
      Add({StepKind::kGpuWork, -1, -1, "", 0, 1500 * kUs});
      Collective(GroupKind::kTensor, "AllGather", 4, 200 * kUs);
      Exchange();
      Add({StepKind::kHostWork, -1, -1, "", 0, 400 * kUs});
      Add({StepKind::kGpuWork, -1, -1, "", 0, 1500 * kUs});
      Exchange();
      Collective(GroupKind::kTensor, "ReduceScatter", 4, 200 * kUs);
      if (layout_.is_sharded && is_backward) {
        Collective(GroupKind::kData, "ReduceScatter", 4, 200 * kUs);
      }
    }
  }

  void Forward() {
    Peer(StepKind::kReceive, place_.pipeline - 1);
    Layers(false);
    Peer(StepKind::kSend, place_.pipeline + 1);
  }
  void Backward() {
    Peer(StepKind::kReceive, place_.pipeline + 1);
    Layers(true);
    Peer(StepKind::kSend, place_.pipeline - 1);
  }

  const JobLayout& layout_;
  const std::vector<JobGroup>& groups_;
  const int rank_;
  const Place place_;
  std::map<GroupKind, int> group_of_;
  std::vector<JobStep> steps_;
};

}  // namespace

std::vector<JobGroup> GroupsOf(const JobLayout& layout, uint64_t seed) {
  std::map<std::pair<GroupKind, int>, std::vector<int>> members;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    for (const GroupKind kind : {GroupKind::kTensor, GroupKind::kData, GroupKind::kSecond,
                                 GroupKind::kExperts, GroupKind::kPipeline, GroupKind::kWorld,
                                 GroupKind::kForward, GroupKind::kBackward, GroupKind::kInput}) {
      if (!Has(layout, kind)) continue;
      members[{kind, NumberOf(layout, kind, PlaceOf(layout, rank))}].push_back(rank);
    }
  }
  std::vector<JobGroup> groups;
  for (auto& [key, ranks] : members) {
    if (ranks.size() < 2) continue;
    std::set<int> nodes;
    for (const int rank : ranks) nodes.insert(layout.NodeOf(rank));
    const uint64_t id = Mix(seed << 32 | static_cast<uint64_t>(key.first) << 24 |
                            static_cast<uint64_t>(key.second));
    groups.push_back(
        {key.first, id, std::move(ranks), static_cast<int>(nodes.size()), StreamOf(key.first)});
  }
  return groups;
}

std::vector<std::vector<JobStep>> ProgramOf(const JobLayout& layout,
                                            const std::vector<JobGroup>& groups, Phase phase) {
  std::vector<std::vector<JobStep>> programs;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    Programmer programmer(layout, groups, rank);
    programs.push_back(phase == Phase::kTraining ? programmer.Make() : programmer.Evaluate());
  }
  return programs;
}

}  // namespace nccl_pulse
