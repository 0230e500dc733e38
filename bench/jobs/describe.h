// DescribeWaits formats the graph of waits as text, for tests and for debugging a finding.
#ifndef BENCH_JOBS_DESCRIBE_H_
#define BENCH_JOBS_DESCRIBE_H_

#include <string>
#include <vector>

#include "exporter/diagnosis/waits/graph.h"

namespace nccl_pulse {

// Returns a line for each actor, such as the host or GPU of a rank, or a call: "* GPU of rank 0
// (4242 on node7) of c0: inside -> call 21 of c0 (must)". A star marks actors that have waited for
// longer than the threshold. The arrow points to what the actor waits for, and "(must)" is how
// sure that is (Arrow::sure). Hosts with neither are omitted.
std::string DescribeWaits(const std::vector<CommunicatorView>& views, const WaitGraph& graph);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_DESCRIBE_H_
