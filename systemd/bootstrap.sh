#!/bin/sh
# The kernel-runner of this folder of wheels: makes its environment below /opt/kernel-runner, without a network, and runs
# it.
set -eu
umask 022
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/opt/kernel-runner

fail() {
    echo "kernel-runner: $*" >&2
    exit 2
}

# The first Python that has wheels here, as some are made for one version only, and that makes environments. By its
# version, if it can be: python3 becomes another one with the distribution's next release.
python=
for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
    tag=$("$candidate" -c 'import sys; print("cp%d%d" % sys.version_info[:2])' 2>/dev/null) || continue
    ls "$here"/*-"$tag"-*.whl >/dev/null 2>&1 || continue
    python=$candidate
    "$python" -c 'import venv, ensurepip' 2>/dev/null && break
done
[ -n "$python" ] || fail "no Python on PATH that the wheels in $here fit; \`make package PYTHONS=\"3.11 3.12\"\` adds some"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python has no venv (Debian: apt-get install $python-venv)"

wheel=
for found in "$here"/kernel_runner-*.whl; do
    [ -e "$found" ] || fail "no kernel_runner-*.whl in $here; \`make package\` makes one"
    [ -z "$wheel" ] || fail "several kernel_runner-*.whl in $here, expected one; remove the older ones"
    wheel=$found
done
version=${wheel#"$here"/kernel_runner-}
# A rebuilt package may have newer wheels of others.
release=$prefix/releases/${version%%-*}-$(cat "$here"/*.whl | sha256sum | cut -c 1-8)

# Made anew where its Python has gone.
if ! { [ -e "$release/.complete" ] && "$release/bin/python" -Ic 'import runner' 2>/dev/null; }; then
    [ "$(id -u)" = 0 ] || fail "root is needed to write to $prefix: use sudo"
    rm -rf "$release"
    "$python" -m venv "$release"
    # nvidia-ml-py is pure Python, and does nothing where there is no driver.
    # Whatever the user's pip is set to do otherwise.
    PIP_CONFIG_FILE=/dev/null "$release/bin/python" -I -m pip --isolated install --quiet --disable-pip-version-check --no-index --find-links "$here" \
        "$wheel[discord,gateway,nvidia]" || fail "the wheels in $here cannot be installed for $("$python" --version): see pip's words above"
    ln -s "$release"/lib/python3*/site-packages/tasks "$release/tasks"
    touch "$release/.complete"
fi
exec "$release/bin/kernel-runner" "$@"
