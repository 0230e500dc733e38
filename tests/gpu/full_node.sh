#!/usr/bin/env bash
# All that is to be shown on one full node, 8 GPUs; also on fewer.
#
#   tests/gpu/full_node.sh BINARIES OUT [PART...]
#
# PART: faults (about 9 minutes), cost (about 9 minutes), graphs (at most 9 minutes); else all. Each part writes its reports to OUT/PART as it
# goes, so that a run that is cut short leaves what it had; the table of what was right is at the end.
#
# BINARIES holds what inject.sh and prove.sh need, and for `cost`:
#   BINARIES/collective_overhead            //bench:collective_overhead
#   BINARIES/overhead_report.py             bench/collective_overhead/overhead_report.py
#   BINARIES/libfloor_plugin.so             //bench:libfloor_plugin.so
# The folder of this script must be whole. FULL_NODE_GPUS: how many GPUs, else all;
# FULL_NODE_SECONDS: of each measurement of collective_overhead, 130.

# shellcheck source=tests/gpu/machine.sh
source "$(dirname "${BASH_SOURCE[0]}")/machine.sh"
need_arguments 2 "$#"
BINARIES="$(cd "$1" && pwd -P)" || exit 2
mkdir -p "$2" || exit 2
OUTPUT="$(cd "$2" && pwd -P)"
readonly BINARIES OUTPUT
shift 2
declare -a PARTS=("$@")
if ((${#PARTS[@]} == 0)); then PARTS=(faults cost graphs); fi
GPUS="${FULL_NODE_GPUS:-$(gpus)}"
readonly GPUS
PULSE_LIBRARIES="${PULSE_LIBRARIES:-$(libraries)}"
export PULSE_LIBRARIES
if ((GPUS < 2)); then
  echo "full_node.sh: 2 GPUs are needed, here: ${GPUS}" >&2
  exit 2
fi

# step NAME COMMAND...: its output goes to OUT/PART/NAME.txt.
step() {
  local name="$1" begin="${SECONDS}" status
  shift
  echo "==== ${PART}: ${name}"
  "$@" >"${OUTPUT}/${PART}/${name}.txt" 2>&1
  status=$?
  grep -hE '^(RESULT|.* not right)' "${OUTPUT}/${PART}/${name}.txt" | tail -n 40
  if ((status != 0)); then FAILURES=$((FAILURES + 1)); fi
  TABLE+=("$(printf '%-8s %-16s status %d  %4d s' "${PART}" "${name}" "${status}" $((SECONDS - begin)))")
}

faults() {
  step hangs env INJECT_PARTS=hangs INJECT_PARALLEL=6 INJECT_BUDGET_S=160 \
    "${HERE}/inject.sh" "${BINARIES}" "${OUTPUT}/${PART}/hangs" "${GPUS}"
  # Two nodes of the half, and one rank a node; of two GPUs that is the same.
  local nodes="2,${GPUS}"
  if ((GPUS == 2)); then nodes=2; fi
  step nodes env INJECT_PARTS=nodes INJECT_NODES="${nodes}" INJECT_PARALLEL=5 INJECT_BUDGET_S=190 \
    "${HERE}/inject.sh" "${BINARIES}" "${OUTPUT}/${PART}/nodes" "${GPUS}"
  step stragglers env INJECT_PARTS=stragglers INJECT_DELAYS=5 INJECT_BUDGET_S=200 \
    "${HERE}/inject.sh" "${BINARIES}" "${OUTPUT}/${PART}/stragglers" "${GPUS}"
}

# Faults and proofs within the replays of CUDA graphs.
graphs() {
  step replays env INJECT_PARTS=replays INJECT_PARALLEL=6 INJECT_BUDGET_S=250 \
    "${HERE}/inject.sh" "${BINARIES}" "${OUTPUT}/${PART}/replays" "${GPUS}"
  step prove env PULSE_PARTS='replays graph-accuracy' PULSE_BUDGET_S=230 \
    "${HERE}/prove.sh" "${BINARIES}" "${OUTPUT}/${PART}/prove" "${GPUS}"
}

cost() {
  local work
  work="$(mktemp -d /tmp/pulse-full-node.XXXXXX)"
  cp "${BINARIES}"/{collective_overhead,libfloor_plugin.so,libnccl-profiler-pulse.so,inject_program,pulse} "${work}" &&
    chmod +x "${work}"/*
  step prove env PULSE_PARTS='straggler coverage capture check' PULSE_BUDGET_S=170 \
    "${HERE}/prove.sh" "${BINARIES}" "${OUTPUT}/${PART}/prove" "${GPUS}"
  step load python3 "${HERE}/node_load.py" --library="${work}/libnccl-profiler-pulse.so" \
    --program="${work}/inject_program" --pulse="${work}/pulse" --libraries="${PULSE_LIBRARIES}" \
    --gpus="${GPUS}" --out="${OUTPUT}/${PART}/load"
  local launch
  for launch in processes threads; do
    step "overhead-${launch}" env LD_LIBRARY_PATH="${PULSE_LIBRARIES}" \
      "${work}/collective_overhead" --gpus="${GPUS}" --launch="${launch}" \
      --config="pulse:${work}/libnccl-profiler-pulse.so" \
      --config="kernel:${work}/libnccl-profiler-pulse.so,NCCL_PULSE_TIMING=kernel" \
      --config="floor:${work}/libfloor_plugin.so" --sizes=64,64K,1M,16M --compute=without \
      --seconds="${FULL_NODE_SECONDS:-130}" --samples="${OUTPUT}/${PART}/overhead-${launch}.jsonl"
    step "verdicts-${launch}" python3 "${BINARIES}/overhead_report.py" \
      --csv="${OUTPUT}/${PART}/overhead-${launch}.csv" "${OUTPUT}/${PART}/overhead-${launch}.jsonl"
  done
  rm -rf "${work}"
}

for PART in "${PARTS[@]}"; do
  mkdir -p "${OUTPUT}/${PART}"
  case "${PART}" in
    faults) faults ;;
    cost) cost ;;
    graphs) graphs ;;
    *)
      echo "full_node.sh: no part ${PART}" >&2
      exit 2
      ;;
  esac
done
printf '%s\n' "${TABLE[@]}" | tee "${OUTPUT}/table.txt"
((FAILURES == 0))
