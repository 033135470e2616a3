#!/bin/bash
# Shows Telegrad on one machine: builds Telegrad, starts the daemon on a free loopback port, trains a network on
# handwritten digits through it, runs two ONNX models against their references, and stops the daemon.
set -euo pipefail

usage() {
  cat <<END
Usage: deploy/quickstart.sh [--keep] [--package FILE.deb]... [--help]

Installs missing packages, builds Telegrad, and runs examples with it. Exits 0 only if every step succeeded.
  --keep              keep the log, the trained weights and the outputs, and print their folder
  --package FILE.deb  do not build: install telegradd from this package of deploy/package.sh, and telegrad from the
                      package beside it, or from another --package
END
}

keep=false
packages=()
while [ $# -gt 0 ]; do
  case "$1" in
    --keep) keep=true ;;
    --package)
      if [ $# -lt 2 ] || [ ! -r "$2" ]; then
        echo "quickstart: error: --package needs a file that can be read" >&2
        exit 2
      fi
      packages+=("$(realpath "$2")")
      shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
daemon_bin=build/release/server/telegradd
cli=build/release/client/cli/telegrad
models=tests/data/onnx

work=$(mktemp -d "${TMPDIR:-/tmp}/telegrad-quickstart.XXXXXX")
daemon_pid=

bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

die() {
  echo "quickstart: error: $*" >&2
  if [ -s "$work/telegradd.log" ]; then
    echo "quickstart: the daemon's log ends with:" >&2
    tail -n 20 "$work/telegradd.log" >&2
  fi
  exit 1
}

cleanup() {
  local status=$?
  trap - EXIT
  if [ -n "$daemon_pid" ]; then
    kill -KILL "$daemon_pid" 2>/dev/null || true
    wait "$daemon_pid" 2>/dev/null || true
  fi
  if $keep; then echo "quickstart: files are in $work"; else rm -rf "$work"; fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# What the README names is there afterwards.
targets=(telegradd telegrad telegrad-opt hello char_gpt resnet50 bert)

if [ ${#packages[@]} -gt 0 ]; then
  say "Install"
  if [ ${#packages[@]} -eq 1 ]; then
    beside=${packages[0]/telegradd_/telegrad_}
    [ "$beside" != "${packages[0]}" ] && [ -r "$beside" ] || die "$beside is not there; give it with --package"
    packages+=("$beside")
  fi
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 install -y --no-install-recommends \
    "${packages[@]}" >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log" >&2; die "apt-get could not install ${packages[*]}"; }
  daemon_bin=/usr/bin/telegradd cli=/usr/bin/telegrad
  echo "installed $("$daemon_bin" --version) and $("$cli" --version)"
else
  say "Packages"
  deploy/dependencies.sh

  say "Build (a few minutes the first time)"
  cmake --preset release >"$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2; die "cmake failed"; }
  ninja -C build/release "${targets[@]}" || die "the build failed"
fi

say "Daemon"
# Its stdout is a pipe, so that reading the announced port waits for exactly that line: `read` returns when
# the line is there, when the daemon has exited (end of file) or after the bound.
mkfifo "$work/stdout"
"$daemon_bin" --listen 127.0.0.1:0 >"$work/stdout" 2>"$work/telegradd.log" &
daemon_pid=$!
exec 3<"$work/stdout"
port=
deadline=$((SECONDS + 60))
while [ -z "$port" ]; do
  left=$((deadline - SECONDS))
  [ "$left" -gt 0 ] && IFS= read -r -t "$left" line <&3 || die "telegradd did not say which port it took"
  [[ $line =~ ^listening\ on\ 127\.0\.0\.1:([0-9]+) ]] && port=${BASH_REMATCH[1]}
done
# Whatever it says on stdout from now on belongs in its log, and must never block it.
cat <&3 >>"$work/telegradd.log" &
exec 3<&-
export TELEGRAD_ADDRESS=127.0.0.1:$port
echo "telegradd (process $daemon_pid) listens on $TELEGRAD_ADDRESS"

say "Devices"
"$cli" devices || die "the daemon does not list its devices"

say "Training a network on 1,797 handwritten digits"
"$cli" train digits --data tests/data/digits/digits.csv.gz --save "$work/digits.safetensors" |
  tee "$work/train.log" || die "training failed"
grep -Eq '^held-out accuracy: (9[7-9]\.|100)' "$work/train.log" || die "held-out accuracy is below 97%"
[ -s "$work/digits.safetensors" ] || die "training saved no weights"

for model in mnist_8 super_resolution_10; do
  say "ONNX model $model against its reference"
  data=$models/$model/test_data_set_0
  "$cli" run "$models/$model/model.onnx" -i "$data/input_0.pb" -o "$work/$model.npy" \
    --expect "$data/output_0.pb" || die "$model failed, or differs from its reference"
done

# The same on a GPU, where there is one.
gpu=$("$cli" devices | awk '$1 ~ /^CUDA:/ && $2 == "ok" { print $1; exit }')
if [ -n "$gpu" ]; then
  say "The same training on $gpu"
  "$cli" train digits --data tests/data/digits/digits.csv.gz --device "$gpu" | tee "$work/gpu.log" ||
    die "training on $gpu failed"
  grep -Eq '^held-out accuracy: (9[7-9]\.|100)' "$work/gpu.log" || die "held-out accuracy on $gpu is below 97%"
fi

say "What the daemon did"
"$cli" stats || die "the daemon gave no statistics"

say "Stop"
kill -TERM "$daemon_pid"
timeout 60 tail --pid="$daemon_pid" -s 0.1 -f /dev/null || die "telegradd did not stop within a minute"
status=0
wait "$daemon_pid" || status=$?
daemon_pid=
[ "$status" -eq 0 ] || die "telegradd exited with $status instead of 0"
echo "telegradd drained and exited 0"
