#!/bin/sh
# Debian's chromium for the tests of the page, where there is none yet and we may install it.
# Without it those tests are skipped, except under CI.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no browser found: install chromium to run the tests of the page" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1 || {
    apt-get update >/dev/null
    apt-get install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
}
