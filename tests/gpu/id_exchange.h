// How the ranks of a job learn a communicator's id: through a folder that they share.
#ifndef TESTS_GPU_ID_EXCHANGE_H_
#define TESTS_GPU_ID_EXCHANGE_H_

#include <string>

#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {

// Rank 0: nobody sees the file before it is complete. False when it cannot be written.
bool PublishId(const std::string& path, const NcclUniqueId& id);

// The other ranks: waits for the file. False when it cannot be read.
bool AwaitId(const std::string& path, NcclUniqueId* id);

}  // namespace nccl_pulse

#endif  // TESTS_GPU_ID_EXCHANGE_H_
