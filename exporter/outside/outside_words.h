// Sentences about jobs that are diagnosed without the plugin. They state the counts and their
// source, and no conclusion beyond them.
//
// Thread: any, no state.
#ifndef EXPORTER_OUTSIDE_OUTSIDE_WORDS_H_
#define EXPORTER_OUTSIDE_OUTSIDE_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/diagnosis/job_verdict.h"
#include "exporter/outside/job_snapshots.h"

namespace nccl_pulse::outside {

// Returns sentences on a root's ranks (those named as the cause, else those that may be at fault):
// which they are, why, and what their GPUs do. `between_ns`: time between RAS' two answers.
std::string RootWords(const JobRoot& root, const Job& job, int64_t between_ns);

// Returns sentences for a job in which no rank is named.
std::string SummaryWords(const Job& job, int64_t between_ns);

// Returns the facts that `verdict` does not use, a sentence each: ranks that are stopped, gone or
// silent, report an error, left a communicator before others, or have launched fewer collectives.
std::vector<std::string> NoteWords(const Job& job, const JobVerdict& verdict);

// Returns a sentence for each known fault of this release of NCCL ("2.28.9"), with the source.
// The sentences are hints: it isn't known whether the job has met the fault. `has_nodes`: the job
// runs on several nodes.
std::vector<std::string> KnownFaults(std::string_view nccl_version, bool has_nodes);

// Returns "From NCCL's RAS (2.28.9), NVML and /proc. ..."
std::string SourceWords(const Job& job, const std::string& nccl_version, bool has_nvml);

std::string Grouped(uint64_t number);  // "13,990"

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_OUTSIDE_WORDS_H_
