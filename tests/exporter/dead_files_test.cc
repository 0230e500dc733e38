// Files that a user names and that do not answer: nobody waits for them.
//
// This program's open(2), lstat(2) and unlink(2) stand in for a file system whose server is gone:
// below a folder named dead they do not return until the test lets them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "exporter/base/files.h"
#include "exporter/node/announcer.h"
#include "exporter/node/node.h"
#include "metrics/shared_descriptor.h"

namespace {

std::atomic<bool> answers{false};
std::atomic<int> waited{0};

// Returns true if `path` is on the dead file system, once the test has let it answer.
bool IsDead(const char* path) {
  if (std::strstr(path, "/dead/") == nullptr) return false;
  ++waited;
  while (!answers) usleep(1000);
  return true;
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (IsDead(path) && std::strncmp(path, "/dead/", 6) == 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int lstat(const char* path, struct stat* status) {
  IsDead(path);
  return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

extern "C" int unlink(const char* path) {
  IsDead(path);
  return unlinkat(AT_FDCWD, path, 0);
}

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

class DeadFilesTest : public testing::Test {
 protected:
  DeadFilesTest() { answers = false; }
  // What still waits ends.
  ~DeadFilesTest() override { answers = true; }

  std::string Path(const std::string& name) const {
    return testing::TempDir() + "dead_files_" + std::to_string(getpid()) + "_" + name;
  }
  std::string ErrorOf(const std::string& path, std::size_t limit = 100) {
    std::string error;
    text_.clear();
    const bool is_read = ReadRegularFile(path, limit, &text_, &error);
    EXPECT_EQ(is_read, error.empty());
    return error;
  }

  std::string text_;
};

TEST_F(DeadFilesTest, ReadsRegularFilesAlone) {
  std::ofstream(Path("file")) << std::string(100, 'x');
  EXPECT_EQ(ErrorOf(Path("file")), "");
  EXPECT_EQ(text_, std::string(100, 'x'));
  EXPECT_EQ(ErrorOf(Path("file"), 99), "it is larger than 99 bytes");
  EXPECT_EQ(text_, "");
  EXPECT_EQ(ErrorOf("/nowhere/file"), "No such file or directory");
  EXPECT_EQ(ErrorOf("/"), "it is a folder");
  EXPECT_EQ(ErrorOf("/dev/zero"), "it is not a regular file");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(Path("fifo")), "it is not a regular file");
  std::string error;
  EXPECT_EQ(OpenRegularFile(Path("fifo"), O_WRONLY | O_CREAT, 0600, &error), -1);
  // Of a link to a file, as Kubernetes mounts them.
  ASSERT_EQ(symlink(Path("file").c_str(), Path("link").c_str()), 0);
  EXPECT_EQ(ErrorOf(Path("link")), "");
}

TEST_F(DeadFilesTest, AFileThatDoesNotAnswerIsGivenUp) {
  std::vector<std::thread> readers;
  std::atomic<int> given_up{0};
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&given_up] {
      std::string text;
      std::string error;
      EXPECT_FALSE(ReadRegularFile("/dead/targets.json", 100, &text, &error));
      EXPECT_THAT(error, HasSubstr("did not answer within 3 s"));
      ++given_up;
    });
  }
  for (std::thread& each : readers) each.join();
  EXPECT_EQ(given_up, 4);
  // They still wait: no more threads are spent on it.
  EXPECT_THAT(ErrorOf("/dead/targets.json"), HasSubstr("other files do not answer"));
  EXPECT_EQ(waited, 4);
  answers = true;
  while (!ErrorOf("/etc/passwd", 1 << 20).empty()) usleep(1000);
}

TEST_F(DeadFilesTest, AFolderThatDoesNotAnswerHoldsUpNobody) {
  waited = 0;
  {
    Announcer announcer("/dead/folder");
    EXPECT_THAT(announcer.Announce("127.0.0.1:9410", 9410, false), HasSubstr("does not answer"));
    EXPECT_EQ(waited, 1);
    announcer.KeepUp(true);
    announcer.Withdraw();
    EXPECT_EQ(waited, 1);
  }
  // In a job's init: the process serves.
  NodeOptions options;
  options.listen_address = "127.0.0.1:0";
  options.service_directory = "/dead/folder";
  std::vector<std::string> log;
  Node node(options, [&log](LogLevel, const std::string& line) { log.push_back(line); });
  std::string error;
  ASSERT_TRUE(node.Open(&error)) << error;
  EXPECT_TRUE(node.is_serving());
  EXPECT_THAT(log, testing::ElementsAre(HasSubstr("/dead/folder does not answer")));
  node.Close();
}

TEST_F(DeadFilesTest, AUnixSocketOnADeadFileSystemHoldsUpNobody) {
  NodeOptions options;
  options.listen_address = "unix:/dead/socket";
  Node refused(options, [](LogLevel, const std::string&) {});
  std::string error;
  EXPECT_FALSE(refused.Open(&error));
  EXPECT_EQ(error, "cannot listen on unix:/dead/socket: Connection timed out");

  // The server goes while we serve.
  answers = true;
  std::string folder = "/tmp/XXXXXX";  // a socket's path is short
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(mkdir((folder + "/dead").c_str(), 0700), 0);
  options.listen_address = "unix:" + folder + "/dead/s";
  Node serving(options, [](LogLevel, const std::string&) {});
  ASSERT_TRUE(serving.Open(&error)) << error;
  answers = false;
  serving.Close();
}

TEST_F(DeadFilesTest, AnnouncesAndWithdraws) {
  const std::string folder = Path("folder");
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  Announcer announcer(folder);
  EXPECT_EQ(announcer.Announce("127.0.0.1:9410", 9410, false), "");
  announcer.Withdraw();
  EXPECT_EQ(announcer.Announce("127.0.0.1:9411", 9411, false), "");
  announcer.Withdraw();
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "a file is left there";
  EXPECT_THAT(announcer.Announce("127.0.0.1:9412", 9412, false), HasSubstr("cannot write "));
  EXPECT_EQ(announcer.Announce("unix:/run/pulse", 0, false), "");
}

}  // namespace
}  // namespace nccl_pulse
