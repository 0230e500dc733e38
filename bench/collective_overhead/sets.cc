#include "bench/collective_overhead/sets.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace nccl_pulse::overhead {
namespace {

constexpr int kMostFailures = 3;
constexpr double kQuitSeconds = 10;
constexpr double kHurriedQuitSeconds = 2;

}  // namespace

Sets::Sets(const Options& options, Schedule* schedule)
    : options_(options),
      schedule_(schedule),
      groups_(options.configurations.size()),
      reasons_(options.configurations.size()),
      failures_(options.configurations.size()) {}

Error Sets::Start(Launch launch) {
  std::vector<int> members;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (failures_[i] < kMostFailures) members.push_back(static_cast<int>(i));
  }
  members = schedule_->Shuffle(members);
  const auto all = [&](auto step) {
    for (const int member : members) {
      if (!IsAlive(member)) continue;
      const Error error = step(*groups_[Index(member)]);
      if (!error.empty()) Drop(member, error);
    }
  };
  for (const int member : members) {
    reasons_[Index(member)].clear();
    groups_[Index(member)] =
        std::make_unique<Group>(options_, options_.configurations[Index(member)], launch);
  }
  std::vector<Reply> replies;
  all([](Group& group) {
    Error error = group.Spawn();
    Request open{};
    open.kind = RequestKind::kOpen;
    return error.empty() ? group.Send(open) : error;
  });
  all([&](Group& group) {
    Error error = group.Receive(&replies);
    if (error.empty()) {
      machine_.gpu = replies[0].text;
      machine_.nccl_version = replies[0].nccl_version;
      machine_.driver_version = replies[0].driver_version;
    }
    return error;
  });
  all([](Group& group) { return group.SendUniqueIdAndConnect(); });
  all([&](Group& group) { return group.Receive(&replies); });
  return CanCompare() ? Error() : Error(reasons_[0]);
}

void Sets::Quit() {
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group != nullptr) group->AskToQuit();
  }
  for (std::unique_ptr<Group>& group : groups_) {
    if (group != nullptr) group->AwaitQuit(StopRequested() ? kHurriedQuitSeconds : kQuitSeconds);
    group.reset();
  }
}

std::vector<int> Sets::Alive() const {
  std::vector<int> alive;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] != nullptr) alive.push_back(static_cast<int>(i));
  }
  return alive;
}

bool Sets::CanCompare() const {
  const std::vector<int> alive = Alive();
  return std::any_of(alive.begin(), alive.end(), [&](int member) {
    return IsWithoutPlugin(options_.configurations[Index(member)]);
  });
}

Error Sets::Call(int member, const Request& request, std::vector<Reply>* replies) {
  Error error = groups_[Index(member)]->Call(request, replies);
  if (!error.empty()) Drop(member, error);
  return error;
}

void Sets::Drop(int member, const Error& error) {
  const std::size_t i = Index(member);
  ++failures_[i];
  reasons_[i] = failures_[i] < kMostFailures ? error : absl::StrCat("given up after: ", error);
  fprintf(stderr, "%s: %s\n", options_.configurations[i].name.c_str(), reasons_[i].c_str());
  groups_[i].reset();
}

}  // namespace nccl_pulse::overhead
