#!/usr/bin/env bash
# Hangs and stragglers injected into jobs on real GPUs: whom the product names, and when. At most five
# minutes on two or four GPUs.
#
#   tests/gpu/inject.sh BINARIES [OUT] [GPUS]
#
# To copy to the GPU machine (nothing is built there; Python 3.9, NCCL and the CUDA runtime must be
# there, and PyTorch for stragglers in DDP, else they are made with plain AllReduces):
#   BINARIES/inject_program                 //tests/gpu:inject_program
#   BINARIES/pulse                          //exporter:pulse
#   BINARIES/libnccl-profiler-pulse.so      //plugin:libnccl-profiler-pulse.so
#   tests/gpu/{inject.sh,machine.sh,inject*.py,check*.py,endpoint.py,nccl_versions.py}, all in one folder
#
# OUT, else $OUT, else a new folder under /tmp, gets report.txt (everything that was printed, with what
# `pulse status` said of each case, and the tables), results.jsonl (a line for each case) and
# logs.tar.gz (NCCL's logs, what the ranks printed, and the pages). GPUS: how many to use, one rank
# each; else all. Exit status: 0 when every case was run and right, but for
# those that need more GPUs.
#
#   INJECT_BUDGET_S   time for all, 290 s; cases that could not end in time are left out
#   INJECT_PARTS      hangs, stragglers (both by default) and replays: hangs and stragglers within the replays of CUDA
#                     graphs, cases of a job each, by who serves the page (inject_graphs.py)
#   INJECT_CASES      some of the hangs that inject_cases.py lists, with commas between
#   INJECT_CAPTURES   1: agents take captures; the first of each hang must name the rank, and torchfrtrace reads the calls
#   INJECT_PARALLEL   how many jobs that hang share the GPUs at a time, 4
#   INJECT_DELAYS     milliseconds, 1,50,5,20
#   INJECT_TORCH      0: stragglers without PyTorch
#   INJECT_NODES      numbers of nodes with commas between, none by default: the hangs that inject_nodes.py
#                     lists, on so many nodes, named by `pulse diagnose`; INJECT_PARTS=nodes: nothing else
#   PULSE_LIBRARIES   folders of libnccl and libcudart with colons between, else python3's packages

# shellcheck source=tests/gpu/machine.sh
source "$(dirname "${BASH_SOURCE[0]}")/machine.sh"
need_arguments 1 "$#"
open_folders inject "$1" "${2:-}"
export PULSE_INJECT_PIDS="${WORK}/pids"
: >"${PULSE_INJECT_PIDS}"

# What inject.py could not end any more; each is the leader of a group of its own.
cleanup() {
  local pid
  while read -r pid; do kill -KILL -- "-${pid}" 2>/dev/null; done <"${PULSE_INJECT_PIDS}"
  rm -rf "${WORK}"
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

look_around 2 "${3:-}" inject_program pulse libnccl-profiler-pulse.so
readonly BUDGET_S="${INJECT_BUDGET_S:-290}"

INJECT_NODES="${INJECT_NODES:-}"
if [[ "${INJECT_PARTS:-}" == nodes ]]; then INJECT_NODES="${INJECT_NODES:-2}"; fi
declare -a ARGUMENTS=(--parts="${INJECT_PARTS:-hangs,stragglers}" --delays="${INJECT_DELAYS:-1,50,5,20}")
if [[ -n "${INJECT_CAPTURES:-}" ]]; then ARGUMENTS+=(--captures); fi
if [[ -n "${INJECT_CASES:-}" ]]; then ARGUMENTS+=(--cases="${INJECT_CASES}"); fi
if [[ "${INJECT_TORCH:-1}" != 0 ]] && has_torch; then
  ARGUMENTS+=(--ddp="${HERE}/inject_ddp.py")
else
  echo 'stragglers without PyTorch' | tee -a "${REPORT}"
fi
# The rest of the time is for ending and packing.
readonly LIMIT_S=$((BUDGET_S - SECONDS - 10))
declare -ra COMMON=(--library="${WORK}/libnccl-profiler-pulse.so" --program="${WORK}/inject_program"
  --pulse="${WORK}/pulse" --libraries="${LIBRARIES}" --gpus="${GPUS}" --parallel="${INJECT_PARALLEL:-4}")

# run LIMIT_S SCRIPT OUT ARGUMENTS...
run() {
  local limit=$(($1 > 1 ? $1 : 1)) script="$2" out="$3"
  shift 3
  timeout --signal=TERM --kill-after=20 $((limit + 15)) \
    python3 "${HERE}/${script}" "${COMMON[@]}" --budget="${limit}" --out="${out}" "$@" 2>&1 |
    tee -a "${REPORT}" | grep --line-buffered -v '^    |'
  return "${PIPESTATUS[0]}"
}

STATUS=0
if [[ ",${INJECT_PARTS:-hangs}," == *,hangs,* || ",${INJECT_PARTS:-}," == *,stragglers,* ||
  ",${INJECT_PARTS:-}," == *,replays,* ]]; then
  run "${LIMIT_S}" inject.py "${WORK}/logs" "${ARGUMENTS[@]}" || STATUS=1
fi
for nodes in ${INJECT_NODES//,/ }; do
  run $((BUDGET_S - SECONDS - 10)) inject_nodes.py "${WORK}/logs/nodes-${nodes}" --nodes="${nodes}" ||
    STATUS=1
  cat "${WORK}/logs/nodes-${nodes}/results.jsonl" >>"${WORK}/logs/results.jsonl"
done
readonly STATUS

{
  # What the programs of all jobs used, and what the plugin warned of.
  grep -rhoE 'NCCL version [^ ]+' "${WORK}/logs" | sort | uniq -c
  grep -rhoE 'WARN NCCL Pulse: .*' "${WORK}/logs" | sort | uniq -c | sort -rn | head -n 10
} | tee -a "${REPORT}"
cp "${WORK}/logs/results.jsonl" "${OUTPUT}/" 2>/dev/null
pack_logs
echo "inject.sh: exit status ${STATUS} after ${SECONDS} s" | tee -a "${REPORT}"
exit "${STATUS}"
