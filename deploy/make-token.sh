#!/bin/bash
# Signs a token for a caller of a daemon, with openssl alone and a key of make-keys.sh. See docs/security.md.
set -euo pipefail

usage() {
  cat <<END
Usage: deploy/make-token.sh --key FILE --tenant NAME [--subject NAME] [--admin] [--minutes N] [--audience NAME]
                            [--issuer NAME] [--kid NAME]

Prints a token (JWT, EdDSA) for a caller of tenant NAME.
  --key FILE       Ed25519 private key in PEM, whose public key is in the daemon's --jwt-keys
  --subject NAME   name of the caller, for the daemon's log (default: the tenant)
  --admin          make a token of an administrator
  --minutes N      validity of the token in minutes (default 60)
  --audience NAME  value of the daemon's --jwt-audience (default telegrad)
  --issuer NAME    value of the daemon's --jwt-issuer, if it has one
  --kid NAME       name of the public key's file in the daemon's --jwt-keys, without its ending (default: the name of
                   the private key's file)
END
}

die() {
  echo "make-token: error: $*" >&2
  exit 1
}

key='' tenant='' subject='' admin=false minutes=60 audience=telegrad issuer='' kid=''
while [ $# -gt 0 ]; do
  case "$1" in
    --admin) admin=true; shift; continue ;;
    --help | -h) usage; exit 0 ;;
    --key | --tenant | --subject | --minutes | --audience | --issuer | --kid)
      [ $# -ge 2 ] || die "$1 needs a value"
      printf -v "${1#--}" '%s' "$2" ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$key" ] && [ -n "$tenant" ] || { usage >&2; exit 2; }
[ -r "$key" ] || die "$key: cannot be read"
[[ $minutes =~ ^[1-9][0-9]{0,6}$ ]] || die "--minutes $minutes: expected a number of minutes"
subject=${subject:-$tenant}
if [ -z "$kid" ]; then kid=$(basename "$key"); kid=${kid%.*}; fi
for text in "$tenant" "$subject" "$audience" "$issuer" "$kid"; do
  [[ $text =~ ^[^\"\\[:cntrl:]]*$ ]] || die "$text: a name has no quotes, backslashes or control characters"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

now=$(date +%s)
header=$(printf '{"alg":"EdDSA","typ":"JWT","kid":"%s"}' "$kid" | base64url)
claims=$(printf '{"aud":"%s","sub":"%s","tenant":"%s","admin":%s,"iat":%d,"exp":%d%s}' "$audience" "$subject" \
  "$tenant" "$admin" "$now" "$((now + 60 * minutes))" "${issuer:+,\"iss\":\"$issuer\"}" | base64url)
printf '%s.%s' "$header" "$claims" >"$work/message"
openssl pkeyutl -sign -rawin -inkey "$key" -in "$work/message" -out "$work/signature" ||
  die "$key: cannot sign; expected an Ed25519 private key"
printf '%s.%s.%s\n' "$header" "$claims" "$(base64url <"$work/signature")"
