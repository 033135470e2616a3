#!/bin/bash
# Runs the GPU tests and benchmarks that lie beside this script, shard by shard, and prints one table. Needs
# bash, glibc 2.36 or later and, to have something to run on, an NVIDIA GPU with its driver; no network.
set -uo pipefail

# What is most worth knowing comes first. A shard is ended after so many seconds: 22 minutes in all.
shards="conformance kernels benchmarks profile probe"
declare -A seconds=([conformance]=300 [kernels]=420 [benchmarks]=300 [profile]=240 [probe]=60)

usage() {
  cat <<END
Usage: gpu_suite.sh [--tests | --bench | --shard NAME] [--fresh]
Runs the GPU tests and benchmarks and prints a table: the name of each, its result, and for a benchmark its
figure, ratio and goal. Their output is in the folder log beside this script, and the table also in
log/results.json. A machine without an NVIDIA GPU is reported as such.
  --tests       run the shards conformance, kernels and probe
  --bench       run the shards benchmarks and profile
  --shard NAME  run one shard: $shards
  --fresh       run also what has ended before; without it a run goes on where the last one was ended
TELEGRAD_CUDA_LIBRARY is the driver library to use (default libcuda.so.1).
Exits 0 if nothing failed and no goal was missed, or there is no GPU; 1 otherwise; 2 for wrong usage.
END
}

what=$shards fresh=false
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --tests) what="conformance kernels probe" ;;
    --bench) what="benchmarks profile" ;;
    --shard)
      what=${2:-}
      [ -n "$what" ] && [ -n "${seconds[$what]:-}" ] ||
        { echo "gpu_suite.sh: --shard: \"$what\" is none of: $shards" >&2; exit 2; }
      shift ;;
    --fresh) fresh=true ;;
    *) echo "gpu_suite.sh: unknown argument $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=$here/log
mkdir -p "$log" || exit 1
# Paths of the sources, for what reads data of theirs, do not exist here; nothing below needs them.
cd "$log" || exit 1
library=${TELEGRAD_CUDA_LIBRARY:-libcuda.so.1}
smoke=()
[ "$library" = libcuda.so.1 ] || smoke=(--smoke)  # another library is a fake one, an interpreter

# The rows of the shard that runs are in log/SHARD.part, those of one that has ended in log/SHARD.tsv:
# name, result, figure, unit, ratio, detail.
shard=""
row() { printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$log/$shard.part"; }

# within PROGRAM ARGUMENT...: runs it in what is left of the shard's time.
within() {
  local left=$((seconds[$shard] - (SECONDS - shard_began)))
  timeout "$((left > 1 ? left : 1))" "$@"
}

# gtest NAME PROGRAM FILTER: the counts that GoogleTest prints; the first reason where all is skipped.
gtest() {
  local name=$1 program=$2 out=$log/${1// /_}.log status=0 passed skipped
  echo "== $name" >&2
  within "$here/bin/$program" --gtest_filter="$3" >"$out" 2>&1 || status=$?
  passed=$(grep -c '^\[       OK \]' "$out")
  skipped=$(grep -c '^\[  SKIPPED \] .* (' "$out")
  if [ "$status" -eq 124 ]; then
    row "$name" FAILED - - - "not done in its time, $passed passed; see log/$(basename "$out")"
  elif [ "$status" -ne 0 ]; then
    row "$name" FAILED - - - "exit $status, $passed passed; see log/$(basename "$out")"
  elif [ "$passed" -eq 0 ]; then
    row "$name" skipped - - - "$(grep -A1 -m1 'Skipped$' "$out" | tail -1)"
  else
    row "$name" passed - - - "$passed tests, $skipped skipped"
  fi
}

run_conformance() {
  gtest "device conformance" gpu_test '*/cuda'
  daemon
}

run_kernels() {
  TELEGRAD_CUDA=$library TELEGRAD_PROGRAMS=$here/programs \
    gtest "kernels against the reference" gpu_test '*OnCuda.*'
  gtest "graphs against the CPU" gpu_test 'GpuGraphs.*'
}

run_probe() {
  local status=0
  echo "== bring-up without libcuda" >&2
  within "$here/bin/nv_probe" >"$log/nv_probe.log" 2>&1 || status=$?
  case $status in
    0) if grep -q '^no NVIDIA' "$log/nv_probe.log"; then
         row nv_probe skipped - - - "$(tail -1 "$log/nv_probe.log")"
       else
         row nv_probe passed - - - "$(grep -c '\] ok ' "$log/nv_probe.log") steps"
       fi ;;
    3) row nv_probe skipped - - - "$(grep -m1 -o 'driver [0-9].*refused' "$log/nv_probe.log")" ;;
    # A finding about raw access, which nothing else here needs: shown, and no failure of the suite.
    *) row nv_probe finding - - - "$(grep -m1 'FAILED' "$log/nv_probe.log" || echo "exit $status")" ;;
  esac
}

