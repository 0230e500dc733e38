#include "exporter/http/wake.h"

#include <sys/socket.h>

#include <array>

namespace nccl_pulse {

bool Wake::Open() {
  const ForkGuard guard;
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return false;
  }
  reader_.Set(ends[0]);
  writer_.Set(ends[1]);
  return true;
}

void Wake::Signal() const {
  const char any = 0;
  send(writer_.get(), &any, sizeof(any), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Wake::Clear() const {
  char any = 0;
  while (recv(reader_.get(), &any, sizeof(any), MSG_DONTWAIT) > 0) {
  }
}

void Wake::Close() {
  reader_.Close();
  writer_.Close();
}

}  // namespace nccl_pulse
