#!/bin/bash
# A daemon that serves a million operations while things fail around it: clients and compile workers are killed, the
# configuration is read again all the time (every other time with a mistake), its logs and its cache of kernels are on
# full disks, its collector of traces is away, strangers send garbage and take all descriptors, the network is cut, and
# the clock jumps. Then every session, byte and charge has to be accounted for. The caches are small and the clients' graphs
# more than fit, so that the caches are full and evict from the first rounds on: memory that grows is memory lost.
# Needs the release build (TELEGRAD_BUILD names another one). The network is a namespace of its own, whose loopback device
# is cut; without the right to make one nothing is cut. The clock is libfaketime's (Debian's package faketime); without it
# the clock does not jump.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<END
Usage: tests/soak/faults.sh [OPERATIONS]

Has a daemon serve OPERATIONS (default 1000000) while clients, workers, disks, the network and the clock fail, and fails
where a session, a byte or a charge is not accounted for. TELEGRAD_BUILD names the build (default build/release).
END
  exit 0
fi
if [ -z "${TELEGRAD_SOAK_NETWORK:-}" ]; then
  if command -v ip >/dev/null && unshare -n ip link set lo up 2>/dev/null; then
    TELEGRAD_SOAK_NETWORK=own exec unshare -n "$0" "$@"
  fi
  TELEGRAD_SOAK_NETWORK=shared
fi
if [ "$TELEGRAD_SOAK_NETWORK" = own ]; then
  ip link set lo up
else
  echo "soak: the network is not cut: that needs iproute2 and a network namespace"
