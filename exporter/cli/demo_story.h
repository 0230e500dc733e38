// DemoStory is the sequence of the demo's scenes: a balanced job, a straggler, a hang, and the job
// again. The endpoint's answers advance it, so it takes no longer than needed on a fast machine,
// and skips nothing on a slow one.
//
// Thread: one. Cost: none. Errors: waits for a silent endpoint, within limits, and reports it.
#ifndef EXPORTER_CLI_DEMO_STORY_H_
#define EXPORTER_CLI_DEMO_STORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

// Ranks with a role in the story.
inline constexpr int kLateRank = 2;
inline constexpr int kSilentRank = 1;
inline constexpr int kLatePercent = 40;

// The endpoint's view of the communicator with all of the job's ranks.
struct DemoSight {
  std::string problem;        // why the endpoint did not answer; "": it answered
  std::string comm;           // communicator id; "": not seen
  int straggler = -1;         // -1: none
  std::vector<int> suspects;  // of an unusually long wait
  std::string text;           // verdict on the hang, or else on the straggler

  int pid_of_other = 0;  // process of another job on the same page; 0: none

  // `page`: /api/v1/communicators. `pids`: of the job, by rank. Identifies the communicator by the
  // process of its rank 0.
  static DemoSight Of(std::string_view page, const std::vector<int>& pids);
};

class DemoStory {
 public:
  enum class Scene { kNotBegun, kBalance, kStraggler, kHang, kGoesOn };

  // Returns the lines to print now. `now_s`: any monotonic clock.
  std::vector<std::string> Advance(double now_s, const DemoSight& sight);

  // Returns what the job must do now.
  Scene scene() const { return scene_; }
  uint32_t round() const { return round_; }  // from 0

 private:
  void Enter(Scene scene, double now_s);
  void HearOfSilence(double now_s, const DemoSight& sight, std::vector<std::string>* lines);
  bool IsNamed(const DemoSight& sight) const;
  // True if the scene was named for long enough, or its timeout has passed.
  bool IsOver(double now_s) const;

  Scene scene_ = Scene::kNotBegun;
  uint32_t round_ = 0;
  double since_s_ = -1;   // -1: nothing polled yet
  double silent_s_ = -1;  // start of the endpoint's silence; -1: it answered
  bool said_silent_ = false;
  double named_s_ = -1;  // -1: not named yet
  bool said_other_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_DEMO_STORY_H_
