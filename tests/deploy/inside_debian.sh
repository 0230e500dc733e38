#!/bin/bash
# What package_in_debian.sh runs as root in a fresh Debian root: only what a minimal Debian has.

set -euo pipefail

readonly PORT=9410

fail() {
  printf 'FAILED: %s\n' "$@" >&2
  [[ -s /tmp/agent.log ]] && cat /tmp/agent.log >&2
  exit 1
}

# GET $1 from the port $2, the body on standard output.
get() {
  local line
  exec 3<>"/dev/tcp/127.0.0.1/$2" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&3
  read -r -t 10 line <&3 || return 1
  [[ "${line}" == *' 200 '* ]] || return 1
  while read -r -t 10 line <&3 && [[ "${line}" != $'\r' ]]; do :; done
  timeout 10 cat <&3
  exec 3>&-
}

# Waits for `$@` to succeed; a minute is long enough for anything here.
await() {
  local i
  for ((i = 0; i < 600; i++)); do
    "$@" 2>/dev/null && return
    sleep 0.1
  done
  fail "in vain: $*"
}

healthy() { get /healthz "${PORT}" >/dev/null; }

# All four ranks of the recorded run are on the page.
four_ranks() {
  local page
  page="$(get /metrics "$1")" || return 1
  [[ "$(grep -o '^nccl_operations_total{.*' <<<"${page}" | grep -o '[{,]rank="[0-3]"' |
    sort -u | wc -l)" == 4 ]]
}

# A user without any right, as jobs are; and root without capabilities, as the unit file has it.
readonly -a AS_USER=(setpriv --reuid=4242 --regid=4242 --clear-groups --no-new-privs)
readonly -a AS_BARE_ROOT=(setpriv --bounding-set=-all --inh-caps=-all --no-new-privs)

# Sends signal $1 to our process $2 and waits for its end; its exit status.
stop() {
  kill -"$1" "$2"
  gone() { ! kill -0 "$1"; }
  await gone "$2"
  wait "$2"
}

cat /etc/debian_version
[[ ! -e /usr/bin/pulse ]] || fail 'this root is not fresh'
# There is no network here: what the package needs is in the smallest of roots.
DEBIAN_FRONTEND=noninteractive apt-get install --yes /nccl-pulse.deb >/tmp/apt.log 2>&1 || fail "$(cat /tmp/apt.log)"
dpkg --verify nccl-pulse
version="$(dpkg-query --show --showformat='${Version}' nccl-pulse)"

echo 'the program starts'
[[ "$(pulse --version)" == "pulse ${version}" ]] || fail "pulse --version: $(pulse --version)"
pulse --help | grep -q '^  agent ' || fail 'pulse --help names no agent'

echo 'bash completes its commands'
complete_status() {
  # shellcheck disable=SC1091
  source /usr/share/bash-completion/completions/pulse
  COMP_WORDS=(pulse sta) COMP_CWORD=1 COMPREPLY=()
  _pulse
  [[ "${COMPREPLY[*]}" == status ]]
}
(complete_status) || fail 'pulse sta<TAB>'
gzip -dc /usr/share/man/man1/pulse-status.1.gz | grep -q '^[.]SH EXIT STATUS' || fail 'no manual page'

echo 'the dynamic linker finds the library by its names'
for name in libnccl-profiler-pulse.so librccl-profiler-pulse.so; do
  perl -MDynaLoader -e '
    my $library = DynaLoader::dl_load_file($ARGV[0]) or die DynaLoader::dl_error(), "\n";
    DynaLoader::dl_find_symbol($library, "ncclProfiler_v7") or die DynaLoader::dl_error(), "\n";
  ' "${name}" || fail "dlopen(\"${name}\")"
done

echo 'and finds no driver: the simulated one is for the demo alone'
! ldconfig -p | grep libcuda || fail 'ldconfig took the simulated GPU for a driver'

echo 'the demo finds the library by the name alone, and serves itself'
"${AS_USER[@]}" pulse demo --library=libnccl-profiler-pulse.so >/tmp/demo.log 2>&1 &
demo=$!
await four_ranks "${PORT}"

echo 'the agent takes over from a user'"'"'s job, with no capability'
"${AS_BARE_ROOT[@]}" pulse agent >/tmp/agent.log 2>&1 &
agent=$!
agent_has_them() { four_ranks "${PORT}" && grep -q 'serves at.*for processes of every user' /tmp/agent.log; }
await agent_has_them
await healthy

echo 'it keeps what the job measured, and ends in order'
stop INT "${demo}" || fail "pulse demo: $(cat /tmp/demo.log)"
ended() { [[ "$(get /metrics "${PORT}" | grep -c '^nccl_pulse_process_up{.* 0$')" == 4 ]]; }
await ended
four_ranks "${PORT}" || fail 'the agent has forgotten the ended ranks'
stop TERM "${agent}" || fail 'pulse agent did not end in order'

echo 'nothing stays behind'
DEBIAN_FRONTEND=noninteractive apt-get purge --yes nccl-pulse >/tmp/apt.log 2>&1 || fail "$(cat /tmp/apt.log)"
left="$(find / -xdev -name '*nccl*pulse*' ! -path '/proc/*' ! -path '/var/lib/dpkg/*' \
  ! -name nccl-pulse.deb)"
[[ -z "${left}" ]] || fail "left: ${left}"
