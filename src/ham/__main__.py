"""`python -m ham` is `ham`."""

import sys

from ham.cli import main

sys.exit(main())
