#!/usr/bin/env bash
# What integration/test_kerberos.py needs: MIT's KDC and its tools from Debian's packages, and the package gssapi, which is
# built here. Succeeds at once where all of it is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}

have_all() {
    PATH=$PATH:/usr/sbin command -v krb5kdc kadmin.local kdb5_util kinit >/dev/null 2>&1 &&
        "$python" -c 'import gssapi' 2>/dev/null
}

have_all && exit
apt-get update
# The KDC of this package is not started: tests start their own.
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc libc6-dev
version=$(sed -n 's/^kerberos = \["\(.*\)"\].*/\1/p' pyproject.toml)
"$python" -m pip install --quiet "$version"
have_all
