// Opens and reads files that a user or the environment names.
//
// A path can name a FIFO without a writer, a device, or a file on a file system that does not answer
// (NFS whose server is gone). So everything here opens without blocking, takes regular files only,
// and ReadRegularFile reads on a thread of its own, for which it waits kFilePatience.
//
// Thread: any. Errors: a clause for a person, without the path.
#ifndef EXPORTER_BASE_REGULAR_FILE_H_
#define EXPORTER_BASE_REGULAR_FILE_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace nccl_pulse {

inline constexpr std::chrono::seconds kFilePatience{3};

// As open(2) with `flags`, close-on-exec. Returns the descriptor, or -1. No process waits for a FIFO
// here, but an unresponsive file system still blocks the caller.
int OpenRegularFile(const std::string& path, int flags, mode_t mode, std::string* error);

// Reads the whole file. False if it is larger than `limit` bytes, or cannot be read in time.
bool ReadRegularFile(const std::string& path, std::size_t limit, std::string* text,
                     std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_REGULAR_FILE_H_
