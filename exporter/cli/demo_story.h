// What the demo shows, in which order, and when it goes on: a job in balance, a straggler, a hang,
// and the job again. It goes on by what the endpoint says, so that nobody waits for a machine that
// is fast and nothing is skipped on one that is slow.
//
// Thread: one. Cost: none. Errors: an endpoint that says nothing is waited for, within limits, and
// reported.
#ifndef EXPORTER_CLI_DEMO_STORY_H_
#define EXPORTER_CLI_DEMO_STORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

// The ranks of the story.
inline constexpr int kLateRank = 2;
inline constexpr int kSilentRank = 1;
inline constexpr int kLatePercent = 40;

// What the endpoint says of the job's communicator of all ranks.
struct DemoSight {
  std::string problem;        // why the endpoint did not answer; "": it did
  std::string comm;           // its id; "": not seen
  int straggler = -1;         // -1: none
  std::vector<int> suspects;  // of a hang that is no usual wait
  std::string text;           // the verdict's, of the hang or else of the straggler

  int pid_of_other = 0;  // a process of another job on the same page; 0: none

  // `page`: /api/v1/communicators. `pids`: of the job, in the order of its ranks; the communicator
  // is known by the process that has its rank 0.
  static DemoSight Of(std::string_view page, const std::vector<int>& pids);
};

class DemoStory {
 public:
  enum class Scene { kNotBegun, kBalance, kStraggler, kHang, kGoesOn };

  // What is to be said now, a line each. `now_s`: any clock that does not step.
  std::vector<std::string> Advance(double now_s, const DemoSight& sight);

  // What the job is to do now.
  Scene scene() const { return scene_; }
  uint32_t round() const { return round_; }  // from 0

 private:
  void Enter(Scene scene, double now_s);
  void HearOfSilence(double now_s, const DemoSight& sight, std::vector<std::string>* lines);
  bool IsNamed(const DemoSight& sight) const;
  // Long enough, after it was named; or waited for in vain.
  bool IsOver(double now_s) const;

  Scene scene_ = Scene::kNotBegun;
  uint32_t round_ = 0;
  double since_s_ = -1;   // -1: no look yet
  double silent_s_ = -1;  // since when the endpoint has not answered; -1: it answered
  bool said_silent_ = false;
  double named_s_ = -1;  // -1: not yet
  bool said_other_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_DEMO_STORY_H_
