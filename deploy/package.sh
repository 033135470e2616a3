#!/bin/bash
# Makes Debian packages of a build: staged with cmake --install, described by what the programs' own tables of flags
# say, and packed by dpkg-deb. There is no debian/rules: the four packages are folders of files, and this script is
# all that is between the build and them.
set -euo pipefail

usage() {
  cat <<END
Usage: deploy/package.sh [--maintainer "NAME <ADDRESS>"] [--no-lintian] [--help]

Builds the release preset and writes build/packages/:
  telegradd         the daemon with its systemd units, configuration in /etc/telegrad, manual page and completion
  telegrad          the command line and telegrad-opt, with manual pages and completion
  libtelegrad-dev   the C++ client: static library, headers, CMake config, pkg-config
  python3-telegrad  the Python client
and a wheel and an sdist of the Python client where python3-build and setuptools are installed.
  --maintainer TEXT  maintainer of the packages (default: DEBFULLNAME and DEBEMAIL, else the last commit's author,
                     else, outside of a git repository, root of this machine)
  --no-lintian       do not check the packages with lintian (default: check where lintian is installed)
END
}

die() {
  echo "package: error: $*" >&2
  exit 1
}

maintainer='' lintian=true
while [ $# -gt 0 ]; do
  case "$1" in
    --maintainer) [ $# -ge 2 ] || die "--maintainer needs a value"; maintainer=$2; shift ;;
    --no-lintian) lintian=false ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
  command -v "$tool" >/dev/null || die "$tool is missing; install dpkg-dev and binutils"
done
if [ -z "$maintainer" ]; then
  if [ -n "${DEBEMAIL:-}" ]; then
    maintainer="${DEBFULLNAME:-Telegrad maintainers} <$DEBEMAIL>"
  else
    maintainer=$(git log -1 --format='%an <%ae>' 2>/dev/null) || maintainer="Telegrad maintainers <root@$(uname -n)>"
  fi
fi

