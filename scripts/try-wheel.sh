#!/bin/sh
# Install the wheel of dist/ that fits, where there is no compiler, and read with it from an imitated broker. Then do the
# same with the wheel that has no C library.
#
#   try-wheel.sh           in a fresh virtual environment, with an empty PATH
#   try-wheel.sh IMAGE     in a container of an image with python3 of the version that .venv has, and venv
#   try-wheel.sh --beside [NAME ...]     beside PySpark and its clients, with what the package index has; writes
#                          docs/installed.json
#
# What the package depends on is taken from .venv, so nothing is downloaded, except with --beside.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')

# The package itself is not found in .venv: it is linked there by a .pth file, which PYTHONPATH does not read.
try='set -eu
"$python" -m venv "$folder"
PATH= "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-index --no-deps --only-binary :all: --find-links "$dist" pyspark-kafka-group
PATH= PYTHONPATH="$packages" "$folder/bin/python" "$program"
PATH= "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-index --no-deps --force-reinstall "$dist"/*-py3-none-any.whl
PATH= PYTHONPATH="$packages" "$folder/bin/python" "$program" --pure'

if [ "${1-}" = --beside ]; then
    shift
    exec .venv/bin/python -m scripts.try_wheel --beside "dist/$(ls dist | grep "manylinux.*$(uname -m).whl")" "$@"
fi
if [ $# -gt 0 ]; then
    exec docker run --rm --network none --volume "$root/dist:/dist:ro" --volume "$packages:/packages:ro" \
        --volume "$root/scripts/try_wheel.py:/try_wheel.py:ro" --env python=python3 --env folder=/tmp/venv \
        --env dist=/dist --env packages=/packages --env program=/try_wheel.py "$1" sh -c "
            for name in cc gcc clang c99 tcc; do
                if command -v \$name; then echo 'try-wheel.sh: this image has a compiler' >&2; exit 1; fi
            done
            $try"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=.venv/bin/python folder=$folder dist=$root/dist packages=$packages program=$root/scripts/try_wheel.py sh -c "$try"
