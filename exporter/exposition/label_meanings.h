// Lists every label of the catalogue's metrics, with its meaning. catalogue.cc does not compile if
// a label is missing here.
//
// Thread: any; constant data.
#ifndef EXPORTER_EXPOSITION_LABEL_MEANINGS_H_
#define EXPORTER_EXPOSITION_LABEL_MEANINGS_H_

#include <string_view>

namespace nccl_pulse {

struct LabelEntry {
  std::string_view name;
  std::string_view meaning;
};

inline constexpr LabelEntry kLabels[] = {
    {"comm", "the communicator's ID, 16 hexadecimal digits, the same on all its ranks"},
    {"rank", "rank in the communicator"},
    {"pid", "process id, as the process sees it"},
    {"pid_namespace",
     "inode of the PID namespace in which `pid` is valid; absent in the host's initial namespace, "
     "or if not known"},
    {"global_rank", "rank in the job; absent if the launcher sets none"},
    {"local_rank", "rank on the node; absent if the launcher sets none"},
    {"job_id", "the launcher's job ID; absent if it sets none"},
    {"comm_name", "name that the application gave the communicator; absent when it gave none"},
    {"nranks", "ranks in the communicator"},
    {"nnodes", "nodes in the communicator"},
    {"index", "n-th communicator of its process, from 0"},
    {"Hostname",
     "name of the node: the host's, or NCCL_PULSE_NODE_NAME; this and the next three are spelled "
     "as in dcgm-exporter"},
    {"gpu", "the GPU's number in its process"},
    {"UUID", "the GPU's UUID"},
    {"pci_bus_id", "the GPU's PCI bus id"},
    {"op", "operation, by NCCL's own name: AllReduce, AllGather, Send ..."},
    {"size", "size class of the operation: le_4KiB, le_16KiB ... le_1GiB, gt_1GiB, overflow"},
    {"datatype", "element type, by NCCL's own name"},
    {"captured",
     "true when the call was recorded into a CUDA graph; replays are not in this count"},
    {"user_tag",
     "the number that the application gave NCCL with the call (NCCL 2.31.2), or other; present "
     "with NCCL_PULSE_USER_TAGS"},
    {"algo", "algorithm, by NCCL's own name"},
    {"proto", "protocol, by NCCL's own name"},
    {"timing",
     "method of the duration: stream (CUDA events), kernel (GPU timestamps), network (steps of the "
     "network proxy), graph (stamps in CUDA graphs); on the info metric: the setting"},
    {"source", "what ended the operation: proxy (last network operation) or kernel (last channel)"},
    {"reason", "the reason, as a short word"},
    {"error", "the error's name in the CUDA driver API: CUDA_ERROR_ECC_UNCORRECTABLE ..."},
    {"state",
     "the kernel's state of a process: running, stopped (T, by a signal), traced (t, by a "
     "debugger), uninterruptible (D, in a driver or I/O), dumping_core, ended, frozen (by its "
     "cgroup); of a work counter: "
     "see work-counters.md"},
    {"end", "how a process ended: exit (normally, or after it finalized all communicators), lost"},
    {"verdict", "the kind of a hang: see debug-a-hang.md"},
    {"suspect_rank",
     "rank in the communicator that the other ranks wait for; absent if none is known"},
    {"direction", "send or recv, seen from this rank"},
    {"fate", "what became of a captured graph: seen, followed, no_room, incomplete, refused"},
    {"result",
     "result of a command: done, refused (an unknown setting or value), foreign_user (neither its "
     "user nor root), abandoned (the client had left)"},
    {"setting", "a setting, named as its variable is without NCCL_PULSE_"},
    {"callback", "kind of callback: api, launch, operation, proxy, kernel, step"},
    {"version", "the plugin's version"},
    {"nccl_api_version", "version of NCCL's profiler interface that is in use"},
    {"durations", "what times operations: stream, kernel or none"},
    {"completions",
     "source of the end of work: stream (CUDA events behind every launch), proxy (network "
     "operations), kernel (channels) or none"},
    {"event_mask", "event types requested from NCCL, hexadecimal"},
    {"memory", "shared, or private when the system refused shared memory"},
};

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_LABEL_MEANINGS_H_
