#!/usr/bin/env bash
# Installs the Debian package with apt into fresh Debian and Ubuntu roots and uses it there.
#
#   ./bazelw build //deploy:packages
#   tests/deploy/package_in_debian.sh bazel-bin/deploy/packages/*.deb [bookworm trixie jammy noble]
#
# Needs root and debootstrap (installed if it is missing); packages come from where this machine's own
# apt has them. Without suites named: all of them, but those that are not there are said and passed over. NCCL_PULSE_ROOTS: a folder in which to keep the fresh roots for the next time. Not
# part of `bazel test`, for both reasons.

set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
readonly HERE

die() {
  printf 'package_in_debian: %s\n' "$@" >&2
  exit 1
}

[[ -f "${1:-}" ]] || die 'usage: package_in_debian.sh PACKAGE.deb [SUITE...]'
((EUID == 0)) || die 'only root can make and enter a root folder'
package="$(readlink -f "$1")"
shift
suites=("$@")
((${#suites[@]})) || suites=(bookworm trixie jammy noble)
readonly named=$#
command -v debootstrap >/dev/null ||
  "${HERE}/../../tools/install_packages" 'debootstrap|makes fresh Debian roots'
command -v ip >/dev/null ||
  "${HERE}/../../tools/install_packages" 'iproute2|sets up the network of the fresh roots'

work="$(mktemp -d)"
readonly work
trap 'rm -rf "${work}"' EXIT
kept="${NCCL_PULSE_ROOTS:-${work}/kept}"
mkdir -p "${kept}"

# Makes ${kept}/SUITE.tar, a fresh root.
make_root() {
  local suite="$1" mirror
  [[ -f "${kept}/${suite}.tar" ]] && return
  while read -r mirror; do
    rm -rf "${work}/fresh"
    if debootstrap --variant=minbase "${suite}" "${work}/fresh" "${mirror}" >"${work}/log" 2>&1; then
      tar -C "${work}/fresh" -cf "${work}/fresh.tar" .
      mv "${work}/fresh.tar" "${kept}/${suite}.tar"
      rm -rf "${work}/fresh"
      return
    fi
  done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
  tail -n 5 "${work}/log" >&2
  if ((named)); then die "none of this machine's package sources has ${suite}"; fi
  printf "%s: not tried, none of this machine's package sources has it\n" "${suite}"
  return 1
}

passed=0
for suite in "${suites[@]}"; do
  make_root "${suite}" || continue
  root="${work}/${suite}"
  mkdir "${root}"
  tar -C "${root}" -xf "${kept}/${suite}.tar"
  cp "${package}" "${root}/nccl-pulse.deb"
  cp "${HERE}/inside_debian.sh" "${root}/inside_debian.sh"
  # Processes, mounts and network of its own: nothing of this machine is met, nothing stays behind.
  unshare --mount --pid --net --fork --kill-child bash -c '
    set -eu
    ip link set lo up
    mount -t proc proc "$1/proc"
    mount -t tmpfs tmp "$1/tmp"
    exec chroot "$1" /bin/bash /inside_debian.sh' bash "${root}" ||
    die "${suite}: failed; see above"
  printf '%s: passed\n' "${suite}"
  passed=$((passed + 1))
  rm -rf "${root}"
done
((passed)) || die "there was no root to try it in"
