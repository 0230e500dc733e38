# shellcheck shell=bash
# Functions of prove.sh, inject.sh and full_node.sh on a GPU machine.
#
# Sets HERE, BINARIES, OUTPUT, WORK, REPORT, LIBRARIES and GPUS, and counts FAILURES beside the lines of TABLE.

set -uo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
readonly HERE
declare -a TABLE=()
FAILURES=0
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Multicast can put shared machines' GPUs out of order, and nothing here needs it.
export NCCL_NVLS_ENABLE=0

# need_arguments LEAST COUNT: with fewer, prints the comment at the head of the script that was called, and ends it.
need_arguments() {
  if (($2 >= $1)); then return; fi
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

has_torch() { python3 -c 'import torch' 2>/dev/null; }

# NCCL's logs, and the pages.
pack_logs() { tar -C "${WORK}/logs" -czf "${OUTPUT}/logs.tar.gz" . 2>/dev/null; }

# summarize WORDS: the table below them; fails if anything has failed.
summarize() {
  printf '%s\n' "" "==== summary: $1, ${SECONDS} s" "${TABLE[@]}" | tee -a "${REPORT}"
  ((FAILURES == 0))
}

# Folders of libnccl and libcudart in python3's packages, with colons between.
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

# open_folders NAME BINARIES [OUT]: where the script's files come from and go to. Ends the script when
# they cannot be had; the caller removes WORK.
open_folders() {
  BINARIES="$(cd "$2" && pwd -P)" || exit 2
  OUTPUT="${3:-${OUT:-$(mktemp -d "/tmp/pulse-$1.XXXXXX")}}"
  mkdir -p "${OUTPUT}" || exit 2
  OUTPUT="$(cd "${OUTPUT}" && pwd -P)"
  WORK="$(mktemp -d "/tmp/pulse-$1-work.XXXXXX")"
  REPORT="${OUTPUT}/report.txt"
  readonly BINARIES OUTPUT WORK REPORT
}

# look_around LEAST_GPUS "GPUS or empty" FILE...: copies the binaries, says on what all this runs, and
# ends the script on a machine with too few GPUs.
look_around() {
  local least="$1" file
  GPUS="${2:-${PULSE_GPUS:-$(gpus)}}"
  LIBRARIES="${PULSE_LIBRARIES:-$(libraries)}"
  readonly GPUS LIBRARIES
  shift 2
  # Copies of its own: the folder may be mounted without permission to execute.
  for file in "$@"; do
    cp "${BINARIES}/${file}" "${WORK}/${file}" || exit 2
    chmod +x "${WORK}/${file}"
  done
  {
    echo "machine: $(uname -sr), $(nproc) CPUs, $(python3 --version)"
    echo "GPUs: ${GPUS}"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c
    echo "libraries: ${LIBRARIES}"
    (cd "${WORK}" && sha256sum "$@")
  } | tee "${REPORT}"
  if ((GPUS < least)); then
    echo "$(basename "$0"): GPUs needed: ${least}, here: ${GPUS}" | tee -a "${REPORT}" >&2
    exit 2
  fi
}
