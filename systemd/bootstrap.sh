#!/bin/sh
# The kernel-runner of this folder of wheels: makes its environment below /opt/kernel-runner, without a network, and runs
# it, e.g. `./kernel-runner install --help`. With --dry-run the environment is a temporary one, and nothing is changed.
set -eu
umask 022
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/opt/kernel-runner

fail() {
    echo "kernel-runner: $*" >&2
    exit 2
}

python=
for candidate in python3 python3.11 python3.12 python3.13 python3.14; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "no Python 3.11 or later on PATH (Debian: apt-get install python3 python3-venv)"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python has no venv (Debian: apt-get install python3-venv)"

wheel=
for found in "$here"/kernel_runner-*.whl; do
    [ -e "$found" ] || fail "no kernel_runner-*.whl in $here; \`make package\` makes one"
    [ -z "$wheel" ] || fail "several kernel_runner-*.whl in $here, expected one; remove the older ones"
    wheel=$found
done
version=${wheel#"$here"/kernel_runner-}
release=$prefix/releases/${version%%-*}-$(sha256sum "$wheel" | cut -c 1-8)

temporary=
for argument in "$@"; do
    if [ "$argument" = --dry-run ] && [ ! -e "$release/.complete" ]; then
        temporary=$(mktemp -d)
        release=$temporary/release
        trap 'rm -rf "$temporary"' EXIT
        trap 'exit 130' INT TERM
    fi
done
if [ ! -e "$release/.complete" ]; then
    if [ -z "$temporary" ] && [ "$(id -u)" != 0 ]; then
        fail "root is needed to write to $prefix; use sudo, or --dry-run"
    fi
    rm -rf "$release"
    "$python" -m venv "$release"
    # nvidia-ml-py is pure Python, and does nothing where there is no driver.
    "$release/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here" \
        "$wheel[gateway,nvidia]" || fail "the wheels in $here do not fit $("$python" --version); see \`make package\`"
    touch "$release/.complete"
fi
[ -n "$temporary" ] || exec "$release/bin/kernel-runner" "$@"
"$release/bin/kernel-runner" "$@"
