# shellcheck shell=bash
# For tests that need the rights of root; source it.

# require_rights COMMAND...: skips the test without root, and where the command fails as root: in many
# containers and chroots root can make no namespaces, mounts or devices. The command does in short what the
# test relies on.
require_rights() {
  local why
  [[ $(id -u) -eq 0 ]] || { echo "SKIPPED: needs root"; exit 0; }
  why=$("$@" 2>&1 >/dev/null) || { echo "SKIPPED: root lacks rights on this machine: $* failed: $why"; exit 0; }
}

# Makes a device, as debootstrap does.
make_device() {
  local folder
  folder=$(mktemp -d /var/tmp/catchment-device.XXXXXX) && mknod "$folder/null" c 1 3 && true >"$folder/null"
  local status=$?
  rm -rf "$folder"
  return "$status"
}
