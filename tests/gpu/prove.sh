#!/usr/bin/env bash
# All proofs on real GPUs, one after the other, each with a limit: about four minutes on two GPUs.
#
#   tests/gpu/prove.sh BINARIES [OUT] [GPUS]
#
# To copy to the GPU machine (nothing is built there; Python 3.9, NCCL and the CUDA runtime, and
# PyTorch for graphs and ddp must be there):
#   BINARIES/proof_program                  //tests/gpu:proof_program
#   BINARIES/nccl_program                   //tests/gpu:nccl_program
#   BINARIES/libnccl-profiler-pulse.so      //plugin:libnccl-profiler-pulse.so
#   tests/gpu/{prove.sh,machine.sh,prove*.py,check*.py,nccl_versions.py,ddp.py,endpoint.py,
#   work_counters.py,torch_job.py,graph_accuracy.py}, all in one folder
#
# OUT, else $OUT, else a new folder under /tmp, gets report.txt (everything that was printed, and the
# table) and logs.tar.gz (NCCL's logs and pages). GPUS: how many to use, one rank each; else all.
# Exit status: 0 when all parts were right.
#
#   PULSE_PARTS      some of: accuracy straggler coverage capture replays graph-accuracy check
#                    ddp accuracy-network; else all of them, in this order. Only if named:
#                    check-network check-kernel check-network-kernel check-off ddp-exit ddp-kernel
#   PULSE_COMPARE    what accuracy-network compares, stream,kernel; network,kernel where there is
#                    network timing
#   PULSE_LIBRARIES  folders of libnccl and libcudart with colons between, else python3's packages
#   PULSE_SIZES      bytes with commas between, instead of those of each part
#   PULSE_BUDGET_S   time for all, 280 s; a part that could not end in time is left out

# shellcheck source=tests/gpu/machine.sh
source "$(dirname "${BASH_SOURCE[0]}")/machine.sh"
need_arguments 1 "$#"
open_folders proofs "$1" "${2:-}"
trap 'rm -rf "${WORK}"' EXIT
look_around 2 "${3:-}" libnccl-profiler-pulse.so proof_program nccl_program

readonly BUDGET_S="${PULSE_BUDGET_S:-280}"

PARTS=" ${PULSE_PARTS:-accuracy straggler coverage capture replays graph-accuracy check ddp accuracy-network} "
readonly PARTS

wanted() { [[ "${PARTS}" == *" $1 "* ]]; }

# part NAME LIMIT_S SCRIPT PROGRAM ARGUMENTS...
part() {
  local name="$1" limit="$2" script="$3" program="$4" begin="${SECONDS}" status line
  shift 4
  if ! wanted "${name}"; then return; fi
  if ((begin + limit / 2 > BUDGET_S)); then
    TABLE+=("$(printf '%-17s         left out: no time' "${name}")")
    FAILURES=$((FAILURES + 1))
    return
  fi
  if ((begin + limit > BUDGET_S)); then limit=$((BUDGET_S - begin)); fi
  printf '\n==== %s (at %d s, limit %d s)\n' "${name}" "${begin}" "${limit}" | tee -a "${REPORT}"
  # The scripts end their ranks when they are told to end.
  timeout --signal=TERM --kill-after=5 "${limit}" \
    python3 "${HERE}/${script}" "$@" --library="${WORK}/libnccl-profiler-pulse.so" \
    --program="${program}" --libraries="${LIBRARIES}" --gpus="${GPUS}" \
    --out="${WORK}/logs/${name}" >"${WORK}/output" 2>&1
  status=$?
  cat "${WORK}/output" >>"${REPORT}"
  # The differences of check.py are in the report; here its result is enough.
  if [[ "${script}" == check.py ]]; then
    grep -E '^(FAILED|RESULT)|expected .* found' "${WORK}/output" | head -n 20
  else
    cat "${WORK}/output"
  fi
  if ((status != 0)); then
    FAILURES=$((FAILURES + 1))
    tail -n 15 "${WORK}/output" | sed 's/^/    | /'
  fi
  if ((status == 124 || status == 137)); then
    TABLE+=("$(printf '%-17s %4d s  TIMEOUT' "${name}" $((SECONDS - begin)))")
  fi
  while IFS= read -r line; do
    TABLE+=("$(printf '%-17s %4d s  %s' "${name}" $((SECONDS - begin)) "${line#RESULT }")")
  done < <(grep '^RESULT' "${WORK}/output" || echo "NO RESULT, status ${status}")
}

readonly PROOF="${WORK}/proof_program"
RANKS="--ranks=${GPUS}"
readonly RANKS
declare -a SIZES=()
if [[ -n "${PULSE_SIZES:-}" ]]; then SIZES=("--sizes=${PULSE_SIZES}"); fi
readonly SIZES

part accuracy 75 prove.py "${PROOF}" accuracy "${RANKS}" --limit=70 "${SIZES[@]}"
part straggler 35 prove.py "${PROOF}" straggler "${RANKS}" --limit=30
part coverage 40 prove.py "${PROOF}" coverage "${RANKS}" --limit=35 "${SIZES[@]}"
part capture 35 prove.py "${PROOF}" capture "${RANKS}" --limit=30
if has_torch; then
  part replays 90 work_counters.py "" --cases=one,compiled,beside
  part graph-accuracy 150 graph_accuracy.py ""
elif [[ "${PARTS}" == *' replays '* || "${PARTS}" == *' graph-accuracy '* || "${PARTS}" == *' ddp'* ]]; then
  echo 'no PyTorch here: replays, graph-accuracy and ddp are left out' | tee -a "${REPORT}"
  FAILURES=$((FAILURES + 1))
fi
check() { part "$1" 80 check.py "$2" --settle=8 "${@:3}"; }
readonly PROGRAM="${WORK}/nccl_program"
check check "${PROGRAM}" "${RANKS}" --mode=nvlink
check check-network "${PROGRAM}" --ranks=2 --mode=network
check check-kernel "${PROGRAM}" --ranks=2 --mode=nvlink --timing=kernel
check check-network-kernel "${PROGRAM}" --ranks=2 --mode=network --timing=kernel
check check-off "${PROGRAM}" --ranks=2 --mode=nvlink --timing=off --phases=collectives,split,exit
if has_torch; then
  check ddp "${HERE}/ddp.py" "${RANKS}" --mode=nvlink
  check ddp-exit "${HERE}/ddp.py" --ranks=2 --mode=network --phases=explicit,ddp,fsdp,exit
  check ddp-kernel "${HERE}/ddp.py" --ranks=2 --mode=nvlink --timing=kernel
fi
part accuracy-network 60 prove.py "${PROOF}" accuracy "${RANKS}" --mode=network \
  --compare="${PULSE_COMPARE:-stream,kernel}" --sizes=64,4096,32768,262144,2097152,16777216 \
  "${SIZES[@]}" --repeats=60 --limit=55

pack_logs
summarize "${FAILURES} parts not right"
