# shellcheck shell=bash
# For tests that run programs in the directory $root as in a separate system; source it after check.sh.
# shellcheck disable=SC2154

# Runs COMMAND in $root, as its own process tree, which ends with it, with PATH and the given variables as its
# whole environment. /proc and /dev/null are those of this machine.
# in_root [VARIABLE=VALUE...] COMMAND...
in_root() {
  local rights=()
  [[ $(id -u) -eq 0 ]] || rights=(--map-root-user)
  # shellcheck disable=SC2016
  unshare "${rights[@]}" --mount --pid --fork --kill-child bash -c '
    variables=(PATH=/path:/usr/sbin:/usr/bin:/sbin:/bin)
    while [[ $1 =~ ^[A-Z_]+= ]]; do variables+=("$1"); shift; done
    mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/dev/null" &&
    exec env -i "${variables[@]}" /usr/sbin/chroot "$0" "$@"' "$root" "$@"
}

# can_enter_root COMMAND...: whether in_root works on this machine. Else $output says why not.
can_enter_root() {
  run in_root "$@"
  [[ $status -eq 0 ]] || ! grep -qiE 'unshare|mount:|chroot:' <<<"$output"
}
