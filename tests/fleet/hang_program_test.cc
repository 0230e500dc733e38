// Programs that are started in a hang: how often, with what, and what they cannot hold up.
#include "exporter/watch/hang_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exporter/base/json_text.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class HangProgramTest : public testing::Test {
 protected:
  HangProgramTest() { options_.pause = seconds(100); }

  // A shell's lines, in the test's folder.
  void Write(const std::string& lines) {
    options_.path = testing::TempDir() + "program_" +
                    testing::UnitTest::GetInstance()->current_test_info()->name();
    output_ = options_.path + ".out";
    std::ofstream(options_.path) << "#!/bin/sh\n" << lines << "\n";
    chmod(options_.path.c_str(), 0755);
  }

  void Start() {
    options_.log = [this](LogLevel, const std::string& line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      log_.push_back(line);
    };
    program_ = HangProgram::Start(options_);
    ASSERT_NE(program_, nullptr);
  }

  static WatchedJob Job(const std::string& id, double since_s) {
    WatchedJob job;
    job.job_id = job.workload = id;
    job.endpoints = {"http://node-0:9410/"};
    job.findings.state = JobState::kHang;
    job.findings.hangs = {Hang(since_s, {1000})};
    return job;
  }

  static JobHang Hang(double since_s, std::vector<int64_t> users) {
    JobHang hang;
    hang.since_s = since_s;
    hang.report =
        std::make_shared<const HangReport>(HangReport{std::move(users), R"({"sentence":"HANG"})"});
    return hang;
  }

  void See(double now_s, std::vector<WatchedJob> jobs) {
    WatchState state;
    state.round_s = now_s + wall_clock_step_s_;
    state.round_at = At(now_s);
    for (WatchedJob& job : jobs) {
      job.findings.looked_at = state.round_at;
      for (JobHang& hang : job.findings.hangs) {
        hang.lasted_s = now_s - hang.since_s;
        hang.since_s += wall_clock_step_s_;
      }
    }
    state.jobs = std::move(jobs);
    program_->See(state);
  }

  std::vector<std::string> log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return log_;
  }
  // Two lines of the log each.
  void WaitForPrograms(std::size_t count) {
    while (log().size() < 2 * count) usleep(1000);
  }
  std::string output() const {
    std::ifstream file(output_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::chrono::steady_clock::time_point At(double seconds) {
    return std::chrono::steady_clock::time_point() +
           std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  }

  double wall_clock_step_s_ = 0;
  HangProgram::Options options_;
  std::string output_;
  std::unique_ptr<HangProgram> program_;
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_F(HangProgramTest, ReadsTheVerdict) {
  Write("cat > $0.out; echo a; printf 'b\\033c\\n'");
  Start();
  See(110, {Job("4711", 100)});
  WaitForPrograms(1);
  const nlohmann::json input = ParseJson(output());
  EXPECT_EQ(input["job_id"], "4711");
  EXPECT_EQ(input["users"], nlohmann::json({1000}));
  EXPECT_EQ(input["since"], 100.0);
  EXPECT_EQ(input["lasted"], 10.0);
  EXPECT_EQ(input["endpoints"][0], "http://node-0:9410/");
  EXPECT_EQ(input["diagnosis"]["sentence"], "HANG");
  EXPECT_THAT(log(),
              ElementsAre(HasSubstr("starting "), HasSubstr(": done; its last line: b\\033c")));
}

TEST_F(HangProgramTest, StartsOnceForEachHang) {
  Write("echo x >> $0.out");
  Start();
  WatchedJob silenced = Job("4712", 100);
  silenced.findings.hangs.clear();
  See(110, {Job("4711", 100), silenced});
  See(112, {Job("4711", 100)});
  // Endpoints that were silent, and a verdict that dates it a little otherwise: the same hang.
  See(130, {});
  See(600, {Job("4711", 104)});
  WaitForPrograms(1);
  // It went on and hangs again, and so does another job.
  See(700, {Job("4711", 690), Job("4713", 100)});
  WaitForPrograms(3);
  // Within the pause, and after it.
  See(730, {Job("4711", 720)});
  See(801, {Job("4711", 720)});
  WaitForPrograms(4);
  EXPECT_EQ(output(), "x\nx\nx\nx\n");
  EXPECT_THAT(log(), SizeIs(8));
}

TEST_F(HangProgramTest, AWallClockThatStepsDelaysNothing) {
  options_.after = seconds(5);
  for (const double step_s : {-3600.0, 3600.0}) {
    Write("echo x >> $0.out");
    std::remove(output_.c_str());
    log_.clear();
    wall_clock_step_s_ = 0;
    Start();
    See(110, {Job("4711", 100)});
    WaitForPrograms(1);
    wall_clock_step_s_ = step_s;
    See(300, {Job("4711", 298), Job("4712", 298)});
    See(304, {Job("4711", 298), Job("4712", 290)});
    WaitForPrograms(2);
    See(310, {Job("4711", 298)});
    WaitForPrograms(3);
    EXPECT_EQ(output(), "x\nx\nx\n");
  }
}

// Another user's processes carry the job's ID.
TEST_F(HangProgramTest, UsersOfOneJobIdHaveAProgramEach) {
  Write("cat >> $0.out");
  Start();
  WatchedJob job = Job("4711", 100);
  job.findings.hangs.push_back(Hang(90, {65534, -1}));
  See(110, {job});
  WaitForPrograms(2);
  job.findings.hangs.erase(job.findings.hangs.begin());
  See(300, {job});
  WatchedJob other = Job("4712", 100);
  See(300, {other});
  WaitForPrograms(3);
  const std::string said = output();
  EXPECT_THAT(said, HasSubstr("\"users\": [\n    1000\n  ],\n  \"since\": 100.0"));
  EXPECT_THAT(said, HasSubstr("\"users\": [\n    65534,\n    null\n  ],\n  \"since\": 90.0"));
  EXPECT_THAT(log(), SizeIs(6));
}

TEST_F(HangProgramTest, WaitsUntilAHangHasLasted) {
  options_.after = seconds(60);
  Write("echo x >> $0.out");
  Start();
  See(110, {Job("4711", 100)});
  See(161, {Job("4711", 100)});
  WaitForPrograms(1);
  EXPECT_EQ(output(), "x\n");
}

TEST_F(HangProgramTest, IsEndedWhenItsTimeIsOver) {
  options_.patience = seconds(1);
  Write("sleep 1000");
  Start();
  See(110, {Job("4711", 100)});
  WaitForPrograms(1);
  EXPECT_THAT(log().back(), HasSubstr("it was ended after 1000 ms"));
}

TEST_F(HangProgramTest, AFailureIsLogged) {
  Write("echo no such step >&2; exit 3");
  Start();
  See(110, {Job("4711", 100)});
  WaitForPrograms(1);
  EXPECT_THAT(log().back(), HasSubstr("it ended with status 3; its last line: no such step"));
}

TEST_F(HangProgramTest, IsNotWaitedFor) {
  options_.patience = minutes(10);
  Write("echo begun > $0.out; sleep 1000");
  Start();
  std::vector<WatchedJob> jobs;
  for (int i = 0; i < 200; ++i) jobs.push_back(Job(std::to_string(i), 100));
  for (double now_s = 110; now_s < 150; ++now_s) See(now_s, jobs);
  const std::vector<std::string> lines = log();
  EXPECT_EQ(
      std::count_if(lines.begin(), lines.end(),
                    [](const auto& line) { return line.rfind("64 hangs wait for ", 0) == 0; }),
      1);
  while (output().empty()) usleep(1000);
  EXPECT_FALSE(program_->Stop(std::chrono::milliseconds(1)));
}

}  // namespace
}  // namespace nccl_pulse
