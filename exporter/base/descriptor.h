// Owns a file descriptor of one function, and closes it at the end of its block.
//
// Thread: one. A negative number is a file that could not be opened: get() returns it.
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
