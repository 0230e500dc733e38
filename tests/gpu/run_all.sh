#!/usr/bin/env bash
# Everything that check.py can check on this machine's GPUs, one run after the other.
#
#   tests/gpu/run_all.sh BINARIES [OUT]
#
# BINARIES holds nccl_program and libnccl-profiler-pulse.so (nothing is built here: a GPU machine
# needs no Bazel); beside this script must be machine.sh, check*.py, nccl_versions.py and ddp.py. OUT, else $OUT, else a new folder under /tmp, gets
#   report.txt    what every run printed, and the table
#   logs.tar.gz   NCCL's logs and the pages of all runs
# NCCL and the CUDA runtime are taken from PULSE_LIBRARIES ("folder:folder") if set, else from
# python3's packages. Takes about four minutes on two GPUs, three on one. A run that fails does not
# stop the others. Exit status: 0 when all were equal.
#
#   PULSE_BUDGET_S   time for all runs together, 390 s; a run that would start later is left out
#   PULSE_RUN_S      time for each, 110 s

# shellcheck source=tests/gpu/machine.sh
source "$(dirname "${BASH_SOURCE[0]}")/machine.sh"
need_arguments 1 "$#"
open_folders gpu "$1" "${2:-}"
trap 'rm -rf "${WORK}"' EXIT
look_around 1 '' nccl_program libnccl-profiler-pulse.so

# run NAME PROGRAM ARGUMENTS...
run() {
  local name="$1" program="$2" begin status result
  shift 2
  begin="${SECONDS}"
  if ((begin > ${PULSE_BUDGET_S:-390})); then
    TABLE+=("$(printf '%-26s left out: no time' "${name}")")
    FAILURES=$((FAILURES + 1))
    return
  fi
  printf '\n==== %s\n' "${name}" | tee -a "${REPORT}"
  # check.py ends its ranks when it is told to end.
  timeout --signal=TERM --kill-after=10 "${PULSE_RUN_S:-110}" \
    python3 "${HERE}/check.py" --library="${WORK}/libnccl-profiler-pulse.so" \
    --program="${program}" --libraries="${LIBRARIES}" --gpus="${GPUS}" \
    --settle=8 --out="${WORK}/logs/${name}" "$@" >"${WORK}/output" 2>&1
  status=$?
  cat "${WORK}/output" >>"${REPORT}"
  grep -E '^(phase|FAILED|RESULT)|DIFFERENT|expected .* found|^ *note|pages read' "${WORK}/output"
  result="$(grep '^RESULT' "${WORK}/output" | sed 's/^RESULT //')"
  case "${status}" in
    0) ;;
    124 | 137) result="TIMEOUT ${result}" ;;
    *) result="${result:-FAILED with status ${status}}" ;;
  esac
  if ((status != 0)); then
    FAILURES=$((FAILURES + 1))
    tail -n 30 "${WORK}/output"
  fi
  TABLE+=("$(printf '%-26s %3d s  %s' "${name}" $((SECONDS - begin)) "${result}")")
}

readonly PROGRAM="${WORK}/nccl_program"
readonly DDP="${HERE}/ddp.py"

# The most telling ones first.
if ((GPUS >= 2)); then
  run program-nvlink-auto "${PROGRAM}" --ranks=2 --mode=nvlink
  run program-network-auto "${PROGRAM}" --ranks=2 --mode=network
  if has_torch; then
    run ddp-nvlink-auto "${DDP}" --ranks=2 --mode=nvlink
    run ddp-network-exit "${DDP}" --ranks=2 --mode=network --phases=explicit,ddp,fsdp,exit
  fi
  run program-nvlink-kernel "${PROGRAM}" --ranks=2 --mode=nvlink --timing=kernel
  run program-network-kernel "${PROGRAM}" --ranks=2 --mode=network --timing=kernel
  run program-nvlink-off "${PROGRAM}" --ranks=2 --mode=nvlink --timing=off \
    --phases=collectives,split,exit
  if has_torch; then
    run ddp-nvlink-kernel "${DDP}" --ranks=2 --mode=nvlink --timing=kernel
  fi
else
  run program-2ranks-auto "${PROGRAM}" --ranks=2 --mode=shared-gpu
  if has_torch; then
    run ddp-2ranks-auto "${DDP}" --ranks=2 --mode=shared-gpu
  fi
  run program-2ranks-kernel "${PROGRAM}" --ranks=2 --mode=shared-gpu --timing=kernel
  run program-4ranks-auto "${PROGRAM}" --ranks=4 --mode=shared-gpu \
    --phases=collectives,p2p,split,recreate,exit
fi

pack_logs
summarize "${#TABLE[@]} runs, ${FAILURES} not equal"
