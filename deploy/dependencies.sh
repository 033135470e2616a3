#!/bin/bash
# Installs the Debian 12 packages that Telegrad needs, and only those that are missing. Needs no network
# when all of them are there. This list is the only place where they are named.
set -euo pipefail

packages=(
  # build
  clang-19 libclang-rt-19-dev g++ cmake ninja-build pkgconf
  # libraries
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  llvm-19-dev liblld-19-dev libssl-dev zlib1g-dev libzstd-dev liblz4-dev libmicrohttpd-dev libgnutls28-dev libre2-dev
  libjpeg-dev libpng-dev libwebp-dev libopenjp2-7-dev
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev python3 clang-format-19 shellcheck
  # certificates and keys (deploy/make-keys.sh), and the tests that need them
  openssl
  # an OpenCL device for the tests, and the constants of its API
  pocl-opencl-icd ocl-icd-libopencl1 opencl-c-headers
  # the Debian packages (deploy/package.sh)
  dpkg-dev
  # the GPU bundle (tests/gpu/run.sh)
  lld-19 xz-utils binutils
  # the Python client, and the check of its types
  python3-grpcio python3-numpy mypy
)
# What needs one of them is skipped without it, with a message. Debian 13 does not have oclgrind.
where_available=(
  oclgrind  # tests/opencl/races.sh (--full)
  faketime  # jumps of the clock in tests/soak/faults.sh (--full)
)

usage() {
  cat <<END
Usage: deploy/dependencies.sh [--list | --help]

Installs what is missing of Telegrad's Debian 12 packages with apt-get, through sudo when not root.
  --list  prints the packages, one a line, and installs nothing
END
}

die() {
  echo "dependencies: error: $*" >&2
  exit 1
}

case "${1:-}" in
  "") ;;
  --list) printf '%s\n' "${packages[@]}" "${where_available[@]}"; exit 0 ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  die "this is not a Debian system (dpkg-query or apt-get is missing); install by hand: ${packages[*]}"

is_installed() {
  local status
  status=$(dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null || true)
  grep -qx installed <<<"$status"
}

# is_available PACKAGE: whether the package lists at hand offer it.
is_available() { apt-cache policy "$1" 2>/dev/null | grep '^  Candidate: [^(]' >/dev/null; }

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
for package in "${where_available[@]}"; do
  if ! is_installed "$package" && is_available "$package"; then missing+=("$package"); fi
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "dependencies: all ${#packages[@]} packages are installed"
  exit 0
fi

echo "dependencies: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    die "not root and no sudo; as root run: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@"; }

# Package lists that are already there may do; only when they do not are they fetched.
install=(install -y --no-install-recommends "${missing[@]}")
if ! apt "${install[@]}"; then
  echo "dependencies: that did not work with the package lists at hand; updating them"
  apt update || die "apt-get update failed; is there a network?"
  apt "${install[@]}" ||
    die "apt-get could not install ${missing[*]}: is there a network, and Debian 12.10 or later in its sources?"
fi
echo "dependencies: installed ${#missing[@]} packages"
