// The variables NCCL_PULSE_*: what they do, and what is said of those that are wrong.
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugin/abi/profiler_v3.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

std::vector<std::string> TakeWarnings() {
  std::vector<std::string> warnings;
  for (const std::string& line : TakeLog()) {
    if (line.find("NCCL_PULSE_") != std::string::npos && line.find("using") != std::string::npos) {
      warnings.push_back(line);
    }
  }
  return warnings;
}

TEST(SettingsTest, ABadValueIsNamedInOneWarning) {
  struct Case {
    std::string variable, used;
    std::vector<std::string> bad;
  };
  const std::vector<Case> cases = {
      {"NCCL_PULSE_TIMING", "auto", {"kernal", "1"}},
      {"NCCL_PULSE_LISTEN",
       "127.0.0.1:9410",
       {"9410", "localhost:port", "http://127.0.0.1:9411", "eth0:9411", ":65536", ":-1"}},
      {"NCCL_PULSE_LISTEN", "off", {"unix:pulse.sock"}},
      {"NCCL_PULSE_SERIES_LIMIT",
       "2048",
       {"15", "30001", "-1", "many", "99999999999999999999999", "2e3"}},
      {"NCCL_PULSE_LAST_CALLS", "256", {"-1", "513", "off"}},
      {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND",
       "100",
       {"0", "1000001", "1e3", "one-in-0", "one-in-16777217"}},
      {"NCCL_PULSE_LABELS", "no labels", {"cluster", "1st=a", "__name__=a", "a=1,b-c=2", "=a"}},
      {"NCCL_PULSE_FILE_SD_DIR", "none", {"prometheus/nccl", "./nccl", "~/nccl"}},
      {"NCCL_PULSE_NODE_NAME", "the host's", {"node 17", "$(NODE_NAME)"}},
      {"NCCL_PULSE_HISTOGRAMS",
       "both,network=native",
       {"sparse", "native,nccl_launches_total=native"}},
      {"NCCL_PULSE_DROP_FAMILIES",
       "it without nccl_launches",
       {"nccl_launches_total,nccl_launches"}},
      {"NCCL_PULSE_LOG_LEVEL", "warn", {"debug"}},
      {"NCCL_PULSE_HANG_SECONDS", "10", {"0", "1.5", "86401"}},
      {"NCCL_PULSE_NETWORK_WINDOW", "1", {"0", "0.001", "101", "-1", "nan", "1%", "on"}},
      {"NCCL_PULSE_USER_TAGS", "off", {"0", "65", "-1", "on"}},
      {"NCCL_PULSE_CLOCK",
       "auto",
       {"tsc",
        "a value much longer than anybody would want to read in a line of a job's log, "
        "and then some"}},
  };
  for (const Case& each : cases) {
    for (const std::string& bad : each.bad) {
      RunInChild({{each.variable, bad}}, [&] {
        NcclCommunicator comm(1);
        EXPECT_NE(comm.context(), nullptr);
        EXPECT_NE(comm.event_mask(), 0);
        NcclCommunicator second(2);
        const std::vector<std::string> warnings = TakeWarnings();
        ASSERT_EQ(warnings.size(), 1u) << bad;
        EXPECT_THAT(warnings[0], HasSubstr(each.variable));
        EXPECT_THAT(warnings[0], HasSubstr(bad.substr(0, 64)));
        EXPECT_THAT(warnings[0], HasSubstr("using " + each.used));
        comm.RunWithProxy();
        comm.Finalize();
        // What is used in place of a bad address would open a port.
        if (each.variable == "NCCL_PULSE_LISTEN") return;
        const ProcessSnapshot snapshot = ReadSnapshot();
        EXPECT_EQ(snapshot.timing, "auto");
        EXPECT_EQ(snapshot.series_limit, 2048u);
        EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
      });
    }
  }
}