fi
wanted=${1:-1000000}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${TELEGRAD_BUILD:-build/release}
telegrad=$build/client/cli/telegrad
work=$(mktemp -d)
mkfifo "$work/out"
conf=$work/telegradd.conf
configure() {
  printf '[*]\nweight = %s\n' "$1" >"$conf.new"
  mv "$conf.new" "$conf"
}
configure 1
mkdir "$work/cache"
# A disk of its own of 1 MiB where that is allowed; the access log is on one that is always full.
full=none
if mount -t tmpfs -o size=1m,mode=700 telegrad "$work/cache" 2>/dev/null; then full=$work/cache; fi
# The wall clock of the daemon is that of the machine and what this file says. The descriptors that it may have are fewer
# than strangers ask for.
echo +0 >"$work/clock"
clock=()
for library in /usr/lib/*/faketime/libfaketimeMT.so.1; do
  [ ! -e "$library" ] || clock=(LD_PRELOAD="$library" FAKETIME_TIMESTAMP_FILE="$work/clock" FAKETIME_CACHE_DURATION=1
    FAKETIME_DONT_FAKE_MONOTONIC=1)
done
[ ${#clock[@]} -gt 0 ] || echo "soak: the clock does not jump: that needs Debian's package faketime"
(ulimit -n 512 && exec env "${clock[@]}" "$build/server/telegradd" --config "$conf" --listen 127.0.0.1:0 --admin-listen "unix:$work/admin" --log-level off \
  --kernel-cache "$work/cache" --access-log /dev/full --otlp 127.0.0.1:9 --trace-one-in 100 \
  --session-grace 1000 --executables 16 --kernels 24 --default-quota graphs=24 >"$work/out" 2>"$work/log") &
pid=$!
clients=()
trap 'kill -KILL "$pid" "${clients[@]}" 2>/dev/null || true; wait 2>/dev/null || true
  [ "$full" = none ] || umount "$full" || true; rm -rf "$work"' EXIT
exec 4<"$work/out"
address=
while read -r -t 60 what _ value <&4; do
  [ "$what" != listening ] || { address=$value; break; }
done
[ -n "$address" ] || { echo "soak: telegradd did not start:"; cat "$work/log"; exit 1; }
export TELEGRAD_ADDRESS=$address
port=${address##*:}

rss() { awk '/VmRSS/ {print $2}' "/proc/$pid/status"; }
pause() { timeout "$1" tail -f /dev/null || true; }
# A metric; while the faults last, the daemon may be out of reach.
stat() {
  local value
  for _ in $(seq 100); do
    if value=$("$telegrad" stats 2>/dev/null | awk -v name="telegrad_$1" '$1 == name {printf "%d", $2}') &&
      [ -n "$value" ]; then
      echo "$value"
      return
    fi
    pause 0.1
  done
  echo "soak: the daemon does not say telegrad_$1" >&2
  exit 1
}
start_client() {
  "$telegrad" bench --seconds 3600 --sessions 4 --depth 16 --elements "$(((RANDOM % 64 + 1) * 512))" >/dev/null 2>&1 &
  clients[$1]=$!
}
strangers() {  # more connections than the daemon may have descriptors
  python3 - "$port" <<'END'
import socket, sys
held = []
for _ in range(600):
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=1))
    except OSError:
        break
END
}
# Cuts the network for a moment, then breaks the connections that there are, where the kernel does that.
cut() {
  [ "$TELEGRAD_SOAK_NETWORK" = own ] || return 0
  ip link set lo down
  pause 0.3
  ip link set lo up
  ! command -v ss >/dev/null || ss -K state established >/dev/null 2>&1 || true
}
jump() { printf '%+d\n' "$((RANDOM % 2 ? RANDOM * 60 : -RANDOM * 60))" >"$work/clock"; }  # up to 23 days
round() {
  local i=$((RANDOM % ${#clients[@]})) worker
  kill -KILL "${clients[$i]}" 2>/dev/null || true
  wait "${clients[$i]}" 2>/dev/null || true
  start_client "$i"
  worker=$(pgrep -P "$pid" -f telegrad-compile-worker | shuf -n 1 || true)
  [ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true
  if ((RANDOM % 2)); then configure $((RANDOM % 100 + 1)); else configure 0; fi
  kill -HUP "$pid"
  "$telegrad" admin trace --address "unix:$work/admin" >/dev/null || true
  case $((RANDOM % 8)) in
    0) strangers || true ;;
    1) cut ;;
    2) jump ;;
  esac
  { exec 3<>"/dev/tcp/127.0.0.1/$port" && head -c 4096 /dev/urandom >&3; exec 3>&-; } 2>/dev/null || true
  pause 0.2
}

for i in 0 1 2; do start_client "$i"; done
for _ in $(seq 30); do round; done
warm=$(rss) warm_heap=$(stat heap_bytes)
start=$SECONDS rounds=0 history=$warm
while operations=$(stat operations_total) && [ "$operations" -lt "$wanted" ]; do
  round
  rounds=$((rounds + 1))
  ((rounds % 100)) || {
    history+=" $(rss)"
    echo "soak: $operations of $wanted operations after $((SECONDS - start)) s, $rounds rounds of faults"
  }
done
after=$(rss)
kill -KILL "${clients[@]}" 2>/dev/null || true
for _ in $(seq 300); do
  [ "$(stat sessions)" = 0 ] && [ "$(stat device_memory_used_bytes)" = 0 ] && break
  pause 0.1
done
echo "soak: $(stat operations_total) operations in $((SECONDS - start)) s, $rounds rounds of faults; resident memory" \
  "$warm kB after the warm-up, $after kB at the end; worker deaths $(stat compile_worker_deaths_total), spans dropped" \
  "$(stat spans_dropped_total), access lines lost $(stat access_log_lost_total), cache write errors" \
  "$(stat kernel_store_write_errors_total)"
echo "soak: resident memory in kB after the warm-up and after each hundred rounds: $history"
heap=$(stat heap_bytes)
echo "soak: malloc has given out $warm_heap bytes after the warm-up, with clients, and $heap at the end, and keeps" \
  "$(stat heap_free_bytes) free"
failed=0
if ((heap > warm_heap + (4 << 20))); then
  echo "soak: what malloc has given out grew from $warm_heap to $heap bytes"
  failed=1
fi
for name in sessions buffers buffer_bytes staged_bytes device_memory_used_bytes access_log_lines_total \
  spans_exported_total; do
  value=$(stat "$name")
  [ "$value" = 0 ] || { echo "soak: telegrad_$name is $value, expected 0"; failed=1; }
done
# Nothing is charged to the tenant but what is kept for it.
held=$("$telegrad" admin tenants --address "unix:$work/admin" | grep -E '^ *(host_memory|host_staging|sessions|operations|shared_files) ' |
  awk '$2 != 0') || true
[ -z "$held" ] || { echo "soak: still charged: $held"; failed=1; }
if ((after > warm + warm / 4 + 32768)); then
  echo "soak: memory grew from $warm to $after kB"
  failed=1
fi
"$telegrad" bench --seconds 1 >/dev/null || { echo "soak: the daemon does not serve any more"; failed=1; }
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[ "$status" = 0 ] || { echo "soak: telegradd exited $status"; failed=1; }
exit $failed
