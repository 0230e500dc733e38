// Formats a job's verdict in words, for reports, alerts and tables.
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_JOB_WORDS_H_
#define EXPORTER_FLEET_JOB_WORDS_H_

#include <cstdint>
#include <string>

#include "exporter/fleet/job_look.h"

namespace nccl_pulse {

// Returns the first line of a report: rank, place, time and next step; or that nothing is
// suspected, with the unknowns.
std::string Sentence(const JobLook& look);
// Returns "rank 2 (node-17, GPU 2) has not called AllReduce; 3 processes wait", for alerts.
std::string RootText(const JobLook& look, const JobRoot& root);
// Returns the late rank, how late it is, and the next step.
std::string StragglerSentence(const JobStraggler& straggler);
// Returns "global rank 35 on node-4 (GPU 3, pid 1003)".
std::string RankWords(const JobRank& rank);
// Returns what a process waits for: "rank 3", "not known", "rank 1, which may wait elsewhere".
std::string WaitedFor(const JobWait& wait);
// Returns the age of a time, for a table. For dumps, whose own time is not known: the time in UTC.
std::string SinceWords(const JobLook& look, int64_t realtime_ns);
std::string DateWords(int64_t realtime_ns);  // "2026-11-28 03:12:40 UTC"

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_WORDS_H_
