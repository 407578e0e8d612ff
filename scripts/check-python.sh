#!/bin/sh
# Say in one line what to install when $PYTHON is missing, older than 3.11, or cannot make virtual environments.
remedy="Install it (Debian, Ubuntu: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3 ..."

if [ -z "$PYTHON" ]; then
    echo "Python 3.11 or newer is needed, and no python3 on the PATH is that new. $remedy" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Python 3.11 or newer is needed, and '$PYTHON' is older or does not run. $remedy" >&2
    exit 1
fi
# Debian splits venv off: the module is there without python3-venv, ensurepip is not.
if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "'$PYTHON' cannot make virtual environments (its venv or ensurepip module is missing). $remedy" >&2
    exit 1
fi
