// This describes what configures NCCL in this process, as other ranks' reports are compared with it
// (exporter/diagnosis/facts/environment_differences.h): its version, and the variables of
// exporter/base/nccl_variables.h.
//
//   "NCCL=2.28.9 NCCL_IB_HCA=mlx5_0 NCCL_SOCKET_IFNAME=eth0"
//
// They stand in the order of their names, with a space between them. Left out are NCCL_PULSE_*, which
// configure this library, and torchcomms' rank and size. A value has no spaces ("_"); a long one is cut
// and ends with "~" and a hash of the whole. The value of a name that looks like a secret is
// "(withheld)". What has no room is replaced by "...".
//
// Thread: init, under the runtime's lock (environ). Cost: microseconds, and a dlopen of what is loaded.
#ifndef PLUGIN_RUNTIME_NCCL_ENVIRONMENT_H_
#define PLUGIN_RUNTIME_NCCL_ENVIRONMENT_H_

#include <cstddef>
#include <string>

#include "plugin/abi/common.h"

namespace nccl_pulse {

// "2.28.9" of the NCCL that this function belongs to; "": not known (null; linked in without its symbols).
std::string FindNcclVersion(abi::DebugLogger logger);

// `environment` as in environ(7). At most `most_bytes`.
std::string DescribeNcclEnvironment(char* const* environment, const std::string& version,
                                    std::size_t most_bytes);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_NCCL_ENVIRONMENT_H_
