// What the job can do to a descriptor of ours: it is then lost, and the job's own is left alone. In
// a child of its own each, because numbers are what this is about.
#include "metrics/shared_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/metrics/child_process.h"

namespace nccl_pulse {
namespace {

int NewSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

void Open(SharedDescriptor* descriptor) {
  const ForkGuard guard;
  descriptor->Set(NewSocket());
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// What the job puts onto `number`, in place of a socket of ours.
std::string Replace(const std::function<int()>& make) {
  return RunInChild([&]() -> std::string {
    SharedDescriptor ours;
    Open(&ours);
    const int number = ours.get();
    if (number < 0 || ours.is_lost()) return "not opened";
    if (SharedDescriptor::FirstLost() != -1) return "lost from the start";
    const int stranger = make();
    if (stranger < 0 || dup2(stranger, number) != number) return "not replaced";
    if (ours.get() != -1 || !ours.is_lost() || !ours.is_open()) return "taken for ours";
    if (SharedDescriptor::FirstLost() != number) return "not told";
    ours.Close();
    if (ours.is_open() || ours.is_lost()) return "not forgotten";
    return IsOpen(number) ? "left alone" : "closed";
  });
}

TEST(SharedDescriptor, LeavesAloneWhatHasItsNumber) {
  EXPECT_EQ(Replace([] { return open("/dev/null", O_RDWR); }), "left alone");
  EXPECT_EQ(Replace(NewSocket), "left alone") << "of the same kind";
  EXPECT_EQ(Replace([] { return eventfd(1, 0); }), "left alone");
  EXPECT_EQ(Replace([] {
              int ends[2];
              return pipe(ends) == 0 ? ends[0] : -1;
            }),
            "left alone");
}

TEST(SharedDescriptor, OneThatTheJobClosedIsLost) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              SharedDescriptor ours;
              Open(&ours);
              const int number = ours.get();
              close(number);
              if (ours.get() != -1 || !ours.is_lost()) return "not noticed";
              // Another one of ours may get the number.
              SharedDescriptor next;
              Open(&next);
              if (next.get() != number) return "another number";
              ours.Close();
              return next.get() == number ? "kept apart" : "the second one was closed";
            }),
            "kept apart");
}

TEST(SharedDescriptor, ClosesItsOwnOnce) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              SharedDescriptor ours;
              Open(&ours);
              const int number = ours.get();
              SharedDescriptor owner;
              owner.TakeFrom(&ours);
              ours.Close();
              if (!IsOpen(number) || owner.get() != number) return "not taken over";
              owner.Close();
              owner.Close();
              return IsOpen(number) ? "open" : "closed";
            }),
            "closed");
}

TEST(SharedDescriptor, ChildOfAForkClosesAllThatAreOpen) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              SharedDescriptor closed, first, moved, last, lost;
              for (SharedDescriptor* each : {&closed, &first, &moved, &last, &lost}) Open(each);
              closed.Close();
              SharedDescriptor owner;
              owner.TakeFrom(&moved);
              const int numbers[] = {first.get(), owner.get(), last.get()};
              const int strangers = lost.get();
              if (dup2(NewSocket(), strangers) != strangers) return "not replaced";
              SharedDescriptor::CloseAllInChild();
              for (const int number : numbers) {
                if (IsOpen(number)) return "left open";
              }
              if (!IsOpen(strangers)) return "closed the job's";
              // The child has descriptors of its own from then on.
              SharedDescriptor own;
              Open(&own);
              SharedDescriptor::CloseAllInChild();
              return own.get() < 0 ? "closed" : "not known in the child";
            }),
            "closed");
}

// The number that a descriptor gets where the process may have so many.
std::string NumberWithLimit(rlim_t limit) {
  return RunInChild([&]() -> std::string {
    const rlimit descriptors{limit, limit};
    if (setrlimit(RLIMIT_NOFILE, &descriptors) != 0) return "no limit";
    SharedDescriptor ours;
    Open(&ours);
    if ((fcntl(ours.get(), F_GETFD) & FD_CLOEXEC) == 0) return "kept by another program";
    return std::to_string(ours.get());
  });
}

TEST(SharedDescriptor, HasAHighNumber) {
  EXPECT_EQ(NumberWithLimit(20000), "4096");
  EXPECT_EQ(NumberWithLimit(1024), "768");
  EXPECT_EQ(NumberWithLimit(64), "48");
}

TEST(SharedDescriptor, TakesWhatThereIs) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              const rlimit descriptors{16, 16};
              if (setrlimit(RLIMIT_NOFILE, &descriptors) != 0) return "no limit";
              while (open("/dev/null", O_RDWR) >= 0) {
              }
              close(5);
              SharedDescriptor ours;
              Open(&ours);
              return std::to_string(ours.get());
            }),
            "5");
  if (getenv("TEST_EMULATOR") != nullptr) return;  // it takes no seccomp filters
  EXPECT_EQ(RunInChild([]() -> std::string {
              if (!Refuse({SYS_fcntl, EPERM, Refusal::When::kArgumentIs, 1, F_DUPFD_CLOEXEC})) {
                return "no seccomp";
              }
              SharedDescriptor ours;
              Open(&ours);
              return ours.get() > 2 ? "opened" : "lost";
            }),
            "opened")
      << "where moving it is not allowed";
}

// The job was started without standard input, output and error, or has closed them.
TEST(SharedDescriptor, IsNeverOneThatTheJobPrintsTo) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              struct stat before {};
              const int kept = dup(1);  // the answer's way
              for (int fd = 0; fd < 3; ++fd) close(fd);
              std::string result = "never";
              {
                const ForkGuard guard;
                const int fd = NewSocket();
                if (fd < 3) result = "for a moment";
                for (int out = 0; out < 3; ++out) {
                  if (write(out, "step", 4) >= 0 || errno != EBADF) result = "something is written";
                }
                SharedDescriptor ours;
                ours.Set(fd);
                if (ours.get() < 3) result = "for good";
              }
              for (int fd = 0; fd < 3; ++fd) {
                if (fstat(fd, &before) == 0) result = "something is left there";
              }
              dup2(kept, 1);
              return result;
            }),
            "never");
}

}  // namespace
}  // namespace nccl_pulse