TEST_WITH_COMM(SettingsTest, GoodValues, {"NCCL_PULSE_TIMING", " Kernel "},
               {"NCCL_PULSE_LISTEN", "OFF"}, {"NCCL_PULSE_SERIES_LIMIT", "16"},
               {"NCCL_PULSE_LABELS", "cluster=a, team = b,"},
               {"NCCL_PULSE_HISTOGRAMS", "Native, nccl_operation_completion_seconds = classic"},
               {"NCCL_PULSE_DROP_FAMILIES", "nccl_launches_total, nccl_timed_bus_bytes_total,"},
               {"NCCL_PULSE_LOG_LEVEL", "OFF"}, {"NCCL_PULSE_CLOCK", "monotonic"}) {
  EXPECT_TRUE(TakeWarnings().empty());
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.timing, "kernel");
  EXPECT_EQ(snapshot.series_limit, 16u);
}

TEST_WITH_COMM(SettingsTest, EmptyValuesAreNoValues, {"NCCL_PULSE_TIMING", ""},
               {"NCCL_PULSE_SERIES_LIMIT", ""}, {"NCCL_PULSE_LABELS", ""},
               {"NCCL_PULSE_LOG_LEVEL", ""}, {"NCCL_PULSE_CLOCK", " "}) {
  EXPECT_TRUE(TakeWarnings().empty());
  EXPECT_EQ(ReadSnapshot().timing, "auto");
}

// A label that is not on the page as it was written is named, with what became of it.
TEST(SettingsTest, LabelsThatAreNotUsedAsTheyStandAreNamed) {
  struct Case {
    std::string value, what, labels;
  };
  const std::string long_value(200, 'v');
  for (const Case& each : {
           Case{"team=a,comm=x", R"("comm=x" is left out: metrics have a label of this name)",
                "team=a"},
           Case{"rank=7,team=a", R"("rank=7" is left out: metrics have a label of this name)",
                "team=a"},
           Case{"Hostname=foo", R"("Hostname=foo" is left out: metrics have a label of this name)",
                ""},
           Case{"le=1", R"("le=1" is left out: metrics have a label of this name)", ""},
           Case{"a=b,a=c", R"("a=c" repeats a label: this value is used)", "a=c"},
           Case{"a=,b=c", R"("a=" has no value, and is left out)", "b=c"},
           Case{"hang_alert=no", R"("hang_alert=no" has no effect)", "hang_alert=no"},
           Case{"a=" + long_value, "is cut to 128 bytes", "a=" + long_value.substr(0, 128)},
       }) {
    RunInChild({{"NCCL_PULSE_LABELS", each.value}}, [&each] {
      NcclCommunicator comm(1);
      std::vector<std::string> warnings;
      for (const std::string& line : TakeLog()) {
        if (line.find("NCCL_PULSE_LABELS") != std::string::npos) warnings.push_back(line);
      }
      ASSERT_EQ(warnings.size(), 1u) << each.value;
      EXPECT_THAT(warnings[0], HasSubstr(each.what));
      EXPECT_EQ(ReadSnapshot().static_labels, each.labels);
    });
  }
}

// As people and files of variables with the line ends of Windows write them.
TEST_WITH_COMM(SettingsTest, HangAlertIsKnownInAnyCase,
               {"NCCL_PULSE_LABELS", "workload=llama,hang_alert=OFF\r"}, {"SLURM_JOB_ID", "4711\r"},
               {"RANK", "0\r"}) {
  EXPECT_TRUE(TakeWarnings().empty());
  EXPECT_EQ(ReadSnapshot().static_labels, "hang_alert=off,workload=llama");
  EXPECT_EQ(ReadSnapshot().job_id, "4711");
  EXPECT_EQ(ReadSnapshot().global_rank, "0");
}

