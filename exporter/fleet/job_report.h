// Renders the report of `pulse diagnose`, as text or JSON: the verdict in a sentence, suspects,
// waiting processes, and endpoints that did not answer.
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

// Returns the finding that decides the exit status: kHang for a hang that is not usual; else
// kIncomplete if an endpoint did not answer, or by the job's health (health.h).
JobFinding FindingOfJob(const JobLook& look);

// Returns the first line of JobText.
std::string JobSentence(const JobLook& look);
std::string JobText(const JobLook& look);
std::string JobJson(const JobLook& look);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_REPORT_H_
