"""`python -m ham` is `ham`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, whose modules are not ours

from ham.cli import main

sys.exit(main())
