#!/bin/bash
# Keeps a real daemon busy for a while with clients that train, ask, are killed in the middle and send garbage,
# then looks at what is left behind: nothing may be. Needs the release build; loopback only.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: tests/soak/run.sh [SECONDS]

Loads a daemon of the release build for SECONDS (default 60) with clients that train, are killed and send garbage, and
fails where it keeps memory, sessions or buffers of theirs.
END
  exit 0
fi
seconds=${1:-60}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
daemon=build/release/server/telegradd
telegrad=build/release/client/cli/telegrad
work=$(mktemp -d)
mkfifo "$work/out"
"$daemon" --listen 127.0.0.1:0 --log-level error >"$work/out" 2>"$work/log" &
pid=$!
trap 'kill -KILL $pid 2>/dev/null || true; rm -rf "$work"' EXIT
read -r -t 30 _ _ address <"$work/out"
export TELEGRAD_ADDRESS=$address
port=${address##*:}

rss() { awk '/VmRSS/ {print $2}' "/proc/$pid/status"; }
stat() { "$telegrad" stats | awk -v name="telegrad_$1" '$1 == name {print $2}'; }
round() {
  "$telegrad" train digits --epochs 1 --seed "$1" >/dev/null
  "$telegrad" devices >/dev/null
  # A client that is killed at a moment of its own, and one that speaks no gRPC at all.
  "$telegrad" train digits --epochs 50 >/dev/null 2>&1 &
  local victim=$!
  timeout 0.$((RANDOM % 9 + 1)) tail --pid="$victim" -f /dev/null || true
  kill -KILL "$victim" 2>/dev/null || true
  wait "$victim" 2>/dev/null || true
  { exec 3<>"/dev/tcp/127.0.0.1/$port" && head -c 4096 /dev/urandom >&3; exec 3>&-; } 2>/dev/null || true
}

for i in 1 2 3; do round "$i"; done
warm=$(rss)
start=$SECONDS rounds=0
while ((SECONDS - start < seconds)); do
  round 1
  rounds=$((rounds + 1))
done
# The daemon notices a lost client when its connection ends; that is asked for, not assumed.
for _ in $(seq 100); do
  [ "$(stat sessions)" = 0 ] && [ "$(stat buffers)" = 0 ] && break
  timeout 0.1 tail -f /dev/null || true
done
after=$(rss)
echo "soak: $rounds rounds in $seconds s; resident memory $warm kB after the warm-up, $after kB at the end"
failed=0
for name in sessions buffers buffer_bytes staged_bytes; do
  value=$(stat "$name")
  [ "$value" = 0 ] || { echo "soak: telegrad_$name is $value, expected 0"; failed=1; }
done
if ((after > warm + warm / 4 + 32768)); then
  echo "soak: memory grew from $warm to $after kB"
  failed=1
fi
kill -TERM $pid
status=0
wait $pid || status=$?
[ "$status" = 0 ] || { echo "soak: telegradd exited $status"; failed=1; }
exit $failed
