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
#   tests/gpu/{inject.sh,inject.py,inject_cases.py,inject_job.py,inject_ddp.py,check.py}, all in one
#   folder
#
# OUT, else $OUT, else a new folder under /tmp, gets report.txt (everything that was printed, with what
# `pulse status` said of each case, and the tables), results.jsonl (a line for each case) and
# logs.tar.gz (NCCL's logs, what the ranks printed, and the pages). GPUS: how many to use, one rank
# each; else all. Exit status: 0 when every case was run and right.
#
#   INJECT_BUDGET_S   time for all, 290 s; cases that could not end in time are left out
#   INJECT_PARTS      hangs, stragglers or hangs,stragglers (all)
#   INJECT_CASES      some of the hangs that inject_cases.py lists, with commas between
#   INJECT_PARALLEL   how many jobs that hang share the GPUs at a time, 4
#   INJECT_DELAYS     milliseconds, 1,50,5,20
#   INJECT_TORCH      0: stragglers without PyTorch
#   PULSE_LIBRARIES   folders of libnccl and libcudart with colons between, else python3's packages

set -uo pipefail

if (($# < 1)); then
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
BINARIES="$(cd "$1" && pwd -P)" || exit 2
OUTPUT="${2:-${OUT:-$(mktemp -d /tmp/pulse-inject.XXXXXX)}}"
mkdir -p "${OUTPUT}" || exit 2
OUTPUT="$(cd "${OUTPUT}" && pwd -P)"
WORK="$(mktemp -d /tmp/pulse-inject-work.XXXXXX)"
readonly HERE BINARIES OUTPUT WORK
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PULSE_INJECT_PIDS="${WORK}/pids"
# Multicast can put shared machines' GPUs out of order, and nothing here needs it.
export NCCL_NVLS_ENABLE=0
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

# A copy of its own: the folder may be mounted without permission to execute.
readonly FILES=(inject_program pulse libnccl-profiler-pulse.so)
for file in "${FILES[@]}"; do
  cp "${BINARIES}/${file}" "${WORK}/${file}" || exit 2
  chmod +x "${WORK}/${file}"
done

libraries() {
  python3 - <<'PYTHON'
import importlib.util, glob, os
folders = []
for package in ("nvidia", "torch"):
    spec = importlib.util.find_spec(package)
    for root in (spec.submodule_search_locations or []) if spec else []:
        for name in ("libnccl.so.2", "libcudart.so.13", "libcudart.so.12"):
            for path in sorted(glob.glob(os.path.join(root, "**", name), recursive=True)):
                folders.append(os.path.dirname(path))
print(":".join(dict.fromkeys(folders)))
PYTHON
}

gpus() { nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ' || true; }

LIBRARIES="${PULSE_LIBRARIES:-$(libraries)}"
GPUS="${3:-${PULSE_GPUS:-$(gpus)}}"
readonly LIBRARIES GPUS
readonly BUDGET_S="${INJECT_BUDGET_S:-290}"
readonly REPORT="${OUTPUT}/report.txt"
: >"${REPORT}"

{
  echo "machine: $(uname -sr), $(nproc) CPUs, $(python3 --version)"
  echo "GPUs: ${GPUS}"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c
  echo "libraries: ${LIBRARIES}"
  (cd "${WORK}" && sha256sum "${FILES[@]}")
} | tee -a "${REPORT}"
if ((GPUS < 2)); then
  echo 'inject.sh: two GPUs are needed' | tee -a "${REPORT}" >&2
  exit 2
fi

declare -a ARGUMENTS=(--parts="${INJECT_PARTS:-hangs,stragglers}")
ARGUMENTS+=(--parallel="${INJECT_PARALLEL:-4}" --delays="${INJECT_DELAYS:-1,50,5,20}")
if [[ -n "${INJECT_CASES:-}" ]]; then ARGUMENTS+=(--cases="${INJECT_CASES}"); fi
if [[ "${INJECT_TORCH:-1}" != 0 ]] && python3 -c 'import torch' 2>/dev/null; then
  ARGUMENTS+=(--ddp="${HERE}/inject_ddp.py")
else
  echo 'stragglers without PyTorch' | tee -a "${REPORT}"
fi
# The rest of the time is for ending and packing.
readonly LIMIT_S=$((BUDGET_S - SECONDS - 10))
timeout --signal=TERM --kill-after=20 $((LIMIT_S + 5)) \
  python3 "${HERE}/inject.py" --library="${WORK}/libnccl-profiler-pulse.so" \
  --program="${WORK}/inject_program" --pulse="${WORK}/pulse" --libraries="${LIBRARIES}" \
  --gpus="${GPUS}" --budget="${LIMIT_S}" --out="${WORK}/logs" "${ARGUMENTS[@]}" 2>&1 |
  tee -a "${REPORT}" | grep --line-buffered -v '^    |'
STATUS="${PIPESTATUS[0]}"
readonly STATUS

{
  # What the programs of all jobs used, and what the plugin warned of.
  grep -rhoE 'NCCL version [^ ]+' "${WORK}/logs" | sort | uniq -c
  grep -rhoE 'WARN NCCL Pulse: .*' "${WORK}/logs" | sort | uniq -c | sort -rn | head -n 10
} | tee -a "${REPORT}"
cp "${WORK}/logs/results.jsonl" "${OUTPUT}/" 2>/dev/null
tar -C "${WORK}/logs" -czf "${OUTPUT}/logs.tar.gz" . 2>/dev/null
echo "inject.sh: exit status ${STATUS} after ${SECONDS} s" | tee -a "${REPORT}"
exit "${STATUS}"
