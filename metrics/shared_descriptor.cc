#include "metrics/shared_descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace nccl_pulse {
namespace {

// Constant initialization and no destructor: a fork may come at any time.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

// Relaxed: an independent cell.
std::atomic<int> g_first_lost{-1};

constexpr int kFirstAllowed = 3;

// Open descriptors of this process. An entry is filled under a ForkGuard, and freed by its owner.
// Relaxed: only the child of a fork reads entries of other owners, see SharedDescriptor::fd_.
struct OpenEntry {
  std::atomic<int> fd{0};  // 0: the entry is free; SharedDescriptor never uses descriptor 0
  FileIdentity identity;
};
OpenEntry g_open[SharedDescriptor::kMostOpen];

// Enters a descriptor into the table. Returns the entry's index, or -1 if all are taken.
int Register(int fd, const FileIdentity& identity) {
  for (int i = 0; i < SharedDescriptor::kMostOpen; ++i) {
    int free = 0;
    if (!g_open[i].fd.compare_exchange_strong(free, -1, std::memory_order_relaxed)) continue;
    g_open[i].identity = identity;
    // Release: a fork in between must not see the number without its identity.
    g_open[i].fd.store(fd, std::memory_order_release);
    return i;
  }
  errno = EMFILE;
  return -1;
}

bool Identify(int fd, FileIdentity* identity) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  *identity = {status.st_dev, status.st_ino};
  return true;
}

// Returns the number from which descriptors are placed. Programs that close all descriptors rarely
// go beyond 4096, and the kernel's table for so many is small. If the process' limit is lower, the
// upper quarter of the limit is used.
int PreferredNumber() {
  constexpr rlim_t kPreferred = 4096;
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return kFirstAllowed;
  const rlim_t upper = descriptors.rlim_cur / 4 * 3;
  return std::max(static_cast<int>(std::min(upper, kPreferred)), kFirstAllowed);
}

// Moves the file to a high number and returns that number, or its old number if the system allows
// no other. Returns -1 if the old number is 0 to 2.
int MoveUp(int fd) {
  const int preferred = PreferredNumber();
  if (fd >= preferred) return fd;
  int up = fcntl(fd, F_DUPFD_CLOEXEC, preferred);
  if (up < 0 && fd >= kFirstAllowed) return fd;
  if (up < 0) up = fcntl(fd, F_DUPFD_CLOEXEC, kFirstAllowed);
  close(fd);
  return up;
}

}  // namespace

int SharedDescriptor::get() const {
  const int fd = fd_.load(std::memory_order_relaxed);
  if (fd < 0) return -1;
  FileIdentity now;
  if (Identify(fd, &now) && now == identity_) return fd;
  int none = -1;
  g_first_lost.compare_exchange_strong(none, fd, std::memory_order_relaxed);
  return -1;
}

void SharedDescriptor::Set(int fd) {
  const int error = errno;
  if (fd >= 0) fd = MoveUp(fd);
  if (fd >= 0 && (!Identify(fd, &identity_) || (entry_ = Register(fd, identity_)) < 0)) {
    close(fd);
    fd = -1;
  }
  fd_.store(fd, std::memory_order_relaxed);
  errno = error;
}

void SharedDescriptor::TakeFrom(SharedDescriptor* other) {
  identity_ = other->identity_;
  entry_ = other->entry_;
  fd_.store(other->fd_.exchange(-1, std::memory_order_relaxed), std::memory_order_relaxed);
}

void SharedDescriptor::Close() {
  const int fd = get();
  if (fd_.exchange(-1, std::memory_order_relaxed) < 0) return;
  g_open[entry_].fd.store(0, std::memory_order_relaxed);
  if (fd >= 0) close(fd);
}

void SharedDescriptor::CloseAllInChild() {
  for (OpenEntry& entry : g_open) {
    const int fd = entry.fd.exchange(0, std::memory_order_relaxed);
    FileIdentity now;
    if (fd > 0 && Identify(fd, &now) && now == entry.identity) close(fd);
  }
}

int SharedDescriptor::FirstLost() { return g_first_lost.load(std::memory_order_relaxed); }

ForkGuard::ForkGuard() {
  const int error = errno;
  Lock();
  FileIdentity unused;
  const auto is_free = [&](int fd) { return !Identify(fd, &unused) && errno == EBADF; };
  while (is_free(0) || is_free(1) || is_free(2)) {
    const int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd >= kFirstAllowed) close(fd);  // the job has just opened one itself
    if (fd < 0 || fd >= kFirstAllowed) break;
    occupied_[fd] = true;
  }
  errno = error;
}

ForkGuard::~ForkGuard() {
  const int error = errno;
  for (int fd = 0; fd < kFirstAllowed; ++fd) {
    // The job may have reused the number.
    if (occupied_[fd] && (fcntl(fd, F_GETFL) & O_PATH) != 0) close(fd);
  }
  Unlock();
  errno = error;
}

void ForkGuard::Lock() { pthread_mutex_lock(&g_mutex); }
void ForkGuard::Unlock() { pthread_mutex_unlock(&g_mutex); }
void ForkGuard::ResetInChild() { g_mutex = PTHREAD_MUTEX_INITIALIZER; }

}  // namespace nccl_pulse
