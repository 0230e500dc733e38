// What `pulse diagnose` says: one sentence with the root, what to do first, who waits, and what was
// not heard; or the same as JSON.
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_JOB_REPORT_H_
#define EXPORTER_FLEET_JOB_REPORT_H_

#include <string>

#include "exporter/fleet/job_look.h"

namespace nccl_pulse {

enum class JobFinding { kNone, kHang, kIncomplete };
constexpr const char* JobFindingName(JobFinding finding) {
  constexpr const char* kNames[] = {"none", "hang", "incomplete"};
  return kNames[static_cast<int>(finding)];
}

// Of what was looked at: the exit status rests on it. health.h has the rule; an endpoint that was not
// heard is no all-clear either.
JobFinding FindingOfJob(const JobLook& look);

// The first line of the text.
std::string JobSentence(const JobLook& look);
std::string JobText(const JobLook& look);
std::string JobJson(const JobLook& look);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_REPORT_H_
