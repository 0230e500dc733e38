// The two demos behind `pulse demo`.
//
// Thread: main thread, before any other exists. They return when Ctrl-C or SIGTERM comes, or
// something fails, with the exit status; problems have been reported then.
#ifndef EXPORTER_CLI_DEMO_H_
#define EXPORTER_CLI_DEMO_H_

namespace nccl_pulse {

// A made-up job on simulated GPUs (plugin/simulation/job.h), which tells a story (demo_story.h).
int RunSimulatedDemo();

// A recorded run, over and over.
int RunRecordedDemo();

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_DEMO_H_