# train ADDRESS: the digits network on the GPU by that daemon, as far as 97 % of the held-out images. On a
# fake one, an interpreter, that takes too long, so it is not run.
train() {
  local name="digits trained over gRPC" out=$log/train.log status=0 held_out
  if [ ${#smoke[@]} -gt 0 ]; then
    row "$name" skipped - - - "the library is a fake one"
    return
  fi
  TELEGRAD_ADDRESS=$1 within "$here/bin/telegrad" train digits --device CUDA:0 --plot never \
    --data "$here/digits/digits.csv.gz" >"$out" 2>&1 || status=$?
  held_out=$(grep -o 'held out *[0-9.]*' "$out" | tail -1 | grep -o '[0-9.]*$')
  if [ "$status" -eq 0 ] && awk -v a="${held_out:-0}" 'BEGIN {exit !(a >= 97)}'; then
    row "$name" passed - - - "$held_out % of the held-out images, goal 97 %"
  else
    row "$name" FAILED - - - "exit $status, ${held_out:-no} % of the held-out images, goal 97 %; see log/train.log"
  fi
}

# A daemon with the GPU, asked over the wire what it has; and it trains.
daemon() {
  echo "== daemon" >&2
  local out=$log/daemon.log pid address
  mkfifo "$log/address.$$" || return
  "$here/bin/telegradd" --listen 127.0.0.1:0 --cuda-library "$library" >"$log/address.$$" 2>"$out" &
  pid=$!
  read -r -t 60 _ _ address <"$log/address.$$"
  rm -f "$log/address.$$"
  if TELEGRAD_ADDRESS=${address:-none} within "$here/bin/telegrad" devices >"$log/devices.log" 2>&1 &&
    grep -q CUDA:0 "$log/devices.log"; then
    row "daemon offers the GPU" passed - - - "$(grep -m1 CUDA:0 "$log/devices.log")"
  else
    row "daemon offers the GPU" FAILED - - - "see log/devices.log and log/daemon.log"
  fi
  train "${address:-none}"
  kill -TERM "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
}

# The goal of a benchmark, as a ratio; none for most.
goal() {
  case "$1" in
    "elementwise add, f32") echo 0.93 ;;
    "sums of rows, f32" | "softmax of rows, f32" | "layer norm of rows, f32") echo 0.85 ;;
    "matmul bf16 8192") echo 0.5 ;;
    attention*) echo 0.4 ;;
    "a token of GPT-2"*) echo 0.8 ;;
    "launch in a replay") echo 0.833 ;;  # 1.2 times as long as the bare graph at most
  esac
}

# bench NAME FLAG...: gpu_bench, whose lines are name, figure, unit, ratio, of what.
bench() {
  local out=$log/$1.log status=0
  shift
  within "$here/bin/gpu_bench" --cuda-library "$library" ${smoke[@]+"${smoke[@]}"} "$@" >"$out" 2>"$out.err" ||
    status=$?
  [ "$status" -eq 0 ] || row "$shard" FAILED - - - "exit $status: $(tail -1 "$out.err")"
}

