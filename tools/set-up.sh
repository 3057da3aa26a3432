#!/usr/bin/env bash
# Makes a virtual environment that holds exactly what lock files name, and slotune itself from this checkout.
#
#     tools/set-up.sh VENV LOCK...        for example: tools/set-up.sh .venv engine build
#
# Works with a bare Debian 12: its python3 has neither pip nor ensurepip until python3.11-venv is there, and llama.cpp
# computes with libgomp. As root those packages are installed; for anybody else the command to type is printed.
# PYTHON names the interpreter to use.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'set-up: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Installs a Debian package as root; otherwise tells how. $1 is the package, $2 what for.
debian_package() {
    local install="apt-get install -y --no-install-recommends $1"
    command -v apt-get >/dev/null || die "$2: install $1 or what your system calls it, then try again"
    [[ $(id -u) == 0 ]] || die "$2: type 'sudo $install', then try again"
    say "$2: $install"
    # A new machine has no package lists at all, so they are fetched when the first try finds nothing.
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    $install >/dev/null 2>&1 || { apt-get update -q >/dev/null && $install >/dev/null; } || die "$install failed"
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        if command -v "$name" >/dev/null && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    return 1
}

make_environment() {
    local venv=$1 python version
    if ! python=$(find_python); then
        [[ -z ${PYTHON:-} ]] || die "PYTHON=$PYTHON is not Python 3.11 or newer"
        debian_package python3-venv "no Python 3.11 or newer here"
        python=$(find_python) || die "python3 is older than 3.11: name a newer one, make PYTHON=/path/to/python3.11"
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        debian_package "python$version-venv" "$python cannot make a virtual environment"
    fi
    say "$venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
}

[[ $# -ge 2 ]] || die "usage: tools/set-up.sh VENV LOCK..."
venv=$1
shift
# Only an environment that was made here, as its mark says, is ever emptied and made again (its interpreter may be gone).
# Somebody else's is used as it is, with pip added when it has none; what is no environment is left alone.
mark=$venv/.made-by-slotune
if ! is_new_enough "$venv/bin/python"; then
    if [[ ! -e $mark && -e $venv && -n $(ls -A "$venv") ]]; then
        die "VENV=$venv holds something else, or an environment that does not run: name another, or remove it"
    fi
    make_environment "$venv"
    touch "$mark"
elif ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$venv/bin/python" -m ensurepip >/dev/null || die "VENV=$venv has no pip, and none could be put there"
fi

export PIP_USER=0 # some systems make --user the default, which no virtual environment can do
requirements=()
for lock in "$@"; do requirements+=(-r "requirements/$lock.txt"); done
say "installing: $*"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
# The lock files are complete, so there is nothing to resolve. --only-binary: no compiler is needed, or run.
"${pip[@]}" --require-hashes --no-deps --only-binary :all: "${requirements[@]}"
"${pip[@]}" --no-index --no-deps --no-build-isolation --editable .

# The engine's wheel is the one that leans on a library of the system, and only an import tells.
if ! trouble=$("$venv/bin/python" -c 'import xllamacpp' 2>&1); then
    case $trouble in
        *"No module named"*) ;; # this environment does without the engine
        *libgomp*) debian_package libgomp1 "llama.cpp needs libgomp.so.1" ;;
        *) die "llama.cpp does not load: ${trouble##*$'\n'}" ;;
    esac
fi