build=build/release
out=build/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debian has libraries of an architecture in a folder of their own.
multiarch=lib/$(gcc -print-multiarch)
cmake --preset release -DCMAKE_INSTALL_LIBDIR="$multiarch" >/dev/null
ninja -C "$build" telegradd telegrad-compile-worker telegrad-device-worker telegrad telegrad-opt libtelegrad
version=$("$build/server/telegradd" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
# The same tree makes the same packages: their times are those of its last commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
rm -rf "$out"
mkdir -p "$out"

# stage PACKAGE COMPONENT
stage() {
  DESTDIR="$work/$1" cmake --install "$build" --prefix /usr --component "$2" >/dev/null
}

# pages PACKAGE SECTION PROGRAM: the program's manual page and completion.
pages() {
  local name
  name=$(basename "$3")
  install -d "$work/$1/usr/share/man/man$2" "$work/$1/usr/share/bash-completion/completions" \
    "$work/$1/usr/share/zsh/vendor-completions" "$work/$1/usr/share/fish/vendor_completions.d"
  "$3" --generate=man | gzip -9n >"$work/$1/usr/share/man/man$2/$name.$2.gz"
  "$3" --generate=bash >"$work/$1/usr/share/bash-completion/completions/$name"
  "$3" --generate=zsh >"$work/$1/usr/share/zsh/vendor-completions/_$name"
  "$3" --generate=fish >"$work/$1/usr/share/fish/vendor_completions.d/$name.fish"
}

# pack PACKAGE ARCHITECTURE SECTION DEPENDS SUMMARY DESCRIPTION [CONTROL_FIELD...]
pack() {
  local package=$1 arch=$2 section=$3 depends=$4 summary=$5 description=$6 tree=$work/$1 doc
  shift 6
  doc=$tree/usr/share/doc/$package
  install -d "$doc" "$tree/DEBIAN"
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: telegrad\n\n'
    printf 'Files: *\nCopyright: %s The Telegrad authors\nLicense: Apache-2.0\n' "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y)"
    printf ' On Debian systems the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n'
  } >"$doc/copyright"
  printf 'telegrad (%s) unstable; urgency=medium\n\n  * Build of commit %s.\n\n -- %s  %s\n' "$version" \
    "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$maintainer" "$date" | gzip -9n >"$doc/changelog.gz"
  find "$tree" -path "$tree/DEBIAN" -prune -o -type f -exec chmod u=rw,go=r {} +
  find "$tree" -path "$tree/usr/bin/*" -type f -exec chmod 0755 {} +
  find "$tree" -type d -exec chmod 0755 {} +
  local script
  for script in deploy/debian/"$package".*; do
    if [ -e "$script" ]; then install -m 0755 "$script" "$tree/DEBIAN/${script##*.}"; fi
  done
  find "$tree" -path "$tree/usr/bin/*" -type f -exec strip --remove-section=.comment --remove-section=.note {} +
  if compgen -G "$tree/usr/bin/*" >/dev/null; then
    local shared
    mkdir -p "$work/debian"
    printf 'Source: telegrad\n\nPackage: %s\nArchitecture: any\n' "$package" >"$work/debian/control"
    shared=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$tree"/usr/bin/* 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    [ -n "$shared" ] || die "dpkg-shlibdeps found no libraries for $package"
    depends="$shared${depends:+, $depends}"
  fi
  {
    printf 'Package: %s\nSource: telegrad\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$package" "$version" "$arch" \
      "$maintainer"
    printf 'Installed-Size: %s\nSection: %s\nPriority: optional\n' "$(du -sk --exclude=DEBIAN "$tree" | cut -f1)" "$section"
    [ -z "$depends" ] || printf 'Depends: %s\n' "$depends"
    [ $# -eq 0 ] || printf '%s\n' "$@"
    printf 'Description: %s\n' "$summary"
    fold -s -w 74 <<<"$description" | sed 's/ *$//; s/^/ /'
  } >"$tree/DEBIAN/control"
  (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  chmod 0644 "$tree/DEBIAN/control" "$tree/DEBIAN/md5sums"
  find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/${package}_${version}_$arch.deb" >/dev/null
}

stage telegradd daemon
pages telegradd 8 "$build/server/telegradd"
install -D -m 0644 -t "$work/telegradd/lib/systemd/system" deploy/systemd/telegradd.service deploy/systemd/telegradd.socket
install -D -m 0644 -t "$work/telegradd/etc/telegrad" deploy/systemd/telegradd.env
install -D -m 0644 -t "$work/telegradd/usr/share/telegradd" deploy/prometheus/telegrad.rules.yml deploy/grafana/telegrad.json
install -d "$work/telegradd/DEBIAN"
echo /etc/telegrad/telegradd.env >"$work/telegradd/DEBIAN/conffiles"
# A compile worker has no flags of its own to write a page from.
ln -s telegradd.8.gz "$work/telegradd/usr/share/man/man8/telegrad-compile-worker.8.gz"
ln -s telegradd.8.gz "$work/telegradd/usr/share/man/man8/telegrad-device-worker.8.gz"
pack telegradd "$architecture" net adduser "compute server for tensor graphs" \
  "Telegrad takes graphs of tensor operations over gRPC, compiles them into kernels for the machine's processors and GPUs, and runs them. This package has the daemon and its systemd units." \
  "Suggests: telegrad"

stage telegrad cli
pages telegrad 1 "$build/client/cli/telegrad"
pages telegrad 1 "$build/engine/tools/telegrad-opt"
pack telegrad "$architecture" net "" "command line of the Telegrad compute server" \
  "This package has telegrad, which runs, trains and explains models on a Telegrad server, and telegrad-opt, which shows the compiler at work." \
  "Suggests: telegradd"

stage libtelegrad-dev dev
multiarch=$work/libtelegrad-dev/usr/$multiarch
sed -i "s|^prefix=.*|prefix=/usr|" "$multiarch/pkgconfig/telegrad.pc"
find "$work/libtelegrad-dev" -type d -empty -delete
strip --strip-debug --enable-deterministic-archives "$multiarch/libtelegrad.a"
# gRPC's CMake config asks for the compilers of both, which its own package does not depend on.
pack libtelegrad-dev "$architecture" libdevel \
  "libabsl-dev, libgrpc++-dev, libprotobuf-dev, protobuf-compiler, protobuf-compiler-grpc, libssl-dev, zlib1g-dev, liblz4-dev, libzstd-dev, libre2-dev, libjpeg-dev, libpng-dev, libwebp-dev, libopenjp2-7-dev" \
  "C++ client of the Telegrad compute server" \
  "This package has the static library, the headers, and what CMake (find_package(telegrad)) and pkg-config need."

site=$work/python3-telegrad/usr/lib/python3/dist-packages
install -d "$site" "$site/telegrad-$version.dist-info"
# With what makes the device TELEGRAD known to tinygrad, and the backend to PyTorch.
(cd client/python && cp telegrad.pth _telegrad_tinygrad.py "$site" && find telegrad \( -name '*.py' -o -name '*.pyi' -o -name py.typed \) -print0 | xargs -0 cp --parents -t "$site")
printf 'Metadata-Version: 2.1\nName: telegrad\nVersion: %s\nSummary: Client of Telegrad, a compute server for tensor graphs\nLicense: Apache-2.0\nRequires-Python: >=3.10\nRequires-Dist: grpcio>=1.51\nRequires-Dist: numpy>=1.24\n' \
  "$version" >"$site/telegrad-$version.dist-info/METADATA"
sed -n '/^\[project.entry-points\./,/^$/{s/^\[project.entry-points.\(.*\)\]$/[\1]/;s/"//g;p}' client/python/pyproject.toml \
  >"$site/telegrad-$version.dist-info/entry_points.txt"
echo dpkg >"$site/telegrad-$version.dist-info/INSTALLER"
pack python3-telegrad all python "python3 (>= 3.10), python3-grpcio, python3-numpy" \
  "Python client of the Telegrad compute server" \
  "This package has the Python package telegrad, which builds graphs with NumPy's operators and runs them on a Telegrad server."

# They are built in a copy, because setuptools writes beside what it packs.
cp -r client/python "$work/python"
if (cd "$work/python" && /usr/bin/python3 -m build --version) >/dev/null 2>&1; then
  (cd "$work/python" && /usr/bin/python3 -m build --no-isolation --outdir "$root/$out" .) >"$work/python.log" 2>&1 ||
    { cat "$work/python.log" >&2; die "the wheel or the sdist of the Python client could not be built"; }
else
  echo "package: no wheel and no sdist: python3-build is not installed"
fi

if $lintian && command -v lintian >/dev/null; then
  # The address is that of whoever builds.
  lintian --fail-on error --suppress-tags bogus-mail-host --tag-display-limit 0 "$out"/*.deb ||
    die "lintian found errors"
fi
ls -l "$out"