run_benchmarks() {
  echo "== benchmarks" >&2
  local peer="" peer_says="not measured: no python3"
  bench gpu_bench
  if [ ${#smoke[@]} -gt 0 ]; then
    peer_says="not measured: the library is a fake one"
  elif command -v python3 >/dev/null; then
    within python3 "$here/torch_peers.py" >"$log/torch.log" 2>&1
    peer_says=$(grep -m1 '^not measured' "$log/torch.log" || tail -1 "$log/torch.log")
  fi
  local name figure unit ratio of wanted result
  while IFS=$'\t' read -r name figure unit ratio of; do
    [ -n "$unit" ] || continue
    if [[ $name == matmul* || $name == attention* ]]; then
      peer=$(awk -F'\t' -v name="$name" '$1 == name {print $2}' "$log/torch.log" 2>/dev/null)
      if [ -n "$peer" ]; then
        ratio=$(awk -v a="$figure" -v b="$peer" 'BEGIN {printf "%.3f", a / b}')
        of="PyTorch's ($peer)"
      else
        of="PyTorch's: $peer_says"
      fi
    fi
    wanted=$(goal "$name") result=measured
    if [ -n "$wanted" ] && [ "$ratio" != - ] && [ ${#smoke[@]} -eq 0 ]; then
      result=reached
      awk -v a="$ratio" -v b="$wanted" 'BEGIN {exit !(a < b)}' && result=MISSED
      of="$of, goal $wanted"
    fi
    row "$name" "$result" "$figure" "$unit" "$ratio" "${of:+of $of}"
  done <"$log/gpu_bench.log"
}

# What each kernel of networks takes, beside what the cost model says of it.
run_profile() {
  echo "== profile" >&2
  local name figure unit ratio of
  bench gpu_profile --profile
  while IFS=$'\t' read -r name figure unit ratio of; do
    [ -n "$unit" ] && row "$name" measured "$figure" "$unit" "$ratio" "of $of"
  done <"$log/gpu_profile.log"
}

# The rows of all shards that have ended, as JSON.
json() {
  local file
  printf '{"library": "%s", "rows": [' "$library"
  for file in $shards; do
    [ -f "$log/$file.tsv" ] && awk -F'\t' -v shard="$file" '{
      for (i = 1; i <= 6; ++i) { gsub(/[\\"]/, "\\\\&", $i); gsub(/[[:cntrl:]]/, " ", $i) }
      printf "%s{\"shard\": \"%s\", \"name\": \"%s\", \"result\": \"%s\"", "\036", shard, $1, $2
      number = "^-?[0-9.]+(e[-+]?[0-9]+)?$"
      if ($3 ~ number) printf ", \"figure\": %s, \"unit\": \"%s\"", $3, $4
      if ($5 ~ number) printf ", \"ratio\": %s", $5
      printf ", \"detail\": \"%s\"}", $6
    }' "$log/$file.tsv"
  done | sed -e '1s/\x1e/\n/' -e 's/\x1e/,\n/g'
  printf '\n]}\n'
}

# Is there a GPU at all? The benchmark's own opening says, and why not.
opened=$("$here/bin/gpu_bench" --cuda-library "$library" --probe 2>&1 | grep -m1 'nothing to measure')
if [ -n "$opened" ]; then
  echo "gpu_suite: no GPU on this machine, nothing was run (${opened#*nothing to measure: })"
  exit 0
fi

# What other programs or another driver said is no result of these.
stamp=$(printf '%s\n' "$library"; cat "$here"/bin/* "$here/gpu_suite.sh" | cksum)
if [ "$(cat "$log/stamp" 2>/dev/null)" != "$stamp" ]; then
  rm -f "$log"/*.tsv "$log"/*.part "$log/results.json"
  printf '%s\n' "$stamp" >"$log/stamp"
fi

for shard in $what; do
  $fresh && rm -f "$log/$shard.tsv"
  if [ -f "$log/$shard.tsv" ]; then
    echo "== $shard: has ended before; --fresh runs it again" >&2
    continue
  fi
  : >"$log/$shard.part"
  shard_began=$SECONDS
  case $shard in
    conformance) run_conformance ;;
    kernels) run_kernels ;;
    benchmarks) run_benchmarks ;;
    profile) run_profile ;;
    probe) run_probe ;;
  esac
  mv "$log/$shard.part" "$log/$shard.tsv"
  json >"$log/results.json.part" && mv "$log/results.json.part" "$log/results.json"
  echo "== $shard: $((SECONDS - shard_began)) s" >&2
done

printf '\n%-34s %-8s %s\n' what result detail
failed=0
for shard in $what; do
  awk -F'\t' '{
    if ($3 == "-") printf "%-34s %-8s %s\n", $1, $2, $6
    else printf "%-34s %-8s %8s %-8s %6s %s\n", $1, $2, $3, $4, $5, $6
  }' "$log/$shard.tsv"
  grep -qP '^[^\t]*\t(FAILED|MISSED)\t' "$log/$shard.tsv" && failed=1
done
exit "$failed"
