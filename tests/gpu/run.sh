#!/bin/bash
# Makes a bundle of the daemon, the command line, the GPU tests and the GPU benchmarks that runs on a
# machine with nothing but glibc 2.36 and an NVIDIA driver, then tests it as on such a machine: from a
# separate directory, with an empty environment. Without a GPU the test reports that.
set -euo pipefail

usage() {
  cat <<END
Usage: tests/gpu/run.sh [--no-run] [-j JOBS]

Builds the preset gpu-bundle, packs build/gpu/telegrad-gpu.tar.xz and runs it.
  --no-run  only build and pack the bundle
  -j JOBS   number of compilers that run at a time (default: one for each processor)
On the machine with the GPU: tar xf telegrad-gpu.tar.xz && telegrad-gpu/gpu_suite.sh
Exits 0 if the bundle was made and, where there is a GPU, every test passed.
END
}

run=true
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --no-run) run=false ;;
    -j) jobs=${2:-}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=build/gpu-bundle
out=build/gpu
programs=(server/telegradd server/telegrad-compile-worker client/cli/telegrad devices/nv/nv_probe
          tests/gpu/gpu_test tests/bench/gpu_bench)

say() { printf '== %s\n' "$*"; }

say "configure"
cmake --preset gpu-bundle >/dev/null
say "build ${#programs[@]} programs, linked statically"
cmake --build --preset gpu-bundle -j "$jobs" -t "${programs[@]##*/}"

say "pack"
rm -rf "$out"
mkdir -p "$out/telegrad-gpu/bin" "$out/telegrad-gpu/programs" "$out/telegrad-gpu/digits"
cp tests/programs/*.uop "$out/telegrad-gpu/programs/"
cp tests/data/digits/* "$out/telegrad-gpu/digits/"
for program in "${programs[@]}"; do
  strip -o "$out/telegrad-gpu/bin/${program##*/}" "$build/$program"
done
cp tests/gpu/gpu_suite.sh tests/bench/peers/torch_peers.py "$out/telegrad-gpu/"
tests/gpu/check_bundle.sh "$out/telegrad-gpu"
bundle=$out/telegrad-gpu.tar.xz
# The programs have most of LLVM in common; a window over all of them finds it once: 24 MiB, and 58 without.
tar -C "$out" --sort=name --owner=0 --group=0 -c telegrad-gpu | xz -T1 --lzma2=preset=6,dict=256MiB >"$bundle"
bytes=$(stat -c %s "$bundle")
say "$bundle: $((bytes >> 20)) MiB"
if ((bytes > 64 << 20)); then
  echo "run.sh: the bundle is $bytes bytes, and may be $((64 << 20))" >&2
  exit 1
fi

if $run; then
  say "run"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  tar -C "$scratch" -xf "$bundle"
  cd "$scratch"
  env -i PATH=/usr/bin:/bin telegrad-gpu/gpu_suite.sh
fi