TEST(SettingsTest, NcclsVariablesArePublished) {
  RunInChild({{"NCCL_IB_HCA", "mlx5_0 mlx5_1"},
              {"TORCH_DIST_INIT_BARRIER", "1"},
              {"TORCHCOMM_TIMEOUT_SECONDS", "30"},
              {"TORCHCOMM_RANK", "3"},
              {"TORCH_FR_BUFFER_SIZE", "2000"},
              {"TORCH_NCCL_USE_COMM_NONBLOCKING", "1"},
              {"TORCH_HOME", "/home"},
              {"NCCL_MY_API_KEY", "hunter2"},
              {"NCCL_PULSE_SERIES_LIMIT", "100"},
              {"NCCL_TOPO_FILE", "/" + std::string(60, 'x')}},
             [] {
               NcclCommunicator comm(1);
               const std::string text = ReadSnapshot().nccl_environment;
               EXPECT_THAT(text, HasSubstr("NCCL_IB_HCA=mlx5_0_mlx5_1"));
               EXPECT_THAT(
                   text, HasSubstr(" TORCHCOMM_TIMEOUT_SECONDS=30 TORCH_DIST_INIT_BARRIER=1 "
                                   "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_USE_COMM_NONBLOCKING=1"));
               EXPECT_EQ(text.find("RANK"), std::string::npos) << text;
               EXPECT_EQ(text.find("TORCH_HOME"), std::string::npos) << text;
               EXPECT_THAT(text, HasSubstr("NCCL_MY_API_KEY=(withheld)"));
               EXPECT_THAT(text, HasSubstr("NCCL_TOPO_FILE=/xxx"));
               EXPECT_THAT(text, HasSubstr("x~"));
               EXPECT_EQ(text.find("hunter2"), std::string::npos);
               EXPECT_EQ(text.find("NCCL_PULSE"), std::string::npos);
             });
  Environment many;
  for (int i = 0; i < 100; ++i) many["NCCL_V" + std::to_string(1000 + i)] = "0123456789";
  RunInChild(many, [] {
    NcclCommunicator comm(1);
    const std::string text = ReadSnapshot().nccl_environment;
    EXPECT_LT(text.size(), 1024u);
    EXPECT_EQ(text.substr(text.size() - 15), "=0123456789 ...");
  });
}

TEST_WITH_COMM(SettingsTest, UnknownVariableIsNamed, {"NCCL_PULSE_TIMMING", "kernel"},
               {"NCCL_PULSE_", "x"}) {
  int named = 0;
  for (const std::string& line : TakeLog()) {
    if (line.find("is not a setting") == std::string::npos) continue;
    ++named;
    EXPECT_NE(line.find("NCCL_PULSE_TIMING"), std::string::npos) << "what there is: " << line;
  }
  EXPECT_EQ(named, 2);
}

TEST_IN_CHILD(SettingsTest, ReadOnce) {
  NcclCommunicator first(1);
  setenv("NCCL_PULSE_TIMING", "kernel", 1);
  setenv("NCCL_PULSE_SERIES_LIMIT", "nonsense", 1);
  NcclCommunicator second(2);
  EXPECT_EQ(second.event_mask(), first.event_mask());
  EXPECT_TRUE(TakeWarnings().empty());
  EXPECT_EQ(ReadSnapshot().timing, "auto");
}

// What was asked for and cannot be is said, once; the default asks for nothing.
TEST(SettingsTest, NetworkWindowThatCanNotBe) {
  RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "100"}, {"NCCL_PULSE_TIMING", "off"}}, [] {
    NcclCommunicator comm(1);
    const std::vector<std::string> warnings = TakeWarnings();
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_THAT(warnings[0], HasSubstr("NCCL_PULSE_NETWORK_WINDOW"));
    EXPECT_THAT(warnings[0], HasSubstr("using off"));
    EXPECT_EQ(comm.event_mask() & static_cast<int>(abi::kEventProxyStep), 0);
  });
  RunInChild({{"NCCL_PULSE_TIMING", "off"}}, [] {
    NcclCommunicator comm(1);
    EXPECT_TRUE(TakeWarnings().empty());
  });
}

