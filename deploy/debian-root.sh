# shellcheck shell=bash disable=SC2154
# Functions for scripts that try something in a fresh Debian: a root made by debootstrap, in which commands run by
# chroot. Needs root. The caller sets `work`, a folder for roots, and calls drop_roots when it ends.

root_error() {
  echo "$(basename "$0"): error: $*" >&2
  return 1
}

# suite_reachable SUITE: whether its archive answers.
suite_reachable() {
  /usr/lib/apt/apt-helper -q download-file "${MIRROR:-http://deb.debian.org/debian}/dists/$1/InRelease" \
    "$work/InRelease" >/dev/null 2>&1
}

# make_root SUITE: a fresh system in $work/SUITE. Packages that were downloaded once are kept in build/roots.
make_root() {
  local suite=$1 root=$work/$1 cache
  [ "$(id -u)" -eq 0 ] || { root_error "debootstrap and chroot need root"; return 1; }
  command -v debootstrap >/dev/null || { root_error "debootstrap is missing: apt-get install debootstrap"; return 1; }
  cache=$PWD/build/roots/$suite
  mkdir -p "$cache" "$root/var/cache/apt/archives"
  debootstrap --variant=minbase --cache-dir="$cache" "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" \
    >"$work/$suite.log" 2>&1 || { tail -n 20 "$work/$suite.log" >&2; root_error "debootstrap $suite failed"; return 1; }
  mount -t proc proc "$root/proc"
  mount -t devtmpfs dev "$root/dev" 2>/dev/null || mount --bind /dev "$root/dev"
  mount --make-private "$root/dev"  # what is mounted below it is not of this machine's /dev
  mount -t devpts devpts "$root/dev/pts"
  # PoCL learns of the processor from it.
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs tmpfs "$root/tmp"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  # What apt-get of this machine is told about proxies holds there, too.
  cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
}

# in_root SUITE COMMAND...: with an environment of its own.
in_root() {
  local suite=$1
  shift
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    chroot "$work/$suite" "$@"
}

# Unmounts and removes all roots.
drop_roots() {
  local place
  for place in "$work"/*/tmp "$work"/*/sys "$work"/*/dev/pts "$work"/*/dev "$work"/*/proc; do
    if mountpoint -q "$place"; then umount -l "$place"; fi
  done
  # Never through a mount that stayed, of the same file system (a bind mount) either.
  if cut -d' ' -f2 /proc/self/mounts | grep -F "$(realpath "$work")/" >/dev/null; then
    root_error "something is mounted below $work, so it is not removed"
    return 1
  fi
  rm -rf --one-file-system "$work"
}
