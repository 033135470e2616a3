#!/bin/bash
# Makes the keys that authenticate a daemon and its callers, with openssl alone: a certificate authority, the
# daemon's certificate, certificates of clients, and the pair of keys that signs tokens. docs/security.md explains
# their use. Existing files are replaced only with --renew.
set -euo pipefail

usage() {
  cat <<END
Usage: deploy/make-keys.sh DIR [--server NAME_OR_ADDRESS]... [--tenant NAME[/admin]]... [--days N] [--renew]

Makes these files in DIR, which only its owner may read:
  ca.pem, ca.key               certificate authority; ca.key signs the others, keep it off servers
  server.pem, server.key       certificate of the daemon for each --server (default: localhost, 127.0.0.1, ::1)
  client-NAME.pem, .key        certificate of a caller of tenant NAME, for each --tenant; /admin: an administrator
  jwt/token.pem, token.key     key pair that signs tokens (Ed25519): pass DIR/jwt to --jwt-keys
  --days N   validity of certificates in days (default 365; the authority's is ten times as long)
  --renew    replaces the certificates of the server and the named clients; a running daemon reads them again
END
}

die() {
  echo "make-keys: error: $*" >&2
  exit 1
}

dir='' days=365 renew=false
servers=() tenants=()
while [ $# -gt 0 ]; do
  case "$1" in
    --server) [ $# -ge 2 ] || die "--server needs a value"; servers+=("$2"); shift ;;
    --tenant) [ $# -ge 2 ] || die "--tenant needs a value"; tenants+=("$2"); shift ;;
    --days) [ $# -ge 2 ] || die "--days needs a value"; days=$2; shift ;;
    --renew) renew=true ;;
    --help | -h) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) [ -z "$dir" ] || { usage >&2; exit 2; }; dir=$1 ;;
  esac
  shift
done
[ -n "$dir" ] || { usage >&2; exit 2; }
[[ $days =~ ^[1-9][0-9]{0,4}$ ]] || die "--days $days: expected a number of days"
for tenant in "${tenants[@]}"; do
  [[ $tenant =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/admin)?$ ]] || die "--tenant $tenant: no name of a tenant"
done
for server in "${servers[@]}"; do
  [[ $server =~ ^[A-Za-z0-9.:*-]+$ ]] || die "--server $server: neither a DNS name nor an address"
done
command -v openssl >/dev/null || die "openssl is not installed"

umask 077
mkdir -p "$dir/jwt"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# new_key FILE
new_key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# sign NAME SUBJECT EXTENSIONS...: NAME.key and NAME.pem, signed by the authority. Both appear under their names
# only when they are whole, the key first: who reads between the two finds that they do not fit, and reads again.
sign() {
  local name=$1 subject=$2
  shift 2
  if [ -e "$dir/$name.pem" ] && ! $renew; then
    echo "make-keys: $dir/$name.pem is there already"
    return
  fi
  new_key "$work/key"
  printf '%s\n' "basicConstraints=critical,CA:false" "keyUsage=critical,digitalSignature" "$@" >"$work/extensions"
  openssl req -new -key "$work/key" -subj "/CN=$subject" -out "$work/request"
  openssl x509 -req -in "$work/request" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -days "$days" -sha256 \
    -set_serial "0x$(openssl rand -hex 16)" -extfile "$work/extensions" -out "$work/pem" 2>"$work/log" ||
    { cat "$work/log" >&2; die "could not sign $name"; }
  mv "$work/key" "$dir/$name.key"
  mv "$work/pem" "$dir/$name.pem"
  echo "make-keys: made $dir/$name.pem for $subject"
}

if [ ! -e "$dir/ca.pem" ]; then
  new_key "$dir/ca.key"
  openssl req -x509 -new -key "$dir/ca.key" -days "$((10 * days))" -sha256 -subj "/CN=Telegrad authority" \
    -addext "basicConstraints=critical,CA:true,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -out "$dir/ca.pem"
  echo "make-keys: made $dir/ca.pem, an authority"
fi

[ ${#servers[@]} -gt 0 ] || servers=(localhost 127.0.0.1 ::1)
names=()
for server in "${servers[@]}"; do
  if [[ $server =~ ^[0-9.]+$ || $server == *:* ]]; then names+=("IP:$server"); else names+=("DNS:$server"); fi
done
sign server "${servers[0]}" "extendedKeyUsage=serverAuth" "subjectAltName=$(IFS=,; echo "${names[*]}")"
for tenant in "${tenants[@]}"; do
  sign "client-${tenant%/admin}" "${tenant%/admin}" "extendedKeyUsage=clientAuth" \
    "subjectAltName=URI:telegrad://tenant/$tenant"
done

if [ ! -e "$dir/token.key" ]; then
  openssl genpkey -quiet -algorithm ED25519 -out "$dir/token.key"
  openssl pkey -in "$dir/token.key" -pubout -out "$dir/jwt/token.pem"
  echo "make-keys: made $dir/token.key, which signs tokens, and $dir/jwt/token.pem, which checks them"
fi
