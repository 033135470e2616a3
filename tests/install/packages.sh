#!/bin/bash
# The packages of deploy/package.sh in a fresh Debian 12: installed, the daemon passes the steps of the quickstart, a
# program is built against the C++ client, Python imports its own, and nothing but what it should stays when they are removed.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case "${1:-}" in
  '') ;;
  --help | -h)
    echo "Usage: tests/install/packages.sh"
    echo "Installs the packages of build/packages, or makes them first, in a fresh Debian 12 and tries them there."
    echo "Needs root and debootstrap."
    exit 0 ;;
  *) echo "packages: unexpected argument $1; see --help" >&2; exit 2 ;;
esac
die() {
  echo "packages: error: $*" >&2
  exit 1
}

compgen -G 'build/packages/*.deb' >/dev/null || deploy/package.sh
# shellcheck source=deploy/debian-root.sh
source deploy/debian-root.sh
work=$(mktemp -d)
trap drop_roots EXIT
suite=bookworm
make_root "$suite"
root=$work/$suite
mkdir -p "$root/telegrad/tests"
git archive HEAD deploy tests/data/digits tests/data/onnx/mnist_8 tests/data/onnx/super_resolution_10 | tar -x -C "$root/telegrad"
cp deploy/*.sh "$root/telegrad/deploy/"
cp build/packages/*.deb "$root/telegrad/"
# Debian 12's LLVM 19 is in its updates since 12.10, which debootstrap's sources have.
in_root "$suite" apt-get -q update >"$work/apt.log" 2>&1 || { tail "$work/apt.log" >&2; die "apt-get update failed"; }

echo "== quickstart from a package"
in_root "$suite" sh -c 'cd /telegrad && deploy/quickstart.sh --package telegradd_*.deb' || die "the quickstart failed"

echo "== the other packages"
in_root "$suite" sh -c 'cd /telegrad && apt-get -q install -y --no-install-recommends ./libtelegrad-dev_*.deb \
  ./python3-telegrad_*.deb g++ cmake make pkgconf' >"$work/apt.log" 2>&1 || { tail "$work/apt.log" >&2; die "installing failed"; }
mkdir "$root/telegrad/program"
cat >"$root/telegrad/program/main.cc" <<'END'
#include <cstdio>

#include "client/cc/connection.h"

int main(int argc, char** argv) {
  const auto connection = telegrad::Connection::Connect(argc > 1 ? argv[1] : "unix:/nonexistent");
  std::printf("%s\n", connection.status().ToString().c_str());
  return connection.ok() ? 0 : 3;
}
END
cat >"$root/telegrad/program/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(program CXX)
find_package(telegrad REQUIRED)
add_executable(program main.cc)
target_link_libraries(program PRIVATE telegrad::client)
END
# shellcheck disable=SC2016  # the shell in the root expands it
in_root "$suite" sh -c 'cd /telegrad/program && cmake -B build -S . >/dev/null && cmake --build build &&
  g++ -std=c++20 main.cc -o with-pkg-config $(pkg-config --cflags --libs telegrad)' || die "building against libtelegrad-dev failed"
for program in build/program with-pkg-config; do
  status=0
  in_root "$suite" "/telegrad/program/$program" || status=$?
  [ "$status" -eq 3 ] || die "$program exited with $status instead of 3"
done
version=$(in_root "$suite" telegradd --version | cut -d' ' -f2)
in_root "$suite" python3 -c "import importlib.metadata, telegrad
assert telegrad.__version__ == importlib.metadata.version('telegrad') == '$version'" || die "python3-telegrad does not work"
in_root "$suite" python3 -c "import importlib.metadata, sys
assert '_telegrad_tinygrad' in sys.modules, 'no telegrad.pth'
import telegrad.tinygrad
(backend,) = importlib.metadata.entry_points(group='torch_dynamo_backends')
assert (backend.name, backend.value) == ('telegrad', 'telegrad.torch:backend')" || die "python3-telegrad has no frontends"
in_root "$suite" systemd-sysusers --version >/dev/null 2>&1 || true

echo "== removed"
in_root "$suite" apt-get -q purge -y telegradd telegrad libtelegrad-dev python3-telegrad >"$work/apt.log" 2>&1 ||
  { tail "$work/apt.log" >&2; die "removing failed"; }
left=$(cd "$root" && find usr etc lib var/cache var/lib \( -iname '*telegrad*' ! -path 'var/lib/dpkg/*' ! -path 'var/cache/apt/*' \) -print)
[ -z "$left" ] || die "left behind: $left"
echo "== the packages install, run and go"
