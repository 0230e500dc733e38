// A library that exports no profiler: what a replay says about it is tested.
extern "C" __attribute__((visibility("default"))) int NotAProfiler() { return 0; }
