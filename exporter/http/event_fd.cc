#include "exporter/http/event_fd.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "exporter/node/monotonic_clock.h"

namespace nccl_pulse {

bool EventFd::Open() {
  descriptor_.Set(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return fd() >= 0;
}

void EventFd::Signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd(), &one, sizeof(one));
}

void EventFd::ClearEvent(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = read(fd, &count, sizeof(count));
}

bool EventFd::Wait(std::chrono::milliseconds patience) const {
  pollfd polled = {fd(), POLLIN, 0};
  const auto give_up = MonotonicNow() + patience;
  int result = 0;
  do {  // again if a signal handler of the job ran
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(give_up - MonotonicNow());
    result = poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  } while (result < 0 && errno == EINTR);
  return result > 0;
}

}  // namespace nccl_pulse
