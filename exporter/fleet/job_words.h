// The sentences of a job's verdict.
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_JOB_WORDS_H_
#define EXPORTER_FLEET_JOB_WORDS_H_

#include <cstdint>
#include <string>

#include "exporter/fleet/job_look.h"

namespace nccl_pulse {

// Who, where, since when, what to do first; or that nothing is suspected, and how sure that is.
std::string Sentence(const JobLook& look);
// "rank 2 (node-17, GPU 2) has not called AllReduce; 3 processes wait", for an alert about its job.
std::string RootText(const JobLook& look, const JobRoot& root);
// Who, how late, what to do first.
std::string StragglerSentence(const JobStraggler& straggler);
// "global rank 35 on node-4 (GPU 3, pid 1003)"
std::string RankWords(const JobRank& rank);
// Of the communicator in which it waits: "rank 3", "rank_not_seen", "who waits elsewhere".
std::string WaitedFor(const JobWait& wait);
// For a table: how long ago; of dumps, which do not tell when they were made, the time itself, in UTC.
std::string SinceWords(const JobLook& look, int64_t realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_WORDS_H_
