// DemoStory is the sequence of scenes of `pulse demo`: a balanced job, a straggler, a hang, and the
// recovered job. A scene ends once the endpoint has reported its fault for long enough to be read,
// so the story is fast on a fast machine and skips nothing on a slow one.
//
// Thread: one. Errors: waits for a silent endpoint, within limits, and reports it.
#ifndef EXPORTER_CLI_DEMO_STORY_H_
#define EXPORTER_CLI_DEMO_STORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

inline constexpr int kLateRank = 2;      // straggler
inline constexpr int kSilentRank = 1;    // stops calling in the hang
inline constexpr int kLatePercent = 40;  // lateness, in percent of a step

// The endpoint's last answer about the communicator "dp", which has all of the job's ranks.
struct DemoSight {
  std::string problem;        // why the endpoint did not answer; "": it answered
  std::string comm;           // communicator id; "": not seen
  int straggler = -1;         // -1: none
  std::vector<int> suspects;  // ranks suspected of a hang; empty: no hang
  std::string text;           // verdict on the hang, or without a hang on the straggler

  int pid_of_other = 0;  // process of another job on the same page; 0: none

  // Reads `page`, the endpoint's answer to /api/v1/communicators. `pids`: the job's processes, by
  // rank. The communicator is the one with the process of rank 0.
  static DemoSight Of(std::string_view page, const std::vector<int>& pids);
};

class DemoStory {
 public:
  enum class Scene { kNotBegun, kBalance, kStraggler, kHang, kGoesOn };

  // Call at each poll of the endpoint. Returns the lines to print. `now_s`: any monotonic clock.
  std::vector<std::string> Advance(double now_s, const DemoSight& sight);

  // Returns the current scene, which the job must play.
  Scene scene() const { return scene_; }
  uint32_t round() const { return round_; }  // completed passes through all scenes

 private:
  void Enter(Scene scene, double now_s);
  void HearOfSilence(double now_s, const DemoSight& sight, std::vector<std::string>* lines);
  // True if the endpoint reports what the scene shows: the late or silent rank, or no fault.
  bool IsNamed(const DemoSight& sight) const;
  // True if the scene has lasted long enough, or its fault was reported for long enough, or the
  // wait for that report has timed out.
  bool IsOver(double now_s) const;

  Scene scene_ = Scene::kNotBegun;
  uint32_t round_ = 0;
  double since_s_ = -1;   // start of the scene; -1: nothing polled yet
  double silent_s_ = -1;  // start of the endpoint's silence; -1: it answered
  bool said_silent_ = false;
  double named_s_ = -1;      // when IsNamed was first true in the scene; -1: not yet
  bool said_other_ = false;  // the line on another job was printed
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_DEMO_STORY_H_
