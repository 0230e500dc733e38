// Owns a file descriptor within one function, and closes it at the end of the block.
//
// Not thread-safe. A negative number means that the file could not be opened; get() returns it.
#ifndef EXPORTER_BASE_DESCRIPTOR_H_
#define EXPORTER_BASE_DESCRIPTOR_H_

#include <unistd.h>

namespace nccl_pulse {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_DESCRIPTOR_H_