TEST(SettingsTest, NetworkWindow) {
  RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "OFF"}}, [] {
    NcclCommunicator comm(1);
    EXPECT_TRUE(TakeWarnings().empty());
    EXPECT_EQ(comm.event_mask() & static_cast<int>(abi::kEventProxyStep), 0);
  });
  RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", " 100 "}}, [] {
    NcclCommunicator comm(1);
    EXPECT_TRUE(TakeWarnings().empty());
    EXPECT_NE(comm.event_mask() & static_cast<int>(abi::kEventProxyStep), 0);
    EXPECT_EQ(ReadSnapshot().event_mask, static_cast<uint32_t>(comm.event_mask()));
  });
}

// An NCCL without a logger (v1 to v3): standard error, as much as is asked for.
std::string SaidByV3() {
  return CaptureStandardError([] {
    void* context = nullptr;
    int mask = 0;
    ProfilerOf<abi::v3::Profiler>(3).init(&context, &mask);
  });
}

TEST_IN_CHILD(SettingsTest, WithoutLoggerWarningsGoToStandardError, {"NCCL_PULSE_TIMING", "fast"}) {
  const std::string said = SaidByV3();
  EXPECT_THAT(said, HasSubstr("NCCL_PULSE_TIMING=\"fast\""));
}

TEST_IN_CHILD(SettingsTest, NetworkWindowNeedsNewerNccl, {"NCCL_PULSE_NETWORK_WINDOW", "2"}) {
  const std::string said = SaidByV3();
  EXPECT_THAT(said, HasSubstr("NCCL_PULSE_NETWORK_WINDOW needs NCCL 2.28.3"));
}

TEST_IN_CHILD(SettingsTest, LogLevelOffIsSilent, {"NCCL_PULSE_TIMING", "fast"},
              {"NCCL_PULSE_LOG_LEVEL", "off"}) {
  EXPECT_EQ(SaidByV3(), "");
}

TEST_IN_CHILD(SettingsTest, LogLevelWarnSaysNothingWhenAllIsWell) { EXPECT_EQ(SaidByV3(), ""); }

TEST_IN_CHILD(SettingsTest, LogLevelInfoSaysWhatIsActive, {"NCCL_PULSE_LOG_LEVEL", "info"}) {
  const std::string said = SaidByV3();
  EXPECT_THAT(said, HasSubstr("timing auto"));
  EXPECT_THAT(said, HasSubstr("API v3"));
}

TEST(SettingsTest, RestrictionsAreUnderstood) {
  for (const char* off : {"none", "No", "false", "0", "disabled"}) {
    RunInChild({{"NCCL_PULSE_LISTEN", off}, {"NCCL_PULSE_LOG_LEVEL", "info"}}, [off] {
      const std::string said = SaidByV3();
      EXPECT_NE(said.find("metrics are not served"), std::string::npos) << off << ": " << said;
      EXPECT_EQ(said.find("warning"), std::string::npos) << off << ": " << said;
    });
  }
  for (const char* host : {"localhost", "127.0.0.1"}) {
    RunInChild({{"NCCL_PULSE_LISTEN", host}, {"NCCL_PULSE_LOG_LEVEL", "info"}}, [host] {
      const std::string said = SaidByV3();
      EXPECT_NE(said.find("http://127.0.0.1:94"), std::string::npos) << host << ": " << said;
      EXPECT_EQ(said.find("warning"), std::string::npos) << host << ": " << said;
    });
  }
}

TEST_IN_CHILD(SettingsTest, ClosedStandardErrorHarmsNothing, {"NCCL_PULSE_TIMING", "fast"}) {
  const int before = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  void* context = nullptr;
  int mask = 0;
  ProfilerOf<abi::v3::Profiler>(3).init(&context, &mask);
  dup2(before, STDERR_FILENO);
  EXPECT_NE(context, nullptr);
}

}  // namespace
}  // namespace nccl_pulse
